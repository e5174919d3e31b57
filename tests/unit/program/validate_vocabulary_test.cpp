// Programs whose vocabulary is cut over the stages, and the rules on them. Each is broken in one way.
#include <gtest/gtest.h>

#include "sim/program/vocabulary.h"
#include "tests/unit/program/broken_programs.h"

namespace orrery::program {
namespace {

using samples::expect_breaks;
using samples::message_of;

constexpr VocabularyParallel kKinds[] = {VocabularyParallel::two_barriers, VocabularyParallel::one_barrier,
                                         VocabularyParallel::interlaced};

Program program_of(VocabularyParallel kind, samples::Sample sample) {
    Plan plan = samples::make_plan(sample);
    plan.parallelism.vocabulary_parallel = kind;
    return lower(plan);
}
Program two_stages() {
    return program_of(VocabularyParallel::one_barrier, {.pp = 2});
}

/// The communications over the stages, of all bodies.
std::vector<Communication*> over_stages(Program& program, CommKind kind) {
    std::vector<Communication*> found;
    for (Body& body : program.bodies) {
        for (Instruction& instruction : body.instructions) {
            Communication& one = instruction.communication;
            if (instruction.is_communication && one.axis == GroupAxis::pipeline && one.kind == kind) {
                found.push_back(&one);
            }
        }
    }
    return found;
}

TEST(ValidateVocabulary, AcceptsEveryKind) {
    for (const VocabularyParallel kind : kKinds) {
        for (const bool tied : {false, true}) {
            for (const std::int64_t pp : {2, 3, 4}) {
                for (const std::int64_t micro_batches : {1, 2, 3, 8}) {
                    const Program program = program_of(kind, {.dp = 2,
                                                              .pp = pp,
                                                              .micro_batches = micro_batches,
                                                              .tied = tied,
                                                              .bf16 = tied,
                                                              .data_parallel = DataParallel::zero1});
                    EXPECT_EQ(message_of(program), "") << name_of(kind) << " " << pp << " " << micro_batches;
                }
            }
        }
    }
}

TEST(ValidateVocabulary, RootThatTheOthersDoNotTake) {
    Program program = two_stages();
    const std::vector<Communication*> broadcasts = over_stages(program, CommKind::broadcast);
    ASSERT_EQ(broadcasts.size(), 4U);  // of the output and of the input's gradient, by the root and by the others
    const auto from_last = [](const Communication* one) { return one->root == 1; };
    ASSERT_EQ(std::count_if(broadcasts.begin(), broadcasts.end(), from_last), 2);
    (*std::find_if(broadcasts.begin(), broadcasts.end(), from_last))->root = 0;
    expect_breaks(program, "collective order", " with root 1");
}

TEST(ValidateVocabulary, RootThatIsNoMember) {
    Program program = two_stages();
    for (Communication* one : over_stages(program, CommKind::reduce)) one->root = 2;
    expect_breaks(program, "indices", "has its root at place 2");
}

TEST(ValidateVocabulary, StatisticsOfHalfTheTokens) {
    Program program = two_stages();
    for (Communication* one : over_stages(program, CommKind::all_gather)) one->elements /= 2;
    expect_breaks(program, "bytes", "all_gather on the axis pipeline");
}

/// The last pass over the embedding lets go of its gradients, to which the head's are added where it is tied.
TEST(VocabularyOrders, LookupsEndAfterTheHead) {
    for (const VocabularyParallel kind : {VocabularyParallel::two_barriers, VocabularyParallel::one_barrier}) {
        for (const std::int64_t ranks : {2, 3, 4, 7}) {
            for (const std::int64_t micro_batches : {1, 2, 3, 8, 20}) {
                const auto orders = vocabulary_orders(kind, ranks, micro_batches);
                for (const std::vector<ComputeTask>& order : orders) {
                    const auto last_of = [&](std::int32_t chunk) {
                        const auto found = std::find_if(order.rbegin(), order.rend(), [&](const ComputeTask& task) {
                            return task.chunk == chunk && task.kind == ComputeTask::Kind::backward;
                        });
                        return order.rend() - found;
                    };
                    EXPECT_LT(last_of(kOutputChunk), last_of(kInputChunk)) << ranks << " " << micro_batches;
                }
            }
        }
    }
}

}  // namespace
}  // namespace orrery::program
