// `orrery run --slurm`: scripts equal those in tests/golden/slurm (ORRERY_WRITE_GOLDEN=1 writes new ones), the
// arguments that srun gets when a shell runs them, and bad input. tests/slurm uses a real Slurm.
#include <gtest/gtest.h>

#include <cstdlib>

#include "core/file.h"
#include "tests/cli/checks.h"

namespace orrery::test {
namespace {

using nlohmann::json;

std::string replaced(std::string text, const std::string& from, const std::string& to) {
    for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
        text.replace(at, from.size(), to);
    }
    return text;
}

json plan_on(const std::string& cluster, const json& parallelism) {
    json plan = small_plan();
    plan["cluster"] = cluster;
    plan["parallelism"] = parallelism;
    plan["training"]["global_batch_size"] = 16;
    return plan;
}

void make_program(const std::string& path, const std::string& text) {
    write_file_atomically(path, text);
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
}

struct Golden {
    const char* name;
    json plan;
    std::vector<std::string> options;
    friend std::ostream& operator<<(std::ostream& out, const Golden& one) { return out << one.name; }
};

class SlurmScript : public testing::TestWithParam<Golden> {
  protected:
    [[nodiscard]] CommandResult script() const {
        here_.write("job.plan.json", GetParam().plan);
        std::vector<std::string> words{"run", "job.plan.json", "--slurm"};
        words.insert(words.end(), GetParam().options.begin(), GetParam().options.end());
        return here_.run(words);
    }
    Workplace here_;
};

TEST_P(SlurmScript, EqualsTheGoldenScript) {
    const CommandResult first = script();
    expect_done(first);
    EXPECT_EQ(script().out, first.out);
    const std::string text = replaced(replaced(first.out, orrery_path(), "/opt/orrery"), here_.path("job.plan.json"),
                                      "/home/user/job/job.plan.json");
    const std::string folder = std::filesystem::path(here_.path("x")).parent_path().string();
    const std::string kept = std::string(ORRERY_SOURCE_DIR) + "/tests/golden/slurm/" + GetParam().name + ".sbatch";
    const std::string script = replaced(text, folder, "/home/user/job");
    if (std::getenv("ORRERY_WRITE_GOLDEN") != nullptr) write_file_atomically(kept, script);
    EXPECT_EQ(script, read_text_file(kept));
}

TEST_P(SlurmScript, PassesShellcheck) {
    if (run_command({"shellcheck", "--version"}).exit_code != 0) GTEST_SKIP() << "no shellcheck (Debian: shellcheck)";
    here_.write("job.sbatch", script().out);
    const CommandResult result = run_command({"shellcheck", here_.path("job.sbatch")});
    EXPECT_EQ(result.exit_code, 0) << result.out;
}

INSTANTIATE_TEST_SUITE_P(
    Jobs, SlurmScript,
    testing::Values(
        Golden{"two_nodes",
               plan_on("dgx-h100", {{"dp", 4}, {"tp", 4}}),
               {"--steps", "5", "--record", "results.json", "--json", "--partition", "gpu", "--account", "physics",
                "--time", "2:00:00", "--cpus-per-task", "12", "--slurm-option", "qos=high", "--slurm-option",
                "comment=a \"b\" #1", "--slurm-option", "requeue"}},
        Golden{"shared_nodes", plan_on("dgx-h100", {{"dp", 2}}), {"--share-nodes", "--slurm-option", "mem=64G"}},
        Golden{"last_node_in_part", plan_on("gb200-nvl72", {{"pp", 3}, {"dp", 2}}), {"--ranks-per-node", "4"}},
        Golden{"placed",
               plan_on("dgx-h100", {{"dp", 16}, {"placement", {0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15}}}),
               {}},
        Golden{"more_ranks_than_cores", plan_on("local", {{"dp", 4}, {"tp", 2}}), {}}),
    [](const auto& one) { return std::string(one.param.name); });

/// Folders and names with characters that a shell or sbatch would interpret.
TEST(Slurm, PathsWithSpacesAndQuotes) {
    const Workplace here;
    const std::string folder = here.path("it's a \"$HOME\" `x` # 100%");
    std::filesystem::create_directory(folder);
    json plan = small_plan(2);
    plan["name"] = "my \"plan\"; rm -rf / %x!";
    write_file_atomically(folder + "/a b.plan.json", plan.dump());
    const CommandResult result =
        here.run({"run", folder + "/a b.plan.json", "--slurm", "--trace", folder + "/t.json", "--steps", "3"});
    expect_done(result);
    EXPECT_NE(result.out.find("#SBATCH --job-name=my--plan---rm--rf----x-\n"), std::string::npos) << result.out;
    const std::string in_sbatch = replaced(replaced(folder, "\"", "\\\""), "%", "%%");
    EXPECT_NE(result.out.find("#SBATCH --output=\"" + in_sbatch + "/%x-%j.out\"\n"), std::string::npos) << result.out;

    // The arguments that srun gets from bash.
    make_program(here.path("srun"), "#!/bin/sh\nprintf '%s\\n' \"$MASTER_ADDR:$MASTER_PORT\" \"$@\"\n");
    make_program(here.path("scontrol"), "#!/bin/sh\nprintf 'node7\\nnode8\\n'\n");
    here.write("job.sbatch", result.out);
    const CommandResult words =
        run_command({"bash", here.path("job.sbatch")},
                    {.environment = {"PATH=" + here.path("") + ":/usr/bin:/bin", "SLURM_JOB_NODELIST=node[7-8]",
                                     "SLURM_JOB_ID=123456", "SLURM_NTASKS_PER_NODE=2"}});
    expect_done(words);
    EXPECT_EQ(words.out,
              "node7:23456\n--mpi=pmix\n--ntasks=2\n--cpus-per-task=2\n--distribution=block\n"
              "--kill-on-bad-exit=1\n" +
                  orrery_path() + "\nrun\n" + folder + "/a b.plan.json\n--steps\n3\n--warm-up\n2\n--trace\n" + folder +
                  "/t.json\n");
}

TEST(Slurm, CheckpointPathsAreAbsolute) {
    const Workplace here;
    here.write("small.plan.json", small_plan());
    const CommandResult result =
        here.run({"run", "small.plan.json", "--slurm", "--checkpoint", "c", "--checkpoint-every", "5"});
    expect_done(result);
    for (const std::string& words :
         {"--checkpoint " + here.path("c"), std::string("--checkpoint-every 5"), std::string("--keep 2")}) {
        EXPECT_NE(result.out.find("    " + words), std::string::npos) << words << " in: " << result.out;
    }
    EXPECT_FALSE(here.has("c"));
}

TEST(Slurm, RanksFollowThePlansPlacement) {
    const Workplace here;
    here.write(
        "placed.plan.json",
        plan_on("dgx-h100", {{"dp", 16}, {"placement", {8, 0, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15}}}));
    here.write("job.sbatch", here.run({"run", "placed.plan.json", "--slurm"}).out);
    make_program(here.path("srun"), "#!/bin/sh\necho \"$MASTER_ADDR\"\ncat \"$SLURM_HOSTFILE\"\n");
    make_program(here.path("scontrol"), "#!/bin/sh\nprintf 'a\\nb\\n'\n");
    const CommandResult result =
        run_command({"bash", here.path("job.sbatch")},
                    {.environment = {"PATH=" + here.path("") + ":/usr/bin:/bin", "TMPDIR=" + here.path(""),
                                     "SLURM_JOB_NODELIST=x", "SLURM_JOB_ID=1", "SLURM_NTASKS_PER_NODE=8"}});
    expect_done(result);
    EXPECT_EQ(result.out, "b\nb\na\na\nb\na\nb\na\nb\na\nb\na\nb\na\nb\na\nb\n");
    for (const std::string& name : here.names()) EXPECT_FALSE(name.starts_with("tmp.")) << name;
}

TEST(Slurm, RefusesBadInputBeforeItPrints) {
    const Workplace here;
    here.write("small.plan.json", small_plan(2));
    json plan = small_plan(2);
    plan["training"]["precision"] = "tf32";
    here.write("tf32.plan.json", plan);
    const std::vector<std::string> before = here.names();
    const auto refused = [&](std::vector<std::string> options, const std::vector<std::string>& words) {
        SCOPED_TRACE(testing::PrintToString(options));
        std::vector<std::string> command{"run", "small.plan.json", "--slurm"};
        if (options.front().ends_with(".plan.json")) {
            command[1] = options.front();
            options.erase(options.begin());
        }
        command.insert(command.end(), options.begin(), options.end());
        expect_refused(here.run(command), 2, words);
        EXPECT_EQ(here.names(), before);
    };
    refused({"absent.plan.json"}, {"absent.plan.json"});
    refused({"tf32.plan.json"}, {"tf32.plan.json: /training/precision: got tf32; allowed: \"fp32\", \"bf16\""});
    refused({"--record", "absent/r.json"}, {"absent/r.json: --record:", "a file in an existing folder"});
    refused({"--time", "soon"}, {"--time: got soon; allowed: minutes, ", "days-hours"});
    refused({"--time", "1:2:3:4"}, {"--time: got 1:2:3:4; allowed:"});
    refused({"--partition", "a b"}, {"--partition: got a b; allowed: a name as Slurm has it"});
    refused({"--account", "-x"}, {"--account: got -x; allowed: a name"});
    refused({"--account", "a\n#SBATCH --uid=0"}, {"--account"});
    refused({"--ranks-per-node", "3"}, {"--ranks-per-node: got 3; allowed: a divisor of 8", "dgx-h100"});
    refused({"--ranks-per-node", "0"}, {"--ranks-per-node", "0", "1 to "});
    refused({"--cpus-per-task", "0"}, {"--cpus-per-task", "0", "1 to "});
    refused({"--slurm-option", "nodes=4"}, {"--slurm-option: got nodes=4; allowed: anything but nodes; the plan"});
    refused({"--slurm-option", "partit=a"}, {"allowed: anything but partition; say --partition"});
    refused({"--slurm-option", "exclusive=user"}, {"anything but exclusive; say --share-nodes"});
    refused({"--slurm-option", "gres=gpu:4"}, {"gres without gpu"});
    refused({"--slurm-option", "-p=a"}, {"KEY=VALUE with a long option of sbatch without its dashes"});
    refused({"--slurm-option", "qos=a", "--slurm-option", "qos=b"}, {"got qos=b; allowed: qos once"});
    refused({"--slurm-option", "comment=a\nb"}, {"KEY=VALUE"});
    expect_refused(here.run({"run", "small.plan.json", "--submit"}), 2, {"--submit requires --slurm"});
    expect_refused(here.run({"run", "small.plan.json", "--time", "5"}), 2, {"--time requires --slurm"});

    std::filesystem::create_directory(here.path("back\\slash"));
    expect_refused(here.run({"run", "small.plan.json", "--slurm", "--record", "back\\slash/r.json"}), 2,
                   {"back\\slash", "a path without backslashes"});
    here.write("tab\t.plan.json", small_plan(2));
    expect_refused(here.run({"run", "tab\t.plan.json", "--slurm"}), 2, {"a path without control characters"});
}

class SlurmSubmit : public testing::Test {
  protected:
    SlurmSubmit() {
        std::filesystem::create_directory(here_.path("bin"));
        std::filesystem::create_directory(here_.path("out"));
        here_.write("small.plan.json", small_plan(2));
    }
    [[nodiscard]] CommandResult submit(const std::string& sbatch) const {
        if (!sbatch.empty()) make_program(here_.path("bin/sbatch"), "#!/bin/sh\n" + sbatch);
        return here_.run({"run", "small.plan.json", "--slurm", "--submit", "--record", "out/r.json", "--time", "5"},
                         {.environment = {"PATH=" + here_.path("bin")}});
    }
    Workplace here_;
};

TEST_F(SlurmSubmit, PrintsTheJobId) {
    const CommandResult result = submit("echo \"$*\" >args; echo '4711;east'");
    expect_done(result);
    EXPECT_EQ(result.out, "submitted job 4711\n  script  " + here_.path("out/small.sbatch") + "\n  output  " +
                              here_.path("out/small-4711.out") + "\n");
    EXPECT_EQ(here_.read("args"), "--parsable " + here_.path("out/small.sbatch") + "\n");
    const CommandResult printed =
        here_.run({"run", "small.plan.json", "--slurm", "--record", "out/r.json", "--time", "5"});
    EXPECT_EQ(here_.read("out/small.sbatch"), printed.out);
}

TEST_F(SlurmSubmit, NeedsSbatch) {
    expect_refused(submit(""), 2, {"PATH: no sbatch found", "slurm-client"});
    EXPECT_FALSE(here_.has("out/small.sbatch"));
}

TEST_F(SlurmSubmit, FailsInOneLine) {
    expect_refused(submit("echo 'sbatch: error: no such partition' >&2; echo 'sbatch: error: failed' >&2; exit 3"), 1,
                   {"small.sbatch failed with exit code 3: sbatch: error: no such partition; sbatch: error: failed"});
    expect_refused(submit("echo Submitted"), 1, {"printed no job id: Submitted"});
    expect_refused(submit("kill -9 $$"), 1, {"sbatch was ended by signal 9"});
}

}  // namespace
}  // namespace orrery::test
