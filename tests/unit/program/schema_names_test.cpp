// Lists of names in docs/schema equal those of the code: each enum after "$comment": "names of KIND" is compared, and
// rewritten with ORRERY_RECORD=1.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "core/file.h"
#include "sim/program/plan_names.h"

namespace orrery::program {
namespace {

namespace fs = std::filesystem;

const std::map<std::string, std::vector<std::string>>& names_by_kind() {
    static const std::map<std::string, std::vector<std::string>> all{
        {"schedule", names_of<Schedule>()},
        {"data_parallel", names_of<DataParallel>()},
        {"context_parallel", names_of<ContextParallel>()},
        {"vocabulary_parallel", names_of<VocabularyParallel>()},
        {"recompute", names_of<Recompute>()},
        {"optimizer", names_of<OptimizerKind>()},
        {"block_part", names_of<models::BlockPart>()},
    };
    return all;
}

/// The schema's text with every such list taken from the code; adds the listed kinds to `seen`.
std::string with_names(const std::string& text, std::set<std::string>& seen) {
    static const std::regex list(R"re(("\$comment": "names of (\w+)",\n( *)"enum": )\[[^\]]*\])re");
    std::string result;
    auto rest = text.begin();
    for (std::sregex_iterator match(text.begin(), text.end(), list), end; match != end; ++match) {
        const auto known = names_by_kind().find((*match)[2].str());
        if (known == names_by_kind().end()) {
            ADD_FAILURE() << "names of an unknown kind: " << match->str();
            continue;
        }
        seen.insert(known->first);
        result.append(rest, (*match)[1].second);
        const std::string indentation = (*match)[3].str();
        result += "[";
        for (std::size_t i = 0; i < known->second.size(); ++i) {
            result += (i > 0 ? ",\n" : "\n") + indentation + "  \"" + known->second[i] + "\"";
        }
        result += "\n" + indentation + "]";
        rest = (*match)[0].second;
    }
    return result.append(rest, text.end());
}

TEST(SchemaNames, AreThoseOfTheCode) {
    const fs::path folder = fs::path(ORRERY_SOURCE_DIR) / "docs" / "schema";
    const bool records = std::getenv("ORRERY_RECORD") != nullptr;
    std::set<std::string> seen;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
        const std::string text = read_text_file(entry.path().string());
        const std::string now = with_names(text, seen);
        if (records && now != text) write_file_atomically(entry.path().string(), now);
        EXPECT_TRUE(records || text == now) << "ORRERY_RECORD=1 writes " << entry.path().filename();
    }
    for (const auto& [kind, names] : names_by_kind()) EXPECT_TRUE(seen.contains(kind)) << kind;
}

}  // namespace
}  // namespace orrery::program
