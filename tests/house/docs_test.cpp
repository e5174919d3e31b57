// Files that the pages and the command's help refer to exist.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace orrery::house {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = ORRERY_SOURCE_DIR;

std::string text_of(const fs::path& path) {
    std::ifstream stream(path);
    std::ostringstream text;
    text << stream.rdbuf();
    return text.str();
}

std::vector<std::string> matches(const std::string& text, const std::regex& pattern) {
    std::vector<std::string> found;
    for (auto it = std::sregex_iterator(text.begin(), text.end(), pattern); it != std::sregex_iterator(); ++it) {
        found.push_back((*it)[1]);
    }
    return found;
}

TEST(Docs, RelativeLinksResolve) {
    static const std::regex link(R"(\]\(([^)#:]+)(#[^)]*)?\))");
    std::vector<fs::path> pages{kRoot / "README.md", kRoot / "CONTRIBUTING.md"};
    for (const auto& entry : fs::directory_iterator(kRoot / "docs")) {
        if (entry.path().extension() == ".md") pages.push_back(entry.path());
    }
    std::size_t links = 0;
    for (const fs::path& page : pages) {
        for (const std::string& target : matches(text_of(page), link)) {
            EXPECT_TRUE(fs::exists(page.parent_path() / target)) << page << " links to " << target;
            ++links;
        }
    }
    EXPECT_GT(links, 20U);
}

TEST(Docs, NamedExamplesExist) {
    static const std::regex example(R"((examples/[-a-z0-9_./]+\.json))");
    std::vector<fs::path> pages{kRoot / "README.md", kRoot / "docs" / "commands.md", kRoot / "dev"};
    for (const auto& entry : fs::directory_iterator(kRoot / "cli")) pages.push_back(entry.path());
    std::size_t named = 0;
    for (const fs::path& page : pages) {
        for (const std::string& path : matches(text_of(page), example)) {
            EXPECT_TRUE(fs::exists(kRoot / path)) << page << " names " << path;
            ++named;
        }
    }
    EXPECT_GT(named, 5U);
}

TEST(Docs, EverySchemaIsListed) {
    const std::string commands = text_of(kRoot / "docs" / "commands.md");
    for (const auto& entry : fs::directory_iterator(kRoot / "docs" / "schema")) {
        EXPECT_NE(commands.find("schema/" + entry.path().filename().string()), std::string::npos) << entry.path();
    }
}

}  // namespace
}  // namespace orrery::house
