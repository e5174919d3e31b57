#include "sim/program/program.h"

#include <algorithm>
#include <map>

#include "core/error.h"

namespace orrery::program {

std::string_view name_of(Stream stream) {
    switch (stream) {
        case Stream::compute:
            return "compute";
        case Stream::tp:
            return "tp";
        case Stream::dp:
            return "dp";
        case Stream::pp_recv_forward:
            return "pp_recv_forward";
        case Stream::pp_send_forward:
            return "pp_send_forward";
        case Stream::pp_recv_backward:
            return "pp_recv_backward";
        case Stream::pp_send_backward:
            return "pp_send_backward";
    }
    return "?";
}

std::string_view name_of(GroupAxis axis) {
    switch (axis) {
        case GroupAxis::tp:
            return "tp";
        case GroupAxis::dp:
            return "dp";
        case GroupAxis::pp_forward:
            return "pp_forward";
        case GroupAxis::pp_backward:
            return "pp_backward";
        case GroupAxis::embedding:
            return "embedding";
    }
    return "?";
}

std::string_view name_of(CommKind kind) {
    switch (kind) {
        case CommKind::all_reduce:
            return "all_reduce";
        case CommKind::all_gather:
            return "all_gather";
        case CommKind::reduce_scatter:
            return "reduce_scatter";
        case CommKind::send:
            return "send";
        case CommKind::recv:
            return "recv";
    }
    return "?";
}

std::string_view name_of(Phase phase) {
    switch (phase) {
        case Phase::forward:
            return "forward";
        case Phase::backward:
            return "backward";
        case Phase::optimizer:
            return "optimizer";
        case Phase::gradient_sync:
            return "gradient_sync";
        case Phase::transfer:
            return "transfer";
    }
    return "?";
}

std::string_view name_of(ActionKind kind) {
    switch (kind) {
        case ActionKind::forward:
            return "forward";
        case ActionKind::backward:
            return "backward";
        case ActionKind::recv_forward:
            return "recv_forward";
        case ActionKind::send_forward:
            return "send_forward";
        case ActionKind::recv_backward:
            return "recv_backward";
        case ActionKind::send_backward:
            return "send_backward";
        case ActionKind::sync_gradients:
            return "sync_gradients";
        case ActionKind::optimizer_step:
            return "optimizer_step";
    }
    return "?";
}

MeshCoordinates Program::coordinates(std::int64_t rank) const {
    const Parallelism& mesh = plan->parallelism;
    ORRERY_CHECK(rank >= 0 && rank < mesh.world_size(), "rank " + std::to_string(rank) + " is outside the world of " +
                                                            std::to_string(mesh.world_size()) + " ranks");
    return {.tp = rank % mesh.tp, .dp = rank / mesh.tp % mesh.dp, .pp = rank / (mesh.tp * mesh.dp)};
}

std::int64_t Program::rank_at(MeshCoordinates at) const {
    const Parallelism& mesh = plan->parallelism;
    ORRERY_CHECK(
        at.tp >= 0 && at.tp < mesh.tp && at.dp >= 0 && at.dp < mesh.dp && at.pp >= 0 && at.pp < mesh.pp,
        "no rank at tp " + std::to_string(at.tp) + ", dp " + std::to_string(at.dp) + ", pp " + std::to_string(at.pp));
    return (at.pp * mesh.dp + at.dp) * mesh.tp + at.tp;
}

std::vector<std::int64_t> Program::group_of(GroupAxis axis, std::int64_t rank) const {
    const Parallelism& mesh = plan->parallelism;
    MeshCoordinates at = coordinates(rank);
    std::vector<std::int64_t> members;
    switch (axis) {
        case GroupAxis::tp:
            for (at.tp = 0; at.tp < mesh.tp; ++at.tp) members.push_back(rank_at(at));
            return members;
        case GroupAxis::dp:
            for (at.dp = 0; at.dp < mesh.dp; ++at.dp) members.push_back(rank_at(at));
            return members;
        case GroupAxis::embedding:
            if (plan->model.tied_embeddings && mesh.pp > 1 && (at.pp == 0 || at.pp == mesh.pp - 1)) {
                members = {rank_at({at.tp, at.dp, 0}), rank_at({at.tp, at.dp, mesh.pp - 1})};
            }
            return members;
        case GroupAxis::pp_forward:
        case GroupAxis::pp_backward:
            break;
    }
    throw BugError("a rank may be in two pairs of the axis " + std::string(name_of(axis)) + "; ask peer_of");
}

std::int64_t Program::peer_of(Stream stream, std::int64_t rank) const {
    MeshCoordinates at = coordinates(rank);
    switch (stream) {
        case Stream::pp_send_forward:
        case Stream::pp_recv_backward:
            ORRERY_CHECK(
                at.pp + 1 < plan->parallelism.pp,
                "rank " + std::to_string(rank) + " is in the last stage: no peer on " + std::string(name_of(stream)));
            ++at.pp;
            return rank_at(at);
        case Stream::pp_recv_forward:
        case Stream::pp_send_backward:
            ORRERY_CHECK(at.pp > 0, "rank " + std::to_string(rank) + " is in the first stage: no peer on " +
                                        std::string(name_of(stream)));
            --at.pp;
            return rank_at(at);
        case Stream::compute:
        case Stream::tp:
        case Stream::dp:
            break;
    }
    throw BugError("the stream " + std::string(name_of(stream)) + " has no single peer; ask group_of");
}

namespace {

std::int64_t group_size(const Parallelism& mesh, GroupAxis axis) {
    switch (axis) {
        case GroupAxis::tp:
            return mesh.tp;
        case GroupAxis::dp:
            return mesh.dp;
        case GroupAxis::pp_forward:
        case GroupAxis::pp_backward:
        case GroupAxis::embedding:
            return 2;
    }
    return 0;
}

/// What one rank of a ring of n sends. When n does not divide the message, the ring's chunks are uneven and the ranks
/// do not all send the same: the average over the ranks is taken, rounded to the nearest byte.
std::int64_t wire_bytes(CommKind kind, std::int64_t message_bytes, std::int64_t n) {
    std::int64_t rounds = 0;
    switch (kind) {
        case CommKind::all_reduce:
            rounds = 2 * (n - 1);
            break;
        case CommKind::all_gather:
        case CommKind::reduce_scatter:
            rounds = n - 1;
            break;
        case CommKind::send:
            return message_bytes;
        case CommKind::recv:
            return 0;
    }
    // rounds * S / n without forming rounds * S, which may not fit.
    const std::int64_t whole = message_bytes / n;
    const std::int64_t rest = message_bytes % n;
    return whole * rounds + (rest * rounds + n / 2) / n;
}

}  // namespace

std::vector<StreamVolume> volumes(const Program& program, std::int32_t rank_class) {
    const RankClass& ranks = program.classes.at(static_cast<std::size_t>(rank_class));
    std::vector<std::int64_t> list_calls(ranks.segment_lists.size());
    for (const Action& action : ranks.actions) ++list_calls.at(static_cast<std::size_t>(action.segments));
    std::vector<std::int64_t> body_calls(program.bodies.size());
    for (std::size_t list = 0; list < list_calls.size(); ++list) {
        for (const Segment& segment : ranks.segment_lists[list]) {
            body_calls.at(static_cast<std::size_t>(segment.body)) += list_calls[list];
        }
    }
    std::map<std::pair<Stream, CommKind>, StreamVolume> sums;
    for (std::size_t body = 0; body < body_calls.size(); ++body) {
        if (body_calls[body] == 0) continue;
        for (const Instruction& instruction : program.bodies[body].instructions) {
            if (!instruction.is_communication) continue;
            const Communication& comm = instruction.communication;
            StreamVolume& sum = sums[{instruction.stream, comm.kind}];
            sum.stream = instruction.stream;
            sum.kind = comm.kind;
            sum.operations += body_calls[body];
            sum.message_bytes += body_calls[body] * comm.bytes();
            sum.wire_bytes += body_calls[body] *
                              wire_bytes(comm.kind, comm.bytes(), group_size(program.plan->parallelism, comm.axis));
        }
    }
    std::vector<StreamVolume> result;
    result.reserve(sums.size());
    for (const auto& [key, sum] : sums) result.push_back(sum);
    return result;
}

}  // namespace orrery::program
