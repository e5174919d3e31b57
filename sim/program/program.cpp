#include "sim/program/program.h"

#include <algorithm>
#include <array>
#include <map>

#include "core/enum_names.h"
#include "core/error.h"
#include "sim/program/step_slots.h"
#include "sim/program/token_dispatch.h"

namespace orrery::program {

std::string_view name_of(Stream stream) {
    static constexpr auto kNames = name_table<Stream::pp_up_send_backward>(
        {"compute", "host", "copy_out", "copy_in", "side", "tp", "cp", "ep", "dp", "dp_gather", "dp_replicate",
         "pp_recv_forward", "pp_send_forward", "pp_recv_backward", "pp_send_backward", "pp_up_recv_forward",
         "pp_up_send_forward", "pp_up_recv_backward", "pp_up_send_backward"});
    return kNames[stream];
}

std::string_view name_of(ParameterRange range) {
    static constexpr auto kNames = name_table<ParameterRange::expert>({"dense", "tensor_sum", "kv_sum", "expert"});
    return kNames[range];
}

std::string_view name_of(CommKind kind) {
    static constexpr auto kNames =
        name_table<CommKind::recv>({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce",
                                    "scatter", "gather", "exchange", "send", "recv"});
    return kNames[kind];
}

std::string_view name_of(Phase phase) {
    static constexpr auto kNames = name_table<Phase::exchange>(
        {"forward", "backward", "backward_input", "backward_weight", "optimizer", "gradient_sync", "transfer", "gather",
         "reduce", "offload", "prepare", "exchange"});
    return kNames[phase];
}

std::string_view name_of(ActionKind kind) {
    static constexpr auto kNames = name_table<ActionKind::exchange>(
        {"forward", "backward", "backward_input", "backward_weight", "recv_forward", "send_forward", "recv_backward",
         "send_backward", "sync_gradients", "optimizer_step", "exchange"});
    return kNames[kind];
}

GroupAxis axis_of(Stream stream) {
    if (!is_pipeline(stream)) {
        throw BugError("stream " + std::string(name_of(stream)) + " is not a pipeline stream");
    }
    // Each flow has two streams, in this order of the flows.
    constexpr std::array kFlows{GroupAxis::down_forward, GroupAxis::down_backward, GroupAxis::up_forward,
                                GroupAxis::up_backward};
    return kFlows.at((static_cast<std::size_t>(stream) - static_cast<std::size_t>(Stream::pp_recv_forward)) / 2);
}

ClassIndex Program::class_of(std::int64_t rank) const {
    const bool by_rank = plan->parallelism.data_parallel == DataParallel::dp;
    return ClassIndex::of(by_rank ? std::min<std::int64_t>(rank, 1) : mesh->coordinates(rank).pp);
}

std::int64_t Program::peer_of(Stream stream, std::int64_t rank) const {
    const auto flow = static_cast<std::size_t>(axis_of(stream));
    // Gradients go from a stage to the one that sent it activations, so the peer of a receive is the receiver of the
    // opposite flow. Opposite flows follow each other.
    constexpr auto kFirst = static_cast<std::size_t>(GroupAxis::down_forward);
    const auto axis = static_cast<GroupAxis>(is_send(stream) ? flow : kFirst + ((flow - kFirst) ^ 1U));
    const std::vector<std::int64_t> pair = mesh->group_of(axis, rank);
    ORRERY_CHECK(!pair.empty(), "rank " + std::to_string(rank) + " has no peer on " + std::string(name_of(stream)));
    return pair.back();
}

namespace {

/// The bytes that one rank of a ring of n sends. If n does not divide the message, the ranks send different amounts;
/// the result is their average, rounded to the nearest byte.
std::int64_t wire_bytes(CommKind kind, std::int64_t message_bytes, std::int64_t n) {
    using enum CommKind;
    if (kind == exchange || kind == send) return message_bytes;
    if (kind == recv) return 0;
    // Scatter: only the root sends, (n - 1) / n of the message. Gather: all others send, 1 / n of it each.
    if (kind == scatter || kind == gather) return (n - 1) * (message_bytes / n) / n;
    // A broadcast or reduction to one rank goes along a chain, where all ranks but one send the message.
    const std::int64_t rounds = (kind == all_reduce ? 2 : 1) * (n - 1);
    // rounds * S / n, computed without rounds * S, which may overflow.
    const std::int64_t whole = message_bytes / n;
    const std::int64_t rest = message_bytes % n;
    return whole * rounds + (rest * rounds + n / 2) / n;
}

std::int64_t wire_bytes(const Program& program, ClassIndex rank_class, const Communication& comm) {
    if (!comm.tokens_once) return wire_bytes(comm.kind, comm.bytes(), program.mesh->group_size(comm.axis));
    const DispatchBytes sent =
        dispatch_bytes(*comm.tokens_once, comm.bytes(), spread_of(program, comm.axis, rank_class));
    return sent.nic + sent.port;
}

}  // namespace

IndexedVector<BodyId, std::int64_t> calls_of_bodies(const Program& program, ClassIndex rank_class) {
    const RankClass& ranks = program.classes.at(rank_class);
    IndexedVector<SegmentListId, std::int64_t> list_calls(ranks.segment_lists.size());
    for (const Action& action : ranks.actions) ++list_calls.at(action.segments);
    IndexedVector<BodyId, std::int64_t> body_calls(program.bodies.size());
    for (const SegmentListId list : list_calls.indices()) {
        for (const Segment& segment : ranks.segment_lists[list]) body_calls.at(segment.body) += list_calls[list];
    }
    return body_calls;
}

std::vector<StreamVolume> volumes(const Program& program, ClassIndex rank_class) {
    const auto body_calls = calls_of_bodies(program, rank_class);
    std::map<std::pair<Stream, CommKind>, StreamVolume> sums;
    for (const BodyId body : body_calls.indices()) {
        if (body_calls[body] == 0) continue;
        for (const Instruction& instruction : program.bodies[body].instructions) {
            if (!instruction.is_communication) continue;
            const Communication& comm = instruction.communication;
            const StreamVolume none{.stream = instruction.stream, .kind = comm.kind};
            StreamVolume& sum = sums.try_emplace({none.stream, none.kind}, none).first->second;
            sum.operations += body_calls[body];
            sum.message_bytes += body_calls[body] * comm.bytes();
            sum.wire_bytes += body_calls[body] * wire_bytes(program, rank_class, comm);
        }
    }
    std::vector<StreamVolume> result;
    for (const auto& [key, sum] : sums) result.push_back(sum);
    return result;
}

double recomputed_flops(const Program& program) {
    IndexedVector<ClassIndex, double> of_class;
    for (const ClassIndex c : program.classes.indices()) {
        const auto body_calls = calls_of_bodies(program, c);
        double& sum = of_class.emplace_back(0);
        for (const BodyId body : body_calls.indices()) {
            for (const models::Operator& op : program.bodies[body].operators) {
                if (op.again && uses_matrix_units(op)) sum += op.flops * static_cast<double>(body_calls[body]);
            }
        }
    }
    double all = 0;
    for (std::int64_t rank = 0; rank < program.world_size(); ++rank) {
        all += of_class[program.class_of(rank)];
    }
    return all;
}

}  // namespace orrery::program
