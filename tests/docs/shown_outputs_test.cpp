// Every output shown in README.md and docs equals what the command prints now. With ORRERY_RECORD=1 in the environment,
// as set by `./dev docs`, the pages are rewritten instead.
#include "tests/docs/shown_outputs.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "core/file.h"
#include "tests/cli/checks.h"
#include "tests/docs/pages.h"

namespace orrery::docs {
namespace {

namespace fs = std::filesystem;

/// Copies the files that the pages' examples name, since a shown command may write next to them.
void put_inputs(const test::Workplace& here) {
    for (const char* const folder : {"examples", "docs/results", "sim/published/data"}) {
        fs::create_directories(fs::path(here.path(folder)).parent_path());
        fs::copy(kRoot / folder, here.path(folder), fs::copy_options::recursive);
    }
}

TEST(ShownOutputs, AreWhatCommandsPrint) {
    const bool records = std::getenv("ORRERY_RECORD") != nullptr;
    int compared = 0;
    for (const std::string& path : page_paths()) {
        const test::Workplace here;
        put_inputs(here);
        const Place place{.run =
                              [&](const std::vector<std::string>& words) {
                                  ++compared;
                                  const test::CommandResult result = here.run(words, {.together = true});
                                  return Printed{result.out, result.exit_code};
                              },
                          .write = [&](const std::string& name, const std::string& text) { here.write(name, text); }};
        const Page page = read_page_of_root(path);
        const Renewed now = renew(page, place);
        for (const std::string& mistake : now.mistakes) ADD_FAILURE() << mistake;
        if (records && now.text != page.text()) {
            write_file_atomically((kRoot / path).string(), now.text);
            for (const std::string& difference : now.differences) std::printf("updated: %s\n", difference.c_str());
        } else if (!records) {
            for (const std::string& difference : now.differences) {
                ADD_FAILURE() << difference << "\n  (./dev docs --quick updates it)";
            }
            EXPECT_TRUE(!now.differences.empty() || now.text == page.text())
                << path << " changes without a reported difference";
        }
    }
    EXPECT_GT(compared, 10);
}

}  // namespace
}  // namespace orrery::docs
