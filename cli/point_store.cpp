#include "cli/point_store.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <filesystem>
#include <utility>

#include "core/crc32c.h"
#include "core/error.h"
#include "core/file.h"

namespace orrery::cli {
namespace {

/// In the file's header: "orry".
constexpr int kApplication = 0x6f727279;
constexpr int kFormat = 1;
/// For another process that writes to the same file.
constexpr int kBusyMs = 60000;
constexpr std::int64_t kLargestProgram = std::int64_t{1} << 30;

[[noreturn]] void fail_store(const std::string& path, sqlite3* database) {
    const int code = sqlite3_errcode(database);
    const std::string reason = sqlite3_errmsg(database);
    if (code == SQLITE_NOTADB || code == SQLITE_CORRUPT) {
        throw InputError(path + ": not a file of points that --db made: " + reason);
    }
    if (code == SQLITE_CANTOPEN || code == SQLITE_READONLY || code == SQLITE_PERM) {
        throw InputError(path + ": cannot be opened for reading and writing: " + reason);
    }
    throw JobError(path + ": " + reason);
}

/// A prepared statement, whose parameters are numbered from 1.
class Statement {
  public:
    Statement(const std::string& path, sqlite3* database, const std::string& text) : path_(path), database_(database) {
        if (sqlite3_prepare_v2(database, text.c_str(), -1, &statement_, nullptr) != SQLITE_OK) {
            fail_store(path_, database_);
        }
    }
    ~Statement() { (void)sqlite3_finalize(statement_); }
    Statement(const Statement&) = delete;
    Statement& operator=(const Statement&) = delete;

    Statement& bind(int place, std::int64_t value) {
        if (sqlite3_bind_int64(statement_, place, value) != SQLITE_OK) fail_store(path_, database_);
        return *this;
    }
    /// The text must outlive the statement.
    Statement& bind(int place, const std::string& value) {
        if (sqlite3_bind_text64(statement_, place, value.data(), value.size(), SQLITE_STATIC, SQLITE_UTF8) !=
            SQLITE_OK) {
            fail_store(path_, database_);
        }
        return *this;
    }
    /// Whether there is a row.
    bool step() {
        const int code = sqlite3_step(statement_);
        if (code != SQLITE_ROW && code != SQLITE_DONE) fail_store(path_, database_);
        return code == SQLITE_ROW;
    }
    [[nodiscard]] std::int64_t number(int column) const { return sqlite3_column_int64(statement_, column); }
    [[nodiscard]] std::string text(int column) const {
        const auto* const letters = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
        const auto size = static_cast<std::size_t>(sqlite3_column_bytes(statement_, column));
        return letters == nullptr ? std::string() : std::string(letters, size);
    }

