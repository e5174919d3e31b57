// Rule "transfers": each virtual stage receives exactly the messages that its neighbour sends, in the same order.
// Rule "collective order": the members of a group issue the same collectives in the same order.
#include <algorithm>
#include <map>

#include "sim/program/validate_rules.h"

namespace orrery::program::rules {
namespace {

constexpr std::string_view kTransfers = "transfers";
constexpr std::string_view kCollectives = "collective order";

struct Message {
    std::int32_t call = 0;
    std::int32_t micro_batch = 0;
    std::int64_t virtual_stage = 0;  // the stage whose output, or the gradient of whose output, is sent
    std::int32_t direction = 0;
    std::int64_t elements = 0;
    DType dtype{};
};

/// The messages on a pipeline stream, in issue order.
std::vector<Message> messages_on(const Program& program, const Trace& trace, Stream stream) {
    std::vector<Message> result;
    const RankClass& ranks = program.classes[trace.rank_class];
    for (const std::int32_t index : trace.calls_on[stream]) {
        const Call& call = trace.calls[static_cast<std::size_t>(index)];
        const Communication& comm = instruction_of(program, call).communication;
        const Action& action = ranks.actions[call.action];
        const Chunk& chunk = ranks.chunks[action.chunk];
        const bool from_previous = action.kind == ActionKind::recv_forward || action.kind == ActionKind::send_backward;
        result.push_back({index, action.micro_batch, chunk.virtual_stage - (from_previous ? 1 : 0), chunk.direction,
                          comm.elements, comm.dtype});
    }
    return result;
}

void check_channel(const Program& program, const Trace& sender, Stream send, const Trace& receiver) {
    const Stream recv = opposite(send);
    const std::vector<Message> sent = messages_on(program, sender, send);
    const std::vector<Message> received = messages_on(program, receiver, recv);
    if (sent.size() != received.size()) {
        fail(program, kTransfers, {.rank_class = sender.rank_class},
             std::to_string(sent.size()) + " messages on " + std::string(name_of(send)) + "; class " +
                 std::to_string(receiver.rank_class.value()) + " receives " + std::to_string(received.size()));
    }
    const auto text = [](const Message& message) {
        return std::to_string(message.elements) + " " + std::string(name_of(message.dtype)) + " of micro-batch " +
               std::to_string(message.micro_batch) + " after virtual stage " + std::to_string(message.virtual_stage);
    };
    for (std::size_t i = 0; i < sent.size(); ++i) {
        const Message &a = sent[i], &b = received[i];
        if (a.micro_batch == b.micro_batch && a.virtual_stage == b.virtual_stage && a.direction == b.direction &&
            a.elements == b.elements && a.dtype == b.dtype) {
            continue;
        }
        fail(program, kTransfers, site_of(sender, sender.calls[static_cast<std::size_t>(a.call)]),
             "message " + std::to_string(i) + " on " + std::string(name_of(send)) + " is " + text(a) + "; class " +
                 std::to_string(receiver.rank_class.value()) + " receives " + text(b));
    }
}

/// A pipeline stream carries a single kind of action, so that the order on it is the order of the transfers.
void check_pipeline_streams(const Program& program, const Trace& trace) {
    const RankClass& ranks = program.classes[trace.rank_class];
    struct Pair {
        Stream down, up;
        ActionKind action;
        CommKind kind;
    };
    constexpr std::array<Pair, 4> kPairs{{
        {Stream::pp_recv_forward, Stream::pp_up_recv_forward, ActionKind::recv_forward, CommKind::recv},
        {Stream::pp_send_forward, Stream::pp_up_send_forward, ActionKind::send_forward, CommKind::send},
        {Stream::pp_recv_backward, Stream::pp_up_recv_backward, ActionKind::recv_backward, CommKind::recv},
        {Stream::pp_send_backward, Stream::pp_up_send_backward, ActionKind::send_backward, CommKind::send},
    }};
    for (const Pair& pair : kPairs) {
        for (const Stream stream : {pair.down, pair.up}) {
            for (const std::int32_t index : trace.calls_on[stream]) {
                const Call& call = trace.calls[static_cast<std::size_t>(index)];
                const Communication& comm = instruction_of(program, call).communication;
                const Action& action = ranks.actions[call.action];
                if (action.kind == pair.action && comm.kind == pair.kind && comm.axis == axis_of(stream)) continue;
                fail(program, kTransfers, site_of(trace, call),
                     "a " + std::string(name_of(comm.kind)) + " of the axis " + std::string(name_of(comm.axis)) +
                         " on the stream " + std::string(name_of(stream)));
            }
        }
    }
}

/// The class at the other end of a pipeline stream; -1: none.
ClassIndex class_at_other_end(const Program& program, ClassIndex c, Stream stream) {
    const GroupAxis axis = axis_of(is_send(stream) ? stream : opposite(stream));
    const std::int64_t rank = representative(program, c);
    if (is_send(stream)) {
        const std::vector<std::int64_t> pair = program.group_of(axis, rank);
        return pair.empty() ? ClassIndex(-1) : program.class_of(pair.back());
    }
    return program.class_of(program.peer_of(stream, rank));
}

/// The collectives of a class by communicator, as indices of calls in issue order.
using Collectives = std::map<std::pair<GroupAxis, Stream>, std::vector<std::int32_t>>;

Collectives collectives_of(const Program& program, const Trace& trace) {
    PerAxis<PerStream<std::vector<std::int32_t>>> lists;
    for (const Stream s : kStreams) {
        if (is_local(s) || is_pipeline(s)) continue;
        for (const std::int32_t index : trace.calls_on[s]) {
            const Call& call = trace.calls[static_cast<std::size_t>(index)];
            const Communication& comm = instruction_of(program, call).communication;
            lists[comm.axis][s].push_back(index);
        }
    }
    Collectives result;
    for (const GroupAxis axis : kAxes) {
        for (const Stream s : kStreams) {
            if (!lists[axis][s].empty()) result[{axis, s}] = std::move(lists[axis][s]);
        }
    }
    return result;
}

void check_same_collectives(const Program& program, GroupAxis axis, const Trace& a,
                            const std::vector<std::int32_t>& of_a, const Trace& b,
                            const std::vector<std::int32_t>& of_b) {
    if (of_a.size() != of_b.size()) {
        fail(program, kCollectives, {.rank_class = a.rank_class},
             std::to_string(of_a.size()) + " collectives on the axis " + std::string(name_of(axis)) + "; class " +
                 std::to_string(b.rank_class.value()) + " issues " + std::to_string(of_b.size()));
    }
    for (std::size_t i = 0; i < of_a.size(); ++i) {
        const Call& call = a.calls[static_cast<std::size_t>(of_a[i])];
        const Communication& x = instruction_of(program, call).communication;
        const Communication& y = instruction_of(program, b.calls[static_cast<std::size_t>(of_b[i])]).communication;
        if (x.kind == y.kind && x.reduce == y.reduce && x.dtype == y.dtype && x.elements == y.elements &&
            x.root == y.root) {
            continue;
        }
        const auto text = [](const Communication& one) {
            return std::string(name_of(one.kind)) + " of " + std::to_string(one.elements) +
                   (one.root > 0 ? " with root " + std::to_string(one.root) : "");
        };
        fail(program, kCollectives, site_of(a, call),
             "collective " + std::to_string(i) + " on the axis " + std::string(name_of(axis)) + " is a " + text(x) +
                 "; class " + std::to_string(b.rank_class.value()) + " issues a " + text(y));
    }
}

}  // namespace

void check_transfers(const Program& program, const IndexedVector<ClassIndex, Trace>& traces) {
    for (const Trace& trace : traces) check_pipeline_streams(program, trace);
    for (const Trace& trace : traces) {
        for (const Stream stream : kStreams) {
            if (!is_pipeline(stream) || trace.count_on(stream) == 0) continue;
            const ClassIndex other = class_at_other_end(program, trace.rank_class, stream);
            if (other < 0) {
                fail(program, kTransfers, {.rank_class = trace.rank_class},
                     "no rank is at the other end of " + std::string(name_of(stream)));
            }
            const Trace& theirs = traces[other];
            if (is_send(stream)) {
                check_channel(program, trace, stream, theirs);
            } else if (theirs.count_on(opposite(stream)) == 0) {  // otherwise the sender's class checks it
                check_channel(program, theirs, opposite(stream), trace);
            }
        }
    }
}

void check_collective_order(const Program& program, const IndexedVector<ClassIndex, Trace>& traces) {
    IndexedVector<ClassIndex, Collectives> collectives;
    collectives.reserve(traces.size());
    for (const Trace& trace : traces) collectives.push_back(collectives_of(program, trace));
    const std::vector<std::int32_t> none;
    for (const ClassIndex c : traces.indices()) {
        for (const auto& [communicator, own] : collectives[c]) {
            const GroupAxis axis = communicator.first;
            const std::vector<ClassIndex> classes = classes_of_group(program, axis, c);
            if (program.mesh->group_size(axis) < 2 || std::find(classes.begin(), classes.end(), c) == classes.end()) {
                fail(program, kCollectives, site_of(traces[c], traces[c].calls[static_cast<std::size_t>(own[0])]),
                     "no second rank on the axis " + std::string(name_of(axis)));
            }
            // Equality is transitive, so that each class is compared with the group's first class, and that with the
            // last.
            const ClassIndex partner = classes.front() != c ? classes.front() : classes.back();
            if (partner == c) continue;
            const auto& others = collectives[partner];
            const auto found = others.find(communicator);
            check_same_collectives(program, axis, traces[c], own, traces[partner],
                                   found == others.end() ? none : found->second);
        }
    }
}

}  // namespace orrery::program::rules
