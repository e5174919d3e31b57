#include "reports/search_text.h"

#include <gtest/gtest.h>

#include <limits>

namespace orrery::reports {
namespace {

TEST(SearchText, Counts) {
    program::SearchCounts counts{
        .considered = 663'471, .bounded = 164'832, .sketched = 509, .simulated = 155, .too_large = 128'221};
    EXPECT_EQ(
        search_counts_text(counts),
        "663,471 plans considered; 164,832 bounded one by one, 128,221 of which do not fit; 509 sketched by short "
        "lowerings, 155 simulated");
    counts.searches = 3;
    EXPECT_EQ(search_counts_text(counts),
              "663,471 plans considered, in 3 searches; 164,832 bounded one by one, 128,221 of which do not fit; "
              "509 sketched by short lowerings, 155 simulated");
}

TEST(SearchText, ProofOfEachObjective) {
    const std::vector<program::PlanResult> results{{.peak_memory_gib = 50, .feasible = true}};
    program::SearchSummary search{.proven_ranks = 1, .tolerance = 0.002};
    EXPECT_EQ(proof_text(results, search), "rank 1 is proven: no other plan considered is faster by more than 0.2%\n");
    search.proven_ranks = 3;
    EXPECT_EQ(proof_text(results, search),
              "ranks 1 to 3 are proven: no other plan considered is faster by more than 0.2%\n");
    search.proven_gap = 0.04;
    EXPECT_EQ(proof_text(results, search),
              "not proven: some plan that was not simulated may be up to 4.0% faster than rank 1\n");
    search.objective = program::Objective::pareto;
    EXPECT_EQ(proof_text(results, search),
              "not proven: within some limit a plan that was not simulated may be up to 4.0% faster\n");
    search.objective = program::Objective::memory;
    EXPECT_EQ(
        proof_text(results, search),
        "rank 1 is proven: no plan considered needs less than 48.00 GiB, and none within that is faster by more than "
        "0.2%\n");
    search.step_limit_s = 18;
    EXPECT_EQ(proof_text(results, search),
              "rank 1 is proven: no plan considered with a step of at most 18.0 s needs less than 48.00 GiB\n");
    search.objective = program::Objective::cost;
    search.figures.usd_per_device_hour = {.value = 2, .as_of = "2026-11", .source = "a test"};
    EXPECT_EQ(proof_text(results, search),
              "not proven: some plan that was not simulated may be cheaper than rank 1, by up to 4.0%\n"
              "2 USD a device-hour (2026-11: a test)\n");
    search.proven_gap = 0;
    search.proven_ranks = 1;
    EXPECT_EQ(proof_text(results, search),
              "rank 1 is proven: no other plan considered with a step of at most 18.0 s is cheaper by more than 0.2%\n"
              "2 USD a device-hour (2026-11: a test)\n");
    search.objective = program::Objective::energy;
    search.figures = {};
    search.step_limit_s = std::numeric_limits<double>::infinity();
    EXPECT_EQ(proof_text(results, search),
              "rank 1 is proven: no other plan considered needs less energy by more than 0.2%\n");
}

TEST(SearchText, NamesWhatWasSearchedAndWhatIsOutside) {
    const program::SearchSummary search{
        .spaces = {{"orrery", {{"tp", "1, 2"}, {"pp", "1"}}, {"schedules gpipe", "excluded: tp=4"}}}};
    const std::string text = proof_text({}, search);
    EXPECT_NE(text.find("\nsearched (orrery): tp 1, 2; pp 1\noutside (orrery): schedules gpipe; excluded: tp=4\n"),
              std::string::npos)
        << text;
}

}  // namespace
}  // namespace orrery::reports
