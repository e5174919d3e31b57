#include "sim/program/durations.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "sim/program/issue_order.h"
#include "tests/unit/program/sample_plans.h"

namespace orrery::program {
namespace {

/// A record of every instruction of the rank; the i-th lasts 2 i + rank + 1 ps.
RankRecord made_up_record(const Program& program, std::int64_t rank) {
    RankRecord record{.rank = rank, .rank_class = program.class_of(rank)};
    const IssueOrder order(program, record.rank_class);
    for (std::int64_t i = 0; i < order.size(); ++i) {
        const Call& entry = order.at(i);
        record.spans.push_back({entry.action, entry.segment, entry.instruction, 0, i, 2 * i + rank + 1});
    }
    return record;
}

std::string refusal_of(const Program& program, const RunRecord& record) {
    try {
        (void)durations_of(program, record, "run.json");
    } catch (const InputError& error) {
        return error.what();
    }
    return "";
}

TEST(Durations, AreTheRanksOwnExceptTheLongestMembersForCommunication) {
    const Program program = samples::make_program({.dp = 2, .pp = 2});
    RunRecord record;
    for (const std::int64_t rank : {3, 1, 0, 2}) record.ranks.push_back(made_up_record(program, rank));
    const Durations durations = durations_of(program, record, "run.json", 2.0);
    bool computes = false, reduces = false, sends = false;
    for (std::int64_t rank = 0; rank < 4; ++rank) {
        const IssueOrder order(program, program.class_of(rank));
        ASSERT_EQ(durations.of_rank(rank).size(), static_cast<std::size_t>(order.size()));
        for (std::int64_t i = 0; i < order.size(); ++i) {
            const Instruction& instruction = order.instruction(i);
            const std::int64_t got = durations.of_rank(rank)[static_cast<std::size_t>(i)];
            if (!instruction.is_communication) {
                EXPECT_EQ(got, 2 * (i + rank + 1));
                computes = true;
            } else if (!is_pipeline(instruction.stream)) {  // between ranks of one class, so at the same list position
                EXPECT_EQ(got, 2 * (i + program.group_of(instruction.communication.axis, rank).back() + 1));
                reduces = true;
            } else {
                EXPECT_GE(got, 2 * (i + rank + 1));
                sends = true;
            }
        }
    }
    EXPECT_TRUE(computes && reduces && sends);
}

TEST(Durations, OfOneRankApplyToItsClass) {
    const Program program = samples::make_program({.dp = 2, .pp = 2});
    RunRecord record{.ranks = {made_up_record(program, 0), made_up_record(program, 2)}};
    const Durations durations = durations_of(program, record, "run.json");
    EXPECT_EQ(durations.of_rank(1), durations.of_rank(0));
    EXPECT_EQ(durations.of_rank(3), durations.of_rank(2));
}

TEST(Durations, MissingOnesAreNamed) {
    const Program program = samples::make_program({.dp = 2, .pp = 2});
    RunRecord record{.ranks = {made_up_record(program, 0)}};
    EXPECT_NE(refusal_of(program, record).find("no rank 2 and 0 ranks of its class, stage 1"), std::string::npos)
        << refusal_of(program, record);
    record.ranks.push_back(made_up_record(program, 2));
    EXPECT_EQ(refusal_of(program, record), "");
    const std::string key = IssueOrder(program, 1).key_at(5);
    record.ranks[1].spans.erase(record.ranks[1].spans.begin() + 5);
    const std::string message = refusal_of(program, record);
    EXPECT_NE(message.find("run.json: rank 2"), std::string::npos) << message;
    EXPECT_NE(message.find("lacks " + key), std::string::npos) << message;
    record.ranks[1].spans.push_back(record.ranks[1].spans[4]);
    EXPECT_NE(refusal_of(program, record).find("twice"), std::string::npos);
}

TEST(Durations, SumsBeyondTheRangeOfTimeAreRefused) {
    const Program program = samples::make_program({.dp = 2, .pp = 2});
    RunRecord record{.ranks = {made_up_record(program, 0), made_up_record(program, 2)}};
    record.ranks[1].spans[3].end_ps = std::int64_t{1} << 60;
    EXPECT_EQ(refusal_of(program, record),
              "run.json: /ranks: got 2.30584e+06 s for all its instructions together; allowed: at most 1e+06 s");
}

}  // namespace
}  // namespace orrery::program
