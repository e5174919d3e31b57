// The emulated headers declare what the sources use, no less and no more.
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <set>
#include <string>

#include "core/file.h"

namespace orrery {
namespace {

const std::string kRoot = ORRERY_SOURCE_DIR;

std::set<std::string> names_in(const std::string& text, const std::regex& pattern) {
    std::set<std::string> names;
    for (std::sregex_iterator match(text.begin(), text.end(), pattern), end; match != end; ++match) {
        names.insert((*match)[1]);
    }
    return names;
}

/// Comments and texts of messages also hold names of functions.
std::string code_of(const std::filesystem::path& path) {
    const std::string text = std::regex_replace(read_text_file(path.string()), std::regex("//[^\n]*"), "");
    return std::regex_replace(text, std::regex("\"[^\"\n]*\""), "\"\"");
}

std::string code_in(const std::string& folder, const std::set<std::string>& extensions) {
    std::string text;
    for (const auto& entry : std::filesystem::directory_iterator(kRoot + "/" + folder)) {
        if (extensions.contains(entry.path().extension().string())) text += code_of(entry.path());
    }
    return text;
}

/// A function is called, or its type is asked for because it is found at run time.
std::set<std::string> used() {
    std::set<std::string> names;
    for (const char* folder : {"exec/cuda", "kernels/cuda"}) {
        const std::string code = code_in(folder, {".cpp", ".cu", ".cuh", ".h"});
        names.merge(names_in(code, std::regex("\\b((?:cuda|cublas|nccl)[A-Z]\\w*)\\(")));
        names.merge(names_in(code, std::regex("decltype\\(((?:cuda|cublas|nccl)\\w+)\\)")));
    }
    return names;
}

TEST(Interface, HeadersDeclareWhatTheSourcesUse) {
    const std::string declared_in = code_in("tests/emulator/include", {".h"});
    const std::set<std::string> declared = names_in(declared_in, std::regex("\\b((?:cuda|cublas|nccl)[A-Z]\\w*)\\("));
    EXPECT_EQ(declared, used());
}

TEST(Interface, SignaturesAreHeldAgainstTheRealHeaders) {
    std::set<std::string> held =
        names_in(code_of(kRoot + "/tests/emulator/interface.cpp"), std::regex("FUNCTION\\([^,]*, (\\w+)"));
    held.insert("cudaLaunchKernelEx");  // a template, whose signature has no name to hold it against
    held.erase("name");                 // of the macro itself
    EXPECT_EQ(held, used());
}

}  // namespace
}  // namespace orrery
