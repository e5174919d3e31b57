#include "sim/published/run_groups.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/unit/published/sample_rows.h"

namespace orrery::published {
namespace {

PublishedRun run_of(const nlohmann::json& row) {
    return published_rows_from_json_text(nlohmann::json::array({row}).dump(), "rows.json").front().run;
}

TEST(RunGroups, DifferByShapeAndSizeButNotByKernels) {
    const nlohmann::json row = test::sample_row();
    const std::string group = group_of(run_of(row));
    nlohmann::json same = row;
    same["parallel"]["data_parallel"] = "zero1";
    same["flash_attention"] = true;
    same["precision"] = "bf16";
    same["id"] = "another";
    EXPECT_EQ(group_of(run_of(same)), group);
    EXPECT_EQ(fold_of(run_of(same)), fold_of(run_of(row)));
    std::set<std::string> groups{group};
    const auto changed = [&](const char* pointer, const nlohmann::json& value) {
        nlohmann::json other = row;
        other[nlohmann::json::json_pointer(pointer)] = value;
        return groups.insert(group_of(run_of(other))).second;
    };
    EXPECT_TRUE(changed("/hardware/num_gpus", 16));
    EXPECT_TRUE(changed("/hardware/gpu", "a100-sxm-40gb"));
    EXPECT_TRUE(changed("/model/layers", 16));
    EXPECT_TRUE(changed("/model/seq_len", 2048));
    EXPECT_TRUE(changed("/parallel/tp", 4));
    EXPECT_TRUE(changed("/batch/micro_batch_seqs", 1));
    EXPECT_TRUE(changed("/recompute", "full"));
    EXPECT_TRUE(changed("/source/title", "Another team 2022"));
}

TEST(RunGroups, TitlesOfOneTeamHaveOneFamily) {
    EXPECT_EQ(source_family("BigScience BLOOM-176B production run"),
              source_family("BigScience 176B chronicles-prequel (A100 topology search)"));
    EXPECT_EQ(source_family("Hugging Face Ultra-Scale Playbook benchmark grid (nanotron)"),
              source_family("nanotron scaling_benchmarks.py TP sweep"));
    EXPECT_EQ(source_family("A paper"), "A paper");
}

TEST(RunGroups, UseAllFiveFolds) {
    std::set<std::uint32_t> folds;
    for (int gpus = 8; gpus < 8 * 64; gpus += 8) {
        nlohmann::json row = test::sample_row();
        row["hardware"]["num_gpus"] = gpus;
        folds.insert(fold_of(run_of(row)));
    }
    EXPECT_EQ(folds, (std::set<std::uint32_t>{0, 1, 2, 3, 4}));
}

}  // namespace
}  // namespace orrery::published
