// The results of a sweep's points in an SQLite file, which keeps each from the moment it is known: `--db`.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

struct sqlite3;

namespace orrery::cli {

enum class StoreAccess : std::uint8_t { read, write };

/// A point is told by two texts: the inputs that all points of a sweep share, and its own. So sweeps of the same inputs
/// share points, and a file holds any number of sweeps. A file has the tables
///     inputs(id, text)   points(inputs, point, result)
/// and a result that has been put stays whenever the process is killed.
class PointStore {
  public:
    /// Opens the file; to write, makes it if need be. Throws InputError if it cannot be opened or holds something else,
    /// JobError if SQLite fails.
    PointStore(const std::string& path, StoreAccess access);

    /// The number of these inputs in the file, to which they are added.
    [[nodiscard]] std::int64_t inputs_id(const std::string& inputs);
    [[nodiscard]] std::optional<std::string> find(std::int64_t inputs_id, const std::string& point);
    /// May be called by several threads. Keeps a result that is there already.
    void put(std::int64_t inputs_id, const std::string& point, const std::string& result);
    /// Points of all inputs.
    [[nodiscard]] std::int64_t count();

  private:
    friend std::int64_t merge_stores(const std::vector<std::string>& from, const std::string& into);
    struct Close {
        void operator()(sqlite3* database) const;
    };
    void execute(const std::string& statements);
    void make_tables();
    void add_from(PointStore& part);

    std::string path_;
    std::unique_ptr<sqlite3, Close> database_;
    std::mutex mutex_;
};

/// Adds the points of all files to the file `into`, which may exist, and returns how many were new. All or nothing is
/// added. Throws InputError if a file cannot be read, or if two hold different results of one point; it names both.
std::int64_t merge_stores(const std::vector<std::string>& from, const std::string& into);

/// Tells results of this build of Orrery from those of others, which may predict other times.
[[nodiscard]] const std::string& build_name();

}  // namespace orrery::cli
