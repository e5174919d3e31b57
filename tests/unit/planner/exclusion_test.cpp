// The grammar of exclusions, and what they leave of the candidates.
#include "sim/planner/exclusion.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "core/error.h"
#include "sim/planner/search_space.h"
#include "tests/unit/planner/planner_cases.h"

namespace orrery::sim {
namespace {

std::string problem_of(const std::string& text) {
    try {
        (void)exclusion_named(text, "--exclude");
    } catch (const InputError& error) {
        return error.what();
    }
    return "";
}

TEST(Exclusion, ParsesFieldsValuesAndBareNames) {
    EXPECT_EQ(exclusion_named("tp=16", "--exclude"), (Exclusion{PlanField::tp, 16}));
    EXPECT_EQ(exclusion_named("micro-batch=4", "--exclude"), (Exclusion{PlanField::micro_batch, 4}));
    EXPECT_EQ(exclusion_named("schedule=zb-v", "--exclude"),
              (Exclusion{PlanField::schedule, static_cast<std::int64_t>(program::Schedule::zb_v)}));
    EXPECT_EQ(exclusion_named("zb-v", "--exclude"), exclusion_named("schedule=zb-v", "--exclude"));
    EXPECT_EQ(exclusion_named("zero3", "--exclude"), exclusion_named("data=zero3", "--exclude"));
    EXPECT_EQ(exclusion_named("full", "--exclude"), exclusion_named("recompute=full", "--exclude"));
    for (const char* text : {"stack=nemo", "dp=8", "cp=2", "ep=4", "pp=3", "sp=yes", "data=ddp", "shards=8",
                             "gathered=kept", "etp=2", "vocabulary=vocab-1", "offload=optimizer",
                             "order=tp,cp,ep,pp,dp", "schedule=1f1b", "VPP=2", "stages=uneven", "recompute=none"}) {
        EXPECT_EQ(text_of(exclusion_named(text, "--exclude")), text);
    }
}

TEST(Exclusion, RefusesWhatItDoesNotKnowAndSaysWhatIsAllowed) {
    const auto expect = [](const std::string& text, const std::string& part) {
        const std::string problem = problem_of(text);
        EXPECT_NE(problem.find("command line: --exclude: got " + text + ";"), std::string::npos) << problem;
        EXPECT_NE(problem.find(part), std::string::npos) << problem;
    };
    expect("tensor=16", "stack, dp, tp, cp, ep, etp, pp, sp, data");
    expect("schedule=zbv", "schedule= one of naive, gpipe, 1f1b");
    expect("zero4", "ddp, zero1, zero2, zero3");
    expect("sp=true", "sp= one of no, yes");
    for (const char* text : {"tp=", "tp=0", "tp=-2", "tp=2x", "tp=2.0", "tp=99999999999", "tp==2", "tp= 2"}) {
        expect(text, "tp= a whole number from 1");
    }
    expect("", "FIELD=VALUE");
    expect("=2", "one of the fields");
}

/// The plans with a property that the request's exclusion names are gone, and no others are.
template <typename Has>
void expect_left(const PlanRequest& request, const std::string& exclusion, const Has& has) {
    PlanRequest excluding = request;
    excluding.excluded = {exclusion_named(exclusion, "--exclude")};
    std::set<Choice> expected, left;
    std::size_t gone = 0;
    for (const Choice& choice : choices_of(list_candidates(request))) {
        if (has(choice)) {
            ++gone;
        } else {
            expected.insert(choice);
        }
    }
    for (const Choice& choice : choices_of(list_candidates(excluding))) left.insert(choice);
    EXPECT_GT(gone, 0U) << exclusion;
    EXPECT_FALSE(left.empty()) << exclusion;
    EXPECT_TRUE(left == expected) << exclusion << ": " << left.size() << " are left of " << expected.size();
}

TEST(Exclusion, LeavesExactlyTheOtherCandidates) {
    const PlanRequest dense = request_for("llama3-8b", 16, 32, 32'768);
    expect_left(dense, "tp=2", [](const Choice& c) { return c.tp == 2; });
    expect_left(dense, "dp=4", [](const Choice& c) { return c.dp == 4; });
    expect_left(dense, "pp=1", [](const Choice& c) { return c.pp == 1; });
    expect_left(dense, "cp=1", [](const Choice& c) { return c.cp == 1; });
    expect_left(dense, "sp=yes", [](const Choice& c) { return c.sequence_parallel; });
    expect_left(dense, "zero3",
                [](const Choice& c) { return c.sharding.data_parallel == program::DataParallel::zero3; });
    expect_left(dense, "gathered=kept", [](const Choice& c) {
        return c.sharding.data_parallel == program::DataParallel::zero3 && !c.sharding.reshards;
    });
    expect_left(dense, "order=tp,cp,ep,pp,dp", [](const Choice& c) { return c.sharding.pp_before_dp; });
    // With one stage no schedule is shown, and none is excluded.
    expect_left(dense, "1f1b",
                [](const Choice& c) { return c.pp > 1 && c.schedule == program::Schedule::one_f_one_b; });
    expect_left(dense, "VPP=2", [](const Choice& c) { return c.chunks == 2; });
    expect_left(dense, "full", [](const Choice& c) { return c.recompute == program::Recompute::full; });
    expect_left(dense, "none", [](const Choice& c) { return c.recompute == program::Recompute::none; });
    expect_left(dense, "micro-batch=1", [](const Choice& c) { return c.micro_batch == 1; });
    expect_left(dense, "stages=uneven", [&](const Choice& c) {
        // Even stages have as many blocks, or the first ones one more.
        const std::vector<std::int64_t> stages = stage_layers_of(dense, c);
        return !std::is_sorted(stages.rbegin(), stages.rend()) || stages.front() > stages.back() + 1;
    });
    PlanRequest experts = request_for("mixtral-8x7b", 16, 8, 4096);
    expect_left(experts, "ep=8", [](const Choice& c) { return c.ep == 8; });
    allow_full_space(experts);
    expect_left(experts, "etp=2", [](const Choice& c) { return c.etp == 2; });
    expect_left(experts, "vocabulary=vocab-1",
                [](const Choice& c) { return c.vocabulary == program::VocabularyParallel::two_barriers; });
    expect_left(experts, "offload=optimizer", [](const Choice& c) { return c.sharding.offload == Offload::optimizer; });
    expect_left(experts, "offload=activations", [](const Choice& c) { return c.offload_layers != 0; });
}

TEST(Exclusion, NothingLeftIsAnErrorThatNamesTheExclusions) {
    PlanRequest request = plain(request_for("gpt2", 1, 8, 128));
    request.excluded = {exclusion_named("tp=1", "--exclude")};
    try {
        (void)list_candidates(request);
        FAIL() << "no error";
    } catch (const InputError& error) {
        EXPECT_NE(std::string(error.what()).find("got tp=1"), std::string::npos) << error.what();
    }
}

TEST(SearchSpace, ListsTheValuesOfTheCandidates) {
    PlanRequest request = request_for("llama3-8b", 16, 32, 8192);
    request.excluded = {exclusion_named("tp=2", "--exclude")};
    const program::SearchSpace space = space_of(request, list_candidates(request));
    const auto values = [&](const std::string& name) {
        const auto found = std::find_if(space.searched.begin(), space.searched.end(),
                                        [&](const auto& choice) { return choice.name == name; });
        return found == space.searched.end() ? "" : found->values;
    };
    EXPECT_EQ(space.implementation, request.implementation.name);
    EXPECT_EQ(values("tp"), "1, 4, 8, 16");
    EXPECT_EQ(values("pp"), "1, 2, 4, 8, 16");
    EXPECT_EQ(values("ep"), "");
    EXPECT_EQ(values("sp"), "no, yes");
    EXPECT_NE(values("recompute").find("full where needed to fit"), std::string::npos);
    const auto has = [&](const std::string& text) {
        return std::find(space.outside.begin(), space.outside.end(), text) != space.outside.end();
    };
    EXPECT_TRUE(has("excluded: tp=2"));
}

}  // namespace
}  // namespace orrery::sim
