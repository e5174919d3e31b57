#include "sim/program/program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "core/error.h"
#include "tests/unit/program/sample_plans.h"

namespace orrery::program {
namespace {

using samples::make_plan;
using samples::make_program;

using Ranks = std::vector<std::int64_t>;

/// A program with only a mesh, without bodies and classes.
Program mesh(std::int64_t dp, std::int64_t tp, std::int64_t pp, bool tied = false) {
    Program program;
    program.plan = std::make_shared<const Plan>(make_plan({.dp = dp, .tp = tp, .pp = pp, .tied = tied}));
    program.mesh = std::make_shared<const Mesh>(*program.plan);
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
    expect_distinct_names<GroupAxis>(kAxisCount);
    expect_distinct_names<CommKind>(11);
    expect_distinct_names<Phase>(12);
    expect_distinct_names<ActionKind>(11);
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
    EXPECT_EQ(program.class_of(17), ClassIndex{2});
    for (std::int64_t rank = 0; rank < 24; ++rank) EXPECT_EQ(program.mesh->rank_at(program.coordinates(rank)), rank);
}

TEST(ProgramMesh, RefusesRanksOutsideIt) {
    const Program program = mesh(3, 2, 4);
    EXPECT_THROW((void)program.coordinates(24), BugError);
    EXPECT_THROW((void)program.coordinates(-1), BugError);
    EXPECT_THROW((void)program.mesh->rank_at({.tp = 2, .dp = 0, .pp = 0}), BugError);
    EXPECT_THROW((void)program.mesh->rank_at({.tp = 0, .dp = 0, .pp = -1}), BugError);
}

TEST(ProgramGroups, TensorAndDataParallel) {
    const Program program = mesh(3, 2, 4);
    EXPECT_EQ(program.group_of(GroupAxis::tp, 17), (Ranks{16, 17}));
    EXPECT_EQ(program.group_of(GroupAxis::dp, 17), (Ranks{13, 15, 17}));
    EXPECT_EQ(program.group_of(GroupAxis::dp, 0), (Ranks{0, 2, 4}));
    EXPECT_EQ(program.group_of(GroupAxis::down_forward, 0), (Ranks{0, 6}));  // the sender, the receiver
    EXPECT_EQ(program.group_of(GroupAxis::down_backward, 6), (Ranks{6, 0}));
    EXPECT_EQ(program.group_of(GroupAxis::down_forward, 18), Ranks{});  // the last stage has no next stage
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

Plan wide_plan(std::array<MeshAxis, kMeshAxes> order) {
    Plan plan = make_plan({});
    plan.model = models::load_model("mixtral-8x7b");
    plan.parallelism.tp = 2;
    plan.parallelism.cp = 2;
    plan.parallelism.dp = 4;
    plan.parallelism.pp = 2;
    plan.parallelism.ep = 4;
    plan.parallelism.etp = 1;
    plan.parallelism.order = order;
    return plan;
}

/// Every order of the axes.
std::vector<std::array<MeshAxis, kMeshAxes>> orders() {
    std::array<MeshAxis, kMeshAxes> order{MeshAxis::tp, MeshAxis::cp, MeshAxis::ep, MeshAxis::dp, MeshAxis::pp};
    std::vector<std::array<MeshAxis, kMeshAxes>> result;
    do {
        result.push_back(order);
    } while (std::next_permutation(order.begin(), order.end()));
    return result;
}

TEST(ProgramMesh, TheDefaultOrderIsMegatrons) {
    const Mesh mesh(wide_plan({MeshAxis::tp, MeshAxis::cp, MeshAxis::ep, MeshAxis::dp, MeshAxis::pp}));
    EXPECT_EQ(mesh.group_of(GroupAxis::tp, 0), (Ranks{0, 1}));
    EXPECT_EQ(mesh.group_of(GroupAxis::cp, 0), (Ranks{0, 2}));
    EXPECT_EQ(mesh.group_of(GroupAxis::dp, 0), (Ranks{0, 2, 4, 6, 8, 10, 12, 14}));  // dp and cp together
    EXPECT_EQ(mesh.group_of(GroupAxis::ep, 0), (Ranks{0, 1, 2, 3}));                 // etp is 1: ep is fastest
    EXPECT_EQ(mesh.group_of(GroupAxis::edp, 0), (Ranks{0, 4, 8, 12}));
    EXPECT_EQ(mesh.group_of(GroupAxis::down_forward, 5), (Ranks{5, 21}));
    EXPECT_EQ(mesh.group_of(GroupAxis::model, 3), (Ranks{2, 3, 18, 19}));
}

TEST(ProgramMesh, InEveryOrderGroupsPartitionTheRanksAndCoordinatesAreABijection) {
    int consistent = 0;
    for (const auto& order : orders()) {
        const Plan plan = wide_plan(order);
        if (!mesh_problem(plan.parallelism).empty()) continue;
        ++consistent;
        const Mesh mesh(plan);
        for (std::int64_t rank = 0; rank < mesh.world_size(); ++rank) {
            ASSERT_EQ(mesh.rank_at(mesh.coordinates(rank)), rank);
            EXPECT_EQ(mesh.coordinates(rank).pp, mesh.expert_coordinates(rank).pp);
        }
        for (const GroupAxis axis : {GroupAxis::tp, GroupAxis::cp, GroupAxis::ep, GroupAxis::etp, GroupAxis::dp,
                                     GroupAxis::edp, GroupAxis::model, GroupAxis::pipeline}) {
            for (std::int64_t rank = 0; rank < mesh.world_size(); ++rank) {
                const Ranks group = mesh.group_of(axis, rank);
                EXPECT_EQ(static_cast<std::int64_t>(group.size()), mesh.group_size(axis));
                EXPECT_EQ(std::count(group.begin(), group.end(), rank), 1);
                for (const std::int64_t member : group) EXPECT_EQ(mesh.group_of(axis, member), group);
            }
        }
    }
    EXPECT_GT(consistent, 20);
    EXPECT_LT(consistent, 120);  // some orders give the dense and the expert mesh different stages
}

TEST(ProgramMesh, ShardsAndTheirReplicasPartitionTheGradientGroup) {
    Plan plan = wide_plan({MeshAxis::tp, MeshAxis::cp, MeshAxis::ep, MeshAxis::dp, MeshAxis::pp});
    plan.parallelism.data_parallel = DataParallel::zero3;
    plan.parallelism.dp_shard = 4;
    const Mesh mesh(plan);
    EXPECT_EQ(mesh.group_of(GroupAxis::dp_shard, 10), (Ranks{8, 10, 12, 14}));
    EXPECT_EQ(mesh.group_of(GroupAxis::dp_replicate, 10), (Ranks{2, 10}));
    EXPECT_EQ(mesh.group_size(GroupAxis::dp_shard) * mesh.group_size(GroupAxis::dp_replicate),
              mesh.group_size(GroupAxis::dp));
}

TEST(ProgramMesh, FlowsWrapInterleavedAndMirrorInDualpipe) {
    Plan plan = make_plan({.pp = 4});
    plan.parallelism.dp = 2;
    plan.parallelism.schedule = Schedule::interleaved;
    plan.parallelism.chunks = 2;
    const Mesh wrapped(plan);
    EXPECT_EQ(wrapped.group_of(GroupAxis::down_forward, 6), (Ranks{6, 0}));
    EXPECT_EQ(wrapped.group_of(GroupAxis::down_backward, 1), (Ranks{1, 7}));
    plan.parallelism.schedule = Schedule::dualpipe;
    const Mesh mirrored(plan);
    EXPECT_EQ(mirrored.group_of(GroupAxis::dp, 0), (Ranks{0, 1, 6, 7}));  // stages 0 and 3 hold the same stages
    EXPECT_EQ(mirrored.group_of(GroupAxis::dp, 7), (Ranks{0, 1, 6, 7}));
    EXPECT_EQ(mirrored.group_of(GroupAxis::dp, 3), (Ranks{2, 3, 4, 5}));
    EXPECT_EQ(mirrored.group_of(GroupAxis::up_forward, 4), (Ranks{4, 2}));
    EXPECT_EQ(mirrored.group_of(GroupAxis::up_forward, 0), Ranks{});
    EXPECT_EQ(mirrored.group_of(GroupAxis::down_forward, 6), Ranks{});
}

TEST(ProgramMesh, NeighboursShareAKeyValueHead) {
    Plan plan = make_plan({});
    plan.model = models::load_model("llama3-8b");  // 8 key/value heads
    plan.parallelism.tp = 32;
    const Mesh mesh(plan);
    EXPECT_EQ(mesh.group_of(GroupAxis::kv, 6), (Ranks{4, 5, 6, 7}));
}

std::map<std::pair<Stream, CommKind>, StreamVolume> volume_map(const Program& program, ClassIndex rank_class) {
    std::map<std::pair<Stream, CommKind>, StreamVolume> result;
    for (const StreamVolume& volume : volumes(program, rank_class)) result[{volume.stream, volume.kind}] = volume;
    return result;
}

TEST(ProgramVolumes, OneRankSendsNothing) {
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
    // tiny-gpt: h = 64; M = 16 positions * 2 sequences * 64 * 4 bytes; 2 blocks per stage, 4 micro-batches, tp 2.
    const Program program = make_program({.tp = 2, .pp = 2, .sequence_parallel = true, .micro_batches = 4});
    const std::int64_t message = 16 * 2 * 64 * 4;
    const auto first = volume_map(program, 0);
    // Stage 0: 6 gathers per block and 1 of the embedding; in a ring of 2 a rank sends half of each.
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
    // Stage 1: 6 gathers per block, 2 of the head's input, and 2 of the maxima and the sums of 32 tokens' softmax.
    EXPECT_EQ(last.at({Stream::tp, CommKind::all_gather}).operations, 4 * (6 * 2 + 2 + 2));
    EXPECT_EQ(last.at({Stream::tp, CommKind::all_gather}).message_bytes,
              4 * ((6 * 2 + 2) * message + 2 * (1 + 2) * 32 * 4));
    EXPECT_EQ(last.at({Stream::pp_send_backward, CommKind::send}).wire_bytes, 4 * message / 2);
}

TEST(ProgramVolumes, AnUnevenRingIsTheRoundedMean) {
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

/// Computation waits for nothing that sums gradients in place: only the update reads them.
TEST(ProgramReductions, OfSetsOfShardsDelayNoComputation) {
    Plan plan = make_plan({.dp = 4,
                           .tp = 2,
                           .sequence_parallel = true,
                           .implementation = "megatron-core",
                           .bf16 = true,
                           .data_parallel = DataParallel::zero1});
    plan.parallelism.dp_shard = 2;
    const Program program = lower(plan);
    int sums = 0;
    for (const Body& body : program.bodies) {
        for (const Instruction& instruction : body.instructions) {
            sums += instruction.stream == Stream::dp_replicate ? 1 : 0;
            if (instruction.stream != Stream::compute) continue;
            for (const InstructionIndex i : instruction.after) {
                const Stream stream = body.instructions[i].stream;
                EXPECT_TRUE(stream != Stream::dp && stream != Stream::dp_replicate)
                    << instruction.name << " after " << body.instructions[i].name;
            }
        }
    }
    EXPECT_GT(sums, 1);
}

}  // namespace
}  // namespace orrery::program
