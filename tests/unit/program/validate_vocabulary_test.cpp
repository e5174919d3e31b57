// Programs whose vocabulary is sharded over the stages, and the rules on them. Each rule is broken in one way.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

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

/// The communications of this kind over the stages, in all bodies.
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

/// The action of a chunk and micro-batch.
Action& pass_of(Program& program, ClassIndex c, ChunkIndex chunk, ActionKind kind, std::int32_t micro_batch) {
    for (Action& action : program.classes[c].actions) {
        if (action.chunk == chunk && action.kind == kind && action.micro_batch == micro_batch) return action;
    }
    throw BugError("no such pass");
}

TEST(ValidateVocabulary, AcceptsOtherImplementationsAndModels) {
    for (const VocabularyParallel kind : kKinds) {
        for (const char* implementation : {"orrery", "megatron-core"}) {
            for (const char* model : {"tiny-gpt", "tiny-llama"}) {
                for (const bool master : {false, true}) {
                    Plan plan = samples::make_plan({.model = model,
                                                    .dp = 2,
                                                    .pp = 2,
                                                    .micro_batches = 3,
                                                    .implementation = implementation,
                                                    .bf16 = master});
                    plan.parallelism.vocabulary_parallel = kind;
                    plan.training.optimizer.clip_norm = 1;
                    plan.model.head_bias = master;
                    EXPECT_EQ(message_of(lower(plan)), "") << name_of(kind) << " " << implementation << " " << model;
                }
            }
        }
    }
}

TEST(ValidateVocabulary, ChunkThatIsNotItsPart) {
    Program program = two_stages();
    program.classes[1].chunks[kOutputChunk].part = ChunkPart::vocabulary_input;
    expect_breaks(program, "counts", "chunk 1 is not its part of the vocabulary");
}

TEST(ValidateVocabulary, LookupIntoAnotherMicroBatchsInput) {
    Program program = two_stages();
    const Action& first = pass_of(program, 0, kInputChunk, ActionKind::forward, 0);
    Action& second = pass_of(program, 0, kInputChunk, ActionKind::forward, 1);
    ASSERT_NE(first.forward_boundary, second.forward_boundary);
    second.forward_boundary = first.forward_boundary;
    expect_breaks(program, "buffers", "which micro-batch 0 in chunk 0 holds");
}

TEST(ValidateVocabulary, OutputOfAnotherMicroBatch) {
    Program program = two_stages();
    Action& pass = pass_of(program, 1, kOutputChunk, ActionKind::forward, 1);
    pass.forward_boundary = 1 - pass.forward_boundary;
    expect_breaks(program, "buffers", "forward boundary");
}

TEST(ValidateVocabulary, PartThatIsCountedTwice) {
    Program program = two_stages();
    RankClass& ranks = program.classes[1];
    const auto found = std::find_if(ranks.parameters.begin(), ranks.parameters.end(),
                                    [](const Parameter& one) { return one.chunk == kOutputChunk; });
    ASSERT_NE(found, ranks.parameters.end());
    found->decl.over_stages = false;
    expect_breaks(program, "parameters", "its parameters make");
}

