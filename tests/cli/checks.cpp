#include "tests/cli/checks.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/file.h"
#include "tests/unit/topologies/made_up_cluster.h"

namespace orrery::test {

void expect_refused(const CommandResult& result, int exit_code, const std::vector<std::string>& words) {
    EXPECT_EQ(result.signal, 0);
    EXPECT_EQ(result.exit_code, exit_code);
    EXPECT_EQ(result.out, "");
    EXPECT_TRUE(result.err.starts_with("orrery: ")) << result.err;
    EXPECT_TRUE(result.err.find('\n') == result.err.size() - 1) << result.err;
    for (const std::string& word : words) {
        EXPECT_NE(result.err.find(word), std::string::npos) << "no " << word << " in: " << result.err;
    }
}

void expect_done(const CommandResult& result) {
    EXPECT_EQ(result.signal, 0);
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.err, "");
}

nlohmann::json small_plan(int dp, int tp, int pp) {
    return {{"schema", "orrery.plan/1"},
            {"name", "small"},
            {"model", "tiny-gpt"},
            {"cluster", "dgx-h100"},
            {"parallelism", {{"dp", dp}, {"tp", tp}, {"pp", pp}}},
            {"training", {{"sequence_length", 32}, {"global_batch_size", 8}}}};
}

nlohmann::json local_plan(int dp, int tp, int pp) {
    nlohmann::json plan = small_plan(dp, tp, pp);
    plan["cluster"] = nlohmann::json::parse(topologies::to_json_text(made_up_local_cluster()));
    return plan;
}

Workplace::Workplace() {
    write("local.cluster.json", topologies::to_json_text(made_up_local_cluster()));
}

std::string Workplace::write(const std::string& name, const std::string& content) const {
    write_file_atomically(path(name), content);
    return name;
}
std::string Workplace::write(const std::string& name, const nlohmann::json& document) const {
    return write(name, document.dump());
}

bool Workplace::has(const std::string& name) const {
    return std::filesystem::exists(path(name));
}
std::string Workplace::read(const std::string& name) const {
    return read_text_file(path(name));
}

std::vector<std::string> Workplace::names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
        names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
}

CommandResult Workplace::run(const std::vector<std::string>& arguments, CommandOptions options,
                             std::vector<std::string>* orphans) const {
    options.environment.insert(options.environment.begin(), "ORRERY_PROFILE=" + path("local.cluster.json"));
    options.working_folder = folder_.path().string();
    return orrery(arguments, options, orphans);
}

}  // namespace orrery::test
