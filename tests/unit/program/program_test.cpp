#include "sim/program/program.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "core/error.h"
#include "tests/unit/program/sample_plans.h"

namespace orrery::program {
namespace {

using samples::make_plan;
using samples::make_program;

using Ranks = std::vector<std::int64_t>;

/// No bodies and classes: the mesh alone.
Program mesh(std::int64_t dp, std::int64_t tp, std::int64_t pp, bool tied = false) {
    Program program;
    program.plan = std::make_shared<const Plan>(make_plan({.dp = dp, .tp = tp, .pp = pp, .tied = tied}));
    return program;
}

template <typename Kind>
void expect_distinct_names(int count) {
    std::set<std::string_view> names;
    for (int i = 0; i < count; ++i) names.insert(name_of(static_cast<Kind>(i)));
    EXPECT_EQ(names.size(), static_cast<std::size_t>(count));
    EXPECT_FALSE(names.contains("?"));
}

TEST(ProgramNames, AreDistinct) {
    expect_distinct_names<Stream>(kStreamCount);
    expect_distinct_names<GroupAxis>(5);
    expect_distinct_names<CommKind>(5);
    expect_distinct_names<Phase>(5);
    expect_distinct_names<ActionKind>(8);
    EXPECT_EQ(name_of(Stream::pp_send_backward), "pp_send_backward");
    EXPECT_EQ(name_of(CommKind::reduce_scatter), "reduce_scatter");
}

TEST(ProgramMesh, TensorParallelRanksAreNeighbours) {
    const Program program = mesh(3, 2, 4);
    EXPECT_EQ(program.world_size(), 24);
    // rank = (pp * 3 + dp) * 2 + tp
    const MeshCoordinates at = program.coordinates(17);
    EXPECT_EQ(at.tp, 1);
    EXPECT_EQ(at.dp, 2);
    EXPECT_EQ(at.pp, 2);
    EXPECT_EQ(program.class_of(17), 2);
    for (std::int64_t rank = 0; rank < 24; ++rank) EXPECT_EQ(program.rank_at(program.coordinates(rank)), rank);
}

TEST(ProgramMesh, RefusesWhatIsOutsideIt) {
    const Program program = mesh(3, 2, 4);
    EXPECT_THROW((void)program.coordinates(24), BugError);
    EXPECT_THROW((void)program.coordinates(-1), BugError);
    EXPECT_THROW((void)program.rank_at({.tp = 2, .dp = 0, .pp = 0}), BugError);
    EXPECT_THROW((void)program.rank_at({.tp = 0, .dp = 0, .pp = -1}), BugError);
}

TEST(ProgramGroups, TensorAndDataParallel) {
    const Program program = mesh(3, 2, 4);
    EXPECT_EQ(program.group_of(GroupAxis::tp, 17), (Ranks{16, 17}));
    EXPECT_EQ(program.group_of(GroupAxis::dp, 17), (Ranks{13, 15, 17}));
    EXPECT_EQ(program.group_of(GroupAxis::dp, 0), (Ranks{0, 2, 4}));
    EXPECT_THROW((void)program.group_of(GroupAxis::pp_forward, 0), BugError);
}

TEST(ProgramGroups, TiedEmbeddingJoinsFirstAndLastStage) {
    const Program tied = mesh(3, 2, 4, true);
    EXPECT_EQ(tied.group_of(GroupAxis::embedding, 3), (Ranks{3, 21}));
    EXPECT_EQ(tied.group_of(GroupAxis::embedding, 21), (Ranks{3, 21}));
    EXPECT_EQ(tied.group_of(GroupAxis::embedding, 9), Ranks{});  // a stage between
    EXPECT_EQ(mesh(3, 2, 4).group_of(GroupAxis::embedding, 3), Ranks{});
    EXPECT_EQ(mesh(3, 2, 1, true).group_of(GroupAxis::embedding, 3), Ranks{});
}

TEST(ProgramPeers, AreInTheNeighbouringStage) {
    const Program program = mesh(3, 2, 4);
    EXPECT_EQ(program.peer_of(Stream::pp_send_forward, 3), 9);
    EXPECT_EQ(program.peer_of(Stream::pp_recv_backward, 3), 9);
    EXPECT_EQ(program.peer_of(Stream::pp_recv_forward, 9), 3);
    EXPECT_EQ(program.peer_of(Stream::pp_send_backward, 9), 3);
    EXPECT_THROW((void)program.peer_of(Stream::pp_send_backward, 3), BugError);
    EXPECT_THROW((void)program.peer_of(Stream::pp_recv_forward, 3), BugError);
    EXPECT_THROW((void)program.peer_of(Stream::pp_send_forward, 21), BugError);
    EXPECT_THROW((void)program.peer_of(Stream::pp_recv_backward, 21), BugError);
    EXPECT_THROW((void)program.peer_of(Stream::dp, 3), BugError);
}

std::map<std::pair<Stream, CommKind>, StreamVolume> volume_map(const Program& program, std::int32_t rank_class) {
    std::map<std::pair<Stream, CommKind>, StreamVolume> result;
    for (const StreamVolume& volume : volumes(program, rank_class)) result[{volume.stream, volume.kind}] = volume;
    return result;
}

TEST(ProgramVolumes, NothingOnOneRank) {
    EXPECT_TRUE(volumes(make_program({}), 0).empty());
}

TEST(ProgramVolumes, DataParallelRing) {
    const Program program = make_program({.dp = 4});
    const auto volume = volume_map(program, 0).at({Stream::dp, CommKind::all_reduce});
    const std::int64_t gradient_bytes = program.classes[0].parameter_elements * 4;
    EXPECT_EQ(volume.operations, static_cast<std::int64_t>(program.classes[0].buckets.size()));
    EXPECT_EQ(volume.message_bytes, gradient_bytes);
    EXPECT_EQ(volume.wire_bytes, gradient_bytes * 2 * 3 / 4);
}

TEST(ProgramVolumes, SequenceParallelPipeline) {
    // tiny-gpt: h = 64; M = 16 positions * 2 sequences * 64 * 4 bytes; 2 blocks a stage, 4 micro-batches, tp 2.
    const Program program = make_program({.tp = 2, .pp = 2, .sequence_parallel = true, .micro_batches = 4});
    const std::int64_t message = 16 * 2 * 64 * 4;
    const auto first = volume_map(program, 0);
    // Stage 0: 6 gathers a block and 1 of the embedding; a ring of 2 sends half of each.
    EXPECT_EQ(first.at({Stream::tp, CommKind::all_gather}).operations, 4 * (6 * 2 + 1));
    EXPECT_EQ(first.at({Stream::tp, CommKind::all_gather}).message_bytes, 4 * (6 * 2 + 1) * message);
    EXPECT_EQ(first.at({Stream::tp, CommKind::all_gather}).wire_bytes, 4 * (6 * 2 + 1) * message / 2);
    EXPECT_EQ(first.at({Stream::tp, CommKind::reduce_scatter}).wire_bytes, 4 * (4 * 2 + 1) * message / 2);
    EXPECT_EQ(first.at({Stream::pp_send_forward, CommKind::send}).wire_bytes, 4 * message / 2);
    EXPECT_EQ(first.at({Stream::pp_recv_backward, CommKind::recv}).message_bytes, 4 * message / 2);
    EXPECT_EQ(first.at({Stream::pp_recv_backward, CommKind::recv}).wire_bytes, 0);
    EXPECT_FALSE(first.contains({Stream::pp_recv_forward, CommKind::recv}));
    EXPECT_FALSE(first.contains({Stream::dp, CommKind::all_reduce}));
    const auto last = volume_map(program, 1);
    EXPECT_EQ(last.at({Stream::tp, CommKind::all_gather}).operations, 4 * (6 * 2 + 2));
    EXPECT_EQ(last.at({Stream::pp_send_backward, CommKind::send}).wire_bytes, 4 * message / 2);
}

TEST(ProgramVolumes, UnevenRingIsTheRoundedAverage) {
    Program program = make_program({.dp = 3});
    // 2 * (3 - 1) / 3 of 100 bytes is 133.33, of 104 bytes 138.67.
    for (const auto& [elements, wire] : {std::pair<std::int64_t, std::int64_t>{25, 133}, {26, 139}}) {
        std::int64_t operations = 0;
        for (Body& body : program.bodies) {
            for (Instruction& instruction : body.instructions) {
                if (instruction.is_communication) instruction.communication.elements = elements;
            }
        }
        const auto volume = volume_map(program, 0).at({Stream::dp, CommKind::all_reduce});
        operations = volume.operations;
        EXPECT_GT(operations, 1);
        EXPECT_EQ(volume.wire_bytes, operations * wire);
    }
}

}  // namespace
}  // namespace orrery::program
