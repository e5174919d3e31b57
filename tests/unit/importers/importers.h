// Shared by the tests of the importers.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "core/error.h"
#include "core/file.h"

namespace orrery::topologies::test {

/// Path of one of our small test files.
inline std::string data_file(const std::string& name) {
    return std::string(ORRERY_SOURCE_DIR) + "/tests/data/importers/" + name;
}
inline std::string data_text(const std::string& name) {
    return read_text_file(data_file(name));
}

/// Tests with real files; skipped where the shared samples are missing.
class Samples : public testing::Test {
  protected:
    void SetUp() override {
        const char* shared = std::getenv("ORRERY_SHARED");
        root_ = std::filesystem::path(shared != nullptr ? shared : ORRERY_SOURCE_DIR "/../shared") / "samples";
        if (!std::filesystem::is_directory(root_)) GTEST_SKIP() << "no samples under " << root_;
    }
    [[nodiscard]] std::string file(const std::string& name) const { return (root_ / name).string(); }
    [[nodiscard]] std::string text(const std::string& name) const { return read_text_file(file(name)); }

  private:
    std::filesystem::path root_;
};

/// The message of the InputError that `action` throws.
template <typename Action>
std::string refusal_of(Action action) {
    try {
        action();
    } catch (const InputError& error) {
        return error.what();
    }
    ADD_FAILURE() << "no InputError was thrown";
    return "";
}

inline bool has_note(const std::vector<std::string>& notes, const std::string& part) {
    for (const std::string& note : notes) {
        if (note.find(part) != std::string::npos) return true;
    }
    return false;
}

}  // namespace orrery::topologies::test