  private:
    const std::string& path_;
    sqlite3* database_;
    sqlite3_stmt* statement_ = nullptr;
};

std::int64_t number_from(const std::string& path, sqlite3* database, const std::string& query) {
    Statement statement(path, database, query);
    return statement.step() ? statement.number(0) : 0;
}

}  // namespace

void PointStore::Close::operator()(sqlite3* database) const {
    (void)sqlite3_close_v2(database);
}

PointStore::PointStore(const std::string& path, StoreAccess access) : path_(path) {
    sqlite3* database = nullptr;
    const bool writes = access == StoreAccess::write;
    const int flags = writes ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY;
    const int code = sqlite3_open_v2(path.c_str(), &database, flags, nullptr);
    database_.reset(database);
    if (code != SQLITE_OK) fail_store(path_, database);
    (void)sqlite3_busy_timeout(database, kBusyMs);
    // What a killed process leaves behind is complete. NORMAL gives up the last points only if the machine loses power.
    execute("PRAGMA synchronous = NORMAL");
    if (writes) make_tables();
    const std::int64_t application = number_from(path_, database, "PRAGMA application_id");
    const std::int64_t format = number_from(path_, database, "PRAGMA user_version");
    if (application != kApplication || format != kFormat) {
        throw InputError(path_, "the file", "an SQLite file of another kind", "files that --db made");
    }
}

void PointStore::make_tables() {
    execute("BEGIN IMMEDIATE");
    if (number_from(path_, database_.get(), "SELECT count(*) FROM sqlite_master") == 0) {
        execute(
            fmt::format("PRAGMA application_id = {}; PRAGMA user_version = {};"
                        "CREATE TABLE inputs(id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);"
                        "CREATE TABLE points(inputs INTEGER NOT NULL REFERENCES inputs(id), point TEXT NOT NULL, "
                        "result TEXT NOT NULL, PRIMARY KEY(inputs, point)) WITHOUT ROWID",
                        kApplication, kFormat));
    }
    execute("COMMIT");
}

void PointStore::execute(const std::string& statements) {
    if (sqlite3_exec(database_.get(), statements.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) {
        fail_store(path_, database_.get());
    }
}

std::int64_t PointStore::inputs_id(const std::string& inputs) {
    const std::lock_guard lock(mutex_);
    Statement add(path_, database_.get(), "INSERT INTO inputs(text) VALUES(?1) ON CONFLICT DO NOTHING");
    (void)add.bind(1, inputs).step();
    Statement find(path_, database_.get(), "SELECT id FROM inputs WHERE text = ?1");
    ORRERY_CHECK(find.bind(1, inputs).step(), "inputs that were added are not there");
    return find.number(0);
}

std::optional<std::string> PointStore::find(std::int64_t inputs_id, const std::string& point) {
    const std::lock_guard lock(mutex_);
    Statement find(path_, database_.get(), "SELECT result FROM points WHERE inputs = ?1 AND point = ?2");
    if (!find.bind(1, inputs_id).bind(2, point).step()) return {};
    return find.text(0);
}

void PointStore::put(std::int64_t inputs_id, const std::string& point, const std::string& result) {
    const std::lock_guard lock(mutex_);
    Statement add(path_, database_.get(), "INSERT INTO points VALUES(?1, ?2, ?3) ON CONFLICT DO NOTHING");
    (void)add.bind(1, inputs_id).bind(2, point).bind(3, result).step();
}

std::int64_t PointStore::count() {
    const std::lock_guard lock(mutex_);
    return number_from(path_, database_.get(), "SELECT count(*) FROM points");
}

void PointStore::add_from(PointStore& part) {
    Statement all(part.path_, part.database_.get(),
                  "SELECT i.text, p.point, p.result FROM points AS p JOIN inputs AS i ON i.id = p.inputs "
                  "ORDER BY i.id, p.point");
    while (all.step()) {
        const std::string inputs = all.text(0), point = all.text(1), result = all.text(2);
        const std::int64_t id = inputs_id(inputs);
        const std::optional<std::string> known = find(id, point);
        if (known && *known != result) {
            throw InputError(part.path_ + ": point " + point + ": another result than in " + path_ +
                             " and the files before it");
        }
        if (!known) put(id, point, result);
    }
}

std::int64_t merge_stores(const std::vector<std::string>& from, const std::string& into) {
    std::vector<std::unique_ptr<PointStore>> parts;
    for (const std::string& part : from) parts.push_back(std::make_unique<PointStore>(part, StoreAccess::read));
    const bool is_new = !std::filesystem::exists(into);
    try {
        PointStore merged(into, StoreAccess::write);
        const std::int64_t before = merged.count();
        merged.execute("BEGIN IMMEDIATE");  // rolled back if an error closes the file
        for (const auto& part : parts) merged.add_from(*part);
        merged.execute("COMMIT");
        return merged.count() - before;
    } catch (...) {
        std::error_code ignored;
        if (is_new) std::filesystem::remove(into, ignored);
        throw;
    }
}

const std::string& build_name() {
    static const std::string name = [] {
        const std::string program = read_file("/proc/self/exe", kLargestProgram);
        return fmt::format("{:08x}", crc32c(program.data(), program.size()));
    }();
    return name;
}

}  // namespace orrery::cli
