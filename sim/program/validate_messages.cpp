// Rule "transfers": each virtual stage receives exactly the messages that its neighbour sends, in the same order.
// Rule "collective order": the members of a group issue the same collectives in the same order.
#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "sim/program/validate_rules.h"

namespace orrery::program::rules {
namespace {

constexpr std::string_view kTransfers = "transfers";
constexpr std::string_view kCollectives = "collective order";

using Calls = std::vector<std::int32_t>;  // indices of a trace's calls, in issue order

const Communication& communication_of(const Program& program, const Trace& trace, std::int32_t call) {
    return instruction_of(program, call_of(trace, call)).communication;
}

/// What must be equal at both ends of a transfer, or in a collective of two members of a group.
struct Facts {
    std::int64_t elements = 0;
    DType dtype{};
    // Of collectives.
    CommKind kind{};
    ReduceOp reduce{};
    std::int32_t root = 0;
    // Of transfers.
    std::int32_t micro_batch = 0;
    std::int64_t virtual_stage = 0;  // the stage whose output, or the gradient of whose output, is sent
    std::int32_t direction = 0;
    bool operator==(const Facts&) const = default;
};

Facts facts_of(const Program& program, const Trace& trace, std::int32_t index) {
    const Communication& comm = communication_of(program, trace, index);
    const Call& call = call_of(trace, index);
    if (!is_pipeline(call.stream)) return {comm.elements, comm.dtype, comm.kind, comm.reduce, comm.root};
    const RankClass& ranks = program.classes[trace.rank_class];
    const Action& action = ranks.actions[call.action];
    const Chunk& chunk = ranks.chunks[action.chunk];
    const bool from_previous = action.kind == ActionKind::recv_forward || action.kind == ActionKind::send_backward;
    return {.elements = comm.elements,
            .dtype = comm.dtype,
            .micro_batch = action.micro_batch,
            .virtual_stage = chunk.virtual_stage - (from_previous ? 1 : 0),
            .direction = chunk.direction};
}

std::string described(const Facts& facts, std::string_view rule) {
    if (rule == kCollectives) {
        return text("a {} of {}{}", facts.kind, facts.elements,
                    facts.root > 0 ? text(" with root {}", facts.root) : "");
    }
    return text("{} {} of micro-batch {} after virtual stage {}", facts.elements, facts.dtype, facts.micro_batch,
                facts.virtual_stage);
}

/// Compares what two classes issue on a stream or axis, one by one.
void compare(const Program& program, std::string_view rule, std::string_view place, const Trace& a, const Calls& of_a,
             const Trace& b, const Calls& of_b) {
    const bool transfers = rule == kTransfers;
    const std::string_view name = transfers ? "message" : "collective", issues = transfers ? "receives" : "issues";
    if (of_a.size() != of_b.size()) {
        fail(program, rule, {.rank_class = a.rank_class}, "{} {}s on {}; class {} {} {}", of_a.size(), name, place,
             b.rank_class, issues, of_b.size());
    }
    for (std::size_t i = 0; i < of_a.size(); ++i) {
        const Facts x = facts_of(program, a, of_a[i]), y = facts_of(program, b, of_b[i]);
        if (x == y) continue;
        fail(program, rule, site_of(a, call_of(a, of_a[i])), "{} {} on {} is {}; class {} {} {}", name, i, place,
             described(x, rule), b.rank_class, issues, described(y, rule));
    }
}

/// A pipeline stream carries a single kind of action, so that the order on it is the order of the transfers. Down and
/// up, the streams come in the order of the kinds.
void check_pipeline_streams(const Program& program, const Trace& trace) {
    constexpr std::array kKinds{ActionKind::recv_forward, ActionKind::send_forward, ActionKind::recv_backward,
                                ActionKind::send_backward};
    for (const Stream stream : kStreams) {
        if (!is_pipeline(stream)) continue;
        const auto place = static_cast<std::size_t>(stream) - static_cast<std::size_t>(Stream::pp_recv_forward);
        for (const std::int32_t index : trace.calls_on[stream]) {
            const Call& call = call_of(trace, index);
            const ActionKind kind = program.classes[trace.rank_class].actions[call.action].kind;
            if (kind == kKinds[place % kKinds.size()]) continue;
            fail(program, kTransfers, site_of(trace, call), "it is on the stream {}", stream);
        }
    }
}

/// The collectives of a class by communicator.
using Collectives = std::map<std::pair<Stream, GroupAxis>, Calls>;

Collectives collectives_of(const Program& program, const Trace& trace) {
    Collectives result;
    for (const Stream s : kStreams) {
        if (is_local(s) || is_pipeline(s)) continue;
        for (const std::int32_t call : trace.calls_on[s]) {
            result[{s, communication_of(program, trace, call).axis}].push_back(call);
        }
    }
    return result;
}

}  // namespace

void check_transfers(const Program& program, const Traces& traces) {
    for (const Trace& trace : traces) check_pipeline_streams(program, trace);
    for (const Trace& trace : traces) {
        const std::int64_t rank = representative(program, trace.rank_class);
        for (const Stream stream : kStreams) {
            if (!is_pipeline(stream) || trace.count_on(stream) == 0) continue;
            if (is_send(stream) && program.group_of(axis_of(stream), rank).empty()) {
                fail(program, kTransfers, {.rank_class = trace.rank_class}, "no rank is at the other end of {}",
                     stream);
            }
            const Trace& theirs = traces[program.class_of(program.peer_of(stream, rank))];
            const bool sends = is_send(stream);
            if (!sends && theirs.count_on(opposite(stream)) > 0) continue;  // the sender's class checks it
            const Stream send = sends ? stream : opposite(stream);
            const Trace &sender = sends ? trace : theirs, &receiver = sends ? theirs : trace;
            compare(program, kTransfers, name_of(send), sender, sender.calls_on[send], receiver,
                    receiver.calls_on[opposite(send)]);
        }
    }
}

void check_collective_order(const Program& program, const Traces& traces) {
    IndexedVector<ClassIndex, Collectives> collectives;
    for (const Trace& trace : traces) collectives.push_back(collectives_of(program, trace));
    for (const ClassIndex c : traces.indices()) {
        for (const auto& [communicator, own] : collectives[c]) {
            const GroupAxis axis = communicator.second;
            const std::vector<ClassIndex> classes = classes_of_group(program, axis, c);
            if (program.mesh->group_size(axis) < 2 || std::find(classes.begin(), classes.end(), c) == classes.end()) {
                fail(program, kCollectives, site_of(traces[c], call_of(traces[c], own[0])),
                     "no second rank on the axis {}", axis);
            }
            // Equality is transitive, so that each class is compared with the group's first class, and that with the
            // last.
            const ClassIndex partner = classes.front() != c ? classes.front() : classes.back();
            if (partner == c) continue;
            compare(program, kCollectives, text("the axis {}", axis), traces[c], own, traces[partner],
                    collectives[partner][communicator]);
        }
    }
}

}  // namespace orrery::program::rules