TEST(ValidateVocabulary, MemoryThatNobodyUses) {
    Program program = two_stages();
    program.classes[0].memory.activations_arena += 64;
    expect_breaks(program, "footprint", "activations_arena");
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

/// With one barrier no computation of a rank in S waits for the other ranks' statistics: loss and correction run on the
/// side stream.
TEST(LowerVocabulary, CorrectionsRunOnTheSideStream) {
    const Program program = two_stages();
    int corrections = 0;
    for (const Body& body : program.bodies) {
        for (const Instruction& one : body.instructions) {
            const auto first = body.operators.begin() + one.first_operator.value();
            const bool corrects = std::any_of(first, first + one.operator_count, [](const models::Operator& op) {
                return op.kind == models::OpKind::cross_entropy_correct;
            });
            if (corrects) {
                ++corrections;
                EXPECT_EQ(one.stream, Stream::side) << one.name;
            }
            if (one.is_communication || one.stream != Stream::compute || body.phase != Phase::forward) continue;
            for (const InstructionIndex before : one.after) {
                const Instruction& awaited = body.instructions[before];
                EXPECT_NE(awaited.communication.kind, CommKind::all_gather) << one.name;
            }
        }
    }
    EXPECT_EQ(corrections, 2);  // in S of the last stage, and in S of the others
}

/// The first stage's gradient of a lookup is sent right after its backward, not in the round that distributes it.
TEST(LowerVocabulary, LookupsDoNotDelayTheStages) {
    const Program program = two_stages();
    const RankClass& first = program.classes.front();
    for (const Action& action : first.actions) {
        const bool passes = action.kind == ActionKind::forward || action.kind == ActionKind::backward;
        if (!passes || action.chunk != kInputChunk) continue;
        for (const Segment& segment : first.segment_lists[action.segments]) {
            const Body& body = program.bodies[segment.body];
            for (const Instruction& one : body.instructions) {
                if (!one.is_communication) continue;
                for (const InstructionIndex before : one.after) {
                    EXPECT_NE(body.instructions[before].stream, Stream::compute) << one.name;
                }
            }
        }
    }
}

TEST(ValidateVocabulary, RootThatDiffersBetweenRanks) {
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
    expect_breaks(program, "indices", "has root 2 in a group of 2");
}

TEST(ValidateVocabulary, StatisticsOfHalfTheTokens) {
    Program program = two_stages();
    for (Communication* one : over_stages(program, CommKind::all_gather)) one->elements /= 2;
    expect_breaks(program, "bytes", "all_gather on the axis pipeline");
}

/// The first stage holds as many micro-batches as with 1F1B plus those that the barriers add, or half as many more.
TEST(VocabularyOrders, MicroBatchesInFlight) {
    const auto in_flight = [](VocabularyParallel kind) {
        std::int64_t alive = 0, most = 0;
        const auto orders = vocabulary_orders(kind, 8, 40);
        for (const ComputeTask& task : orders.front()) {
            if (task.chunk != 0) continue;
            alive += task.kind == ComputeTask::Kind::forward ? 1 : -1;
            most = std::max(most, alive);
        }
        return most;
    };
    EXPECT_EQ(in_flight(VocabularyParallel::one_barrier), 9);
    EXPECT_EQ(in_flight(VocabularyParallel::two_barriers), 10);
    EXPECT_EQ(in_flight(VocabularyParallel::interlaced), 12);
}

/// The last pass over the embedding releases its gradients, to which a tied head adds its own.
TEST(VocabularyOrders, LookupsEndAfterTheHead) {
    for (const VocabularyParallel kind : {VocabularyParallel::two_barriers, VocabularyParallel::one_barrier}) {
        for (const std::int64_t ranks : {2, 3, 4, 7}) {
            for (const std::int64_t micro_batches : {1, 2, 3, 8, 20}) {
                const auto orders = vocabulary_orders(kind, ranks, micro_batches);
                for (const std::vector<ComputeTask>& order : orders) {
                    const auto last_of = [&](ChunkIndex chunk) {
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

/// End of the last rank if a forward of the blocks takes 1, a backward 2, and passes over the vocabulary 0.
std::int64_t end_of(const std::vector<std::vector<ComputeTask>>& orders, VocabularyParallel kind) {
    using Kind = ComputeTask::Kind;
    using Key = std::tuple<std::size_t, Kind, ChunkIndex, std::int32_t>;  // rank, kind, chunk, micro-batch
    const std::size_t p = orders.size();
    std::map<Key, std::int64_t> ends;
    std::vector<std::size_t> next(p, 0);
    std::vector<std::int64_t> now(p, 0);
    // The end of a task on one rank, or the latest end over all ranks; empty: not done yet.
    const auto end = [&](std::size_t r, Kind what, ChunkIndex chunk, std::int32_t i) -> std::optional<std::int64_t> {
        const auto found = ends.find({r, what, chunk, i});
        return found == ends.end() ? std::nullopt : std::optional(found->second);
    };
    const auto everywhere = [&](Kind what, ChunkIndex chunk, std::int32_t i) -> std::optional<std::int64_t> {
        std::int64_t latest = 0;
        for (std::size_t r = 0; r < p; ++r) {
            const auto one = end(r, what, chunk, i);
            if (!one) return std::nullopt;
            latest = std::max(latest, *one);
        }
        return latest;
    };
    const auto start = [&](std::size_t r, const ComputeTask& task) -> std::optional<std::int64_t> {
        const std::int32_t i = task.micro_batch;
        const bool forward = task.kind == Kind::forward;
        if (task.chunk == kInputChunk) return forward ? 0 : end(0, Kind::backward, 0, i);
        if (task.chunk == kOutputChunk) {
            return forward ? end(p - 1, Kind::forward, 0, i) : everywhere(Kind::forward, kOutputChunk, i);
        }
        if (forward) return r == 0 ? everywhere(Kind::forward, kInputChunk, i) : end(r - 1, Kind::forward, 0, i);
        if (r + 1 < p) return end(r + 1, Kind::backward, 0, i);
        const bool two = kind == VocabularyParallel::two_barriers;
        return everywhere(two ? Kind::backward : Kind::forward, kOutputChunk, i);
    };
    for (bool moved = true; moved;) {
        moved = false;
        for (std::size_t r = 0; r < p; ++r) {
            for (; next[r] < orders[r].size(); ++next[r], moved = true) {
                const ComputeTask& task = orders[r][next[r]];
                const auto ready = start(r, task);
                if (!ready) break;
                now[r] = std::max(now[r], *ready);
                if (task.chunk == 0) now[r] += task.kind == Kind::forward ? 1 : 2;
                ends[{r, task.kind, task.chunk, task.micro_batch}] = now[r];
            }
        }
    }
    for (std::size_t r = 0; r < p; ++r) EXPECT_EQ(next[r], orders[r].size()) << "rank " << r << " is stuck";
    return *std::max_element(now.begin(), now.end());
}

/// Each further micro-batch adds only its forward and backward to every rank: there is no waiting in between.
TEST(VocabularyOrders, RanksComputeWithoutGaps) {
    for (const VocabularyParallel kind : kKinds) {
        for (const std::int64_t ranks : {2, 4, 7, 8, 16}) {
            const std::int64_t few = 3 * ranks, many = few + 40;
            const std::int64_t growth =
                end_of(vocabulary_orders(kind, ranks, many), kind) - end_of(vocabulary_orders(kind, ranks, few), kind);
            EXPECT_LE(growth, 3 * (many - few) + 3) << name_of(kind) << " over " << ranks;
        }
    }
}

}  // namespace
}  // namespace orrery::program
