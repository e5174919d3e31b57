// Rule "counts": each class does everything that the plan asks, once and in order. Rule "transfers": what one stage
// sends is what its neighbour receives. Rule "collective order": the members of a group issue the same collectives.
#include <algorithm>
#include <set>

#include "sim/program/validate_rules.h"

namespace orrery::program::rules {
namespace {

constexpr std::string_view kCounts = "counts";

constexpr std::size_t kActionKinds = static_cast<std::size_t>(ActionKind::optimizer_step) + 1;

/// The one action of each kind and micro-batch; -1: none. Actions without a micro-batch are not in it.
using ActionTable = std::vector<std::array<std::int32_t, kActionKinds>>;

ActionTable table_of(const Program& program, std::int32_t c) {
    const RankClass& ranks = program.classes[static_cast<std::size_t>(c)];
    ActionTable table(static_cast<std::size_t>(program.plan->micro_batches()));
    for (auto& row : table) row.fill(-1);
    for (std::size_t a = 0; a < ranks.actions.size(); ++a) {
        const Action& action = ranks.actions[a];
        const Site site{.rank_class = c, .action = static_cast<std::int32_t>(a)};
        if (action.chunk != 0) fail(program, kCounts, site, "chunk " + std::to_string(action.chunk) + " of 1");
        const bool once_a_step = action.kind == ActionKind::sync_gradients || action.kind == ActionKind::optimizer_step;
        if (once_a_step != (action.micro_batch == -1) || action.micro_batch < -1 ||
            action.micro_batch >= static_cast<std::int32_t>(table.size())) {
            fail(program, kCounts, site,
                 "micro-batch " + std::to_string(action.micro_batch) + " of " + std::to_string(table.size()));
        }
        if (once_a_step) continue;
        std::int32_t& entry =
            table[static_cast<std::size_t>(action.micro_batch)][static_cast<std::size_t>(action.kind)];
        if (entry >= 0) fail(program, kCounts, site, "it is there already, as action " + std::to_string(entry));
        entry = site.action;
    }
    return table;
}

/// Layers of a chunk in forward order: embedding -1, blocks, head L.
std::vector<std::int32_t> layers_of(const Plan& plan, const RankClass& ranks) {
    std::vector<std::int32_t> layers;
    if (ranks.pp_index == 0) layers.push_back(-1);
    for (std::int64_t i = 0; i < ranks.block_count; ++i) {
        layers.push_back(static_cast<std::int32_t>(ranks.first_block + i));
    }
    if (ranks.pp_index == plan.parallelism.pp - 1) layers.push_back(static_cast<std::int32_t>(plan.model.layers));
    return layers;
}

/// Forward passes the stage's layers in order, backward in reverse. Each segment list is looked at once.
void check_layers(const Program& program, std::int32_t c) {
    const RankClass& ranks = program.classes[static_cast<std::size_t>(c)];
    std::set<std::pair<ActionKind, SegmentListId>> seen;
    for (std::size_t a = 0; a < ranks.actions.size(); ++a) {
        const Action& action = ranks.actions[a];
        const bool forward = action.kind == ActionKind::forward;
        if (!forward && action.kind != ActionKind::backward) continue;
        if (!seen.insert({action.kind, action.segments}).second) continue;
        std::vector<std::int32_t> expected = layers_of(*program.plan, ranks);
        if (!forward) std::reverse(expected.begin(), expected.end());
        std::vector<std::int32_t> found;
        for (const Segment& segment : ranks.segment_lists[static_cast<std::size_t>(action.segments)]) {
            const Phase phase = program.bodies[static_cast<std::size_t>(segment.body)].phase;
            if (phase == (forward ? Phase::forward : Phase::backward)) found.push_back(segment.layer);
        }
        if (found == expected) continue;
        fail(program, kCounts, {.rank_class = c, .action = static_cast<std::int32_t>(a)},
             "it passes " + std::to_string(found.size()) + " layers, not the stage's " +
                 std::to_string(expected.size()) + " in order");
    }
}

void check_order(const Program& program, std::int32_t c, std::int32_t first, std::int32_t second) {
    if (first < second) return;
    fail(program, kCounts, {.rank_class = c, .action = second},
         "it is issued before action " + std::to_string(first) + " (" +
             std::string(
                 name_of(program.classes[static_cast<std::size_t>(c)].actions[static_cast<std::size_t>(first)].kind)) +
             "), which it needs");
}

void check_micro_batch(const Program& program, std::int32_t c, const ActionTable& table, std::int32_t micro_batch) {
    const RankClass& ranks = program.classes[static_cast<std::size_t>(c)];
    const auto find = [&](ActionKind kind, bool expected = true) {
        const std::int32_t found = table[static_cast<std::size_t>(micro_batch)][static_cast<std::size_t>(kind)];
        if ((found >= 0) == expected) return found;
        if (found >= 0) fail(program, kCounts, {.rank_class = c, .action = found}, "the stage has no such neighbour");
        fail(program, kCounts, {.rank_class = c},
             "no " + std::string(name_of(kind)) + " of micro-batch " + std::to_string(micro_batch));
    };
    const bool has_previous = ranks.pp_index > 0;
    const bool has_next = ranks.pp_index + 1 < program.plan->parallelism.pp;
    const std::int32_t forward = find(ActionKind::forward);
    const std::int32_t backward = find(ActionKind::backward);
    const std::int32_t recv_forward = find(ActionKind::recv_forward, has_previous);
    const std::int32_t send_backward = find(ActionKind::send_backward, has_previous);
    const std::int32_t send_forward = find(ActionKind::send_forward, has_next);
    const std::int32_t recv_backward = find(ActionKind::recv_backward, has_next);
    check_order(program, c, forward, backward);
    if (has_previous) {
        check_order(program, c, recv_forward, forward);
        check_order(program, c, backward, send_backward);
    }
    if (has_next) {
        check_order(program, c, forward, send_forward);
        check_order(program, c, recv_backward, backward);
    }
}

void check_once_a_step(const Program& program, std::int32_t c) {
    const RankClass& ranks = program.classes[static_cast<std::size_t>(c)];
    std::int32_t last_backward = -1;
    std::int32_t sync = -1;
    if (ranks.actions.empty() || ranks.actions.back().kind != ActionKind::optimizer_step) {
        fail(program, kCounts, {.rank_class = c}, "the step does not end with the optimizer_step");
    }
    for (std::size_t a = 0; a < ranks.actions.size(); ++a) {
        const Site site{.rank_class = c, .action = static_cast<std::int32_t>(a)};
        const ActionKind kind = ranks.actions[a].kind;
        if (kind == ActionKind::backward) last_backward = site.action;
        if (kind == ActionKind::optimizer_step && a + 1 < ranks.actions.size()) {
            fail(program, kCounts, site, "it is not the last action of the step");
        }
        if (kind != ActionKind::sync_gradients) continue;
        if (sync >= 0) fail(program, kCounts, site, "it is there already, as action " + std::to_string(sync));
        sync = site.action;
    }
    if (sync >= 0) check_order(program, c, last_backward, sync);
}

struct Message {
    std::int32_t call = 0;
    std::int32_t micro_batch = 0;
    std::int64_t elements = 0;
    DType dtype{};
};

std::vector<Message> messages_on(const Program& program, const Trace& trace, Stream stream) {
    std::vector<Message> result;
    const RankClass& ranks = program.classes[static_cast<std::size_t>(trace.rank_class)];
    for (const std::int32_t index : trace.calls_on[static_cast<std::size_t>(stream)]) {
        const Call& call = trace.calls[static_cast<std::size_t>(index)];
        const Communication& comm = instruction_of(program, trace, call).communication;
        const Action& action = ranks.actions[static_cast<std::size_t>(call.action)];
        result.push_back({index, action.micro_batch, comm.elements, comm.dtype});
    }
    return result;
}

void check_boundary(const Program& program, const Trace& sender, Stream send, const Trace& receiver, Stream recv) {
    constexpr std::string_view kRule = "transfers";
    const std::vector<Message> sent = messages_on(program, sender, send);
    const std::vector<Message> received = messages_on(program, receiver, recv);
    if (sent.size() != received.size()) {
        fail(program, kRule, {.rank_class = sender.rank_class},
             std::to_string(sent.size()) + " messages on " + std::string(name_of(send)) + "; class " +
                 std::to_string(receiver.rank_class) + " receives " + std::to_string(received.size()));
    }
    const auto text = [](const Message& message) {
        return std::to_string(message.elements) + " " + std::string(name_of(message.dtype)) + " of micro-batch " +
               std::to_string(message.micro_batch);
    };
    for (std::size_t i = 0; i < sent.size(); ++i) {
        if (sent[i].micro_batch == received[i].micro_batch && sent[i].elements == received[i].elements &&
            sent[i].dtype == received[i].dtype) {
            continue;
        }
        fail(program, kRule, sender.site(sender.calls[static_cast<std::size_t>(sent[i].call)]),
             "message " + std::to_string(i) + " on " + std::string(name_of(send)) + " is " + text(sent[i]) +
                 "; class " + std::to_string(receiver.rank_class) + " receives " + text(received[i]));
    }
}

/// A pipeline stream carries its own kind of action only: the order on it is then the order of the transfers.
void check_pipeline_streams(const Program& program, const Trace& trace) {
    const RankClass& ranks = program.classes[static_cast<std::size_t>(trace.rank_class)];
    struct Pair {
        Stream stream;
        ActionKind action;
        CommKind kind;
        GroupAxis axis;
    };
    constexpr std::array<Pair, 4> kPairs{{
        {Stream::pp_recv_forward, ActionKind::recv_forward, CommKind::recv, GroupAxis::pp_forward},
        {Stream::pp_send_forward, ActionKind::send_forward, CommKind::send, GroupAxis::pp_forward},
        {Stream::pp_recv_backward, ActionKind::recv_backward, CommKind::recv, GroupAxis::pp_backward},
        {Stream::pp_send_backward, ActionKind::send_backward, CommKind::send, GroupAxis::pp_backward},
    }};
    for (const Pair& pair : kPairs) {
        for (const std::int32_t index : trace.calls_on[static_cast<std::size_t>(pair.stream)]) {
            const Call& call = trace.calls[static_cast<std::size_t>(index)];
            const Communication& comm = instruction_of(program, trace, call).communication;
            const Action& action = ranks.actions[static_cast<std::size_t>(call.action)];
            if (action.kind == pair.action && comm.kind == pair.kind && comm.axis == pair.axis) continue;
            fail(program, "transfers", trace.site(call),
                 "a " + std::string(name_of(comm.kind)) + " of the axis " + std::string(name_of(comm.axis)) +
                     " on the stream " + std::string(name_of(pair.stream)));
        }
    }
}

using Collectives = std::array<std::vector<std::int32_t>, 5>;  // calls, by axis

/// The calls on each group axis in issue order, which is the order on the wire when the axis keeps to one stream.
Collectives collectives_of(const Program& program, const Trace& trace) {
    Collectives result;
    for (std::size_t i = 0; i < trace.calls.size(); ++i) {
        const Call& call = trace.calls[i];
        if (call.stream == Stream::compute || is_pipeline(call.stream)) continue;
        auto& list = result[static_cast<std::size_t>(instruction_of(program, trace, call).communication.axis)];
        if (!list.empty() && trace.calls[static_cast<std::size_t>(list.front())].stream != call.stream) {
            fail(program, "collective order", trace.site(call),
                 "collectives of one axis on two streams: nothing orders them on their communicator");
        }
        list.push_back(static_cast<std::int32_t>(i));
    }
    return result;
}

void check_same_collectives(const Program& program, GroupAxis axis, const Trace& a,
                            const std::vector<std::int32_t>& of_a, const Trace& b,
                            const std::vector<std::int32_t>& of_b) {
    constexpr std::string_view kRule = "collective order";
    if (of_a.size() != of_b.size()) {
        fail(program, kRule, {.rank_class = a.rank_class},
             std::to_string(of_a.size()) + " collectives on the axis " + std::string(name_of(axis)) + "; class " +
                 std::to_string(b.rank_class) + " issues " + std::to_string(of_b.size()));
    }
    for (std::size_t i = 0; i < of_a.size(); ++i) {
        const Call& call = a.calls[static_cast<std::size_t>(of_a[i])];
        const Communication& x = instruction_of(program, a, call).communication;
        const Communication& y = instruction_of(program, b, b.calls[static_cast<std::size_t>(of_b[i])]).communication;
        if (x.kind == y.kind && x.reduce == y.reduce && x.dtype == y.dtype && x.elements == y.elements) continue;
        fail(program, kRule, a.site(call),
             "collective " + std::to_string(i) + " on the axis " + std::string(name_of(axis)) + " is a " +
                 std::string(name_of(x.kind)) + " of " + std::to_string(x.elements) + "; class " +
                 std::to_string(b.rank_class) + " issues a " + std::string(name_of(y.kind)) + " of " +
                 std::to_string(y.elements));
    }
}

}  // namespace

void check_counts(const Program& program) {
    const Plan& plan = *program.plan;
    std::int64_t first_block = 0;
    for (std::size_t i = 0; i < program.classes.size(); ++i) {
        const RankClass& ranks = program.classes[i];
        const auto c = static_cast<std::int32_t>(i);
        if (ranks.pp_index != c || ranks.first_block != first_block ||
            ranks.block_count != plan.parallelism.stage_layers.at(i)) {
            fail(program, kCounts, {.rank_class = c}, "its blocks are not those of the plan's stage");
        }
        first_block += ranks.block_count;
        check_once_a_step(program, c);
        const ActionTable table = table_of(program, c);
        for (std::size_t m = 0; m < table.size(); ++m) {
            check_micro_batch(program, c, table, static_cast<std::int32_t>(m));
        }
        check_layers(program, c);
    }
}

void check_transfers(const Program& program, const std::vector<Trace>& traces) {
    for (const Trace& trace : traces) check_pipeline_streams(program, trace);
    for (std::size_t i = 0; i + 1 < traces.size(); ++i) {
        check_boundary(program, traces[i], Stream::pp_send_forward, traces[i + 1], Stream::pp_recv_forward);
        check_boundary(program, traces[i + 1], Stream::pp_send_backward, traces[i], Stream::pp_recv_backward);
    }
}

void check_collective_order(const Program& program, const std::vector<Trace>& traces) {
    std::vector<Collectives> collectives;
    collectives.reserve(traces.size());
    for (const Trace& trace : traces) collectives.push_back(collectives_of(program, trace));
    for (std::size_t i = 0; i < traces.size(); ++i) {
        const std::int64_t rank = program.rank_at({0, 0, static_cast<std::int64_t>(i)});
        for (const GroupAxis axis : {GroupAxis::tp, GroupAxis::dp, GroupAxis::embedding}) {
            const auto& own = collectives[i][static_cast<std::size_t>(axis)];
            const std::vector<std::int64_t> group = program.group_of(axis, rank);
            if (group.size() < 2 && !own.empty()) {
                fail(program, "collective order", traces[i].site(traces[i].calls[static_cast<std::size_t>(own[0])]),
                     "no second rank on the axis " + std::string(name_of(axis)));
            }
            for (const std::int64_t member : group) {
                const auto other = static_cast<std::size_t>(program.class_of(member));
                if (other <= i) continue;  // ranks of one class are equal; each pair of classes is met once
                check_same_collectives(program, axis, traces[i], own, traces[other],
                                       collectives[other][static_cast<std::size_t>(axis)]);
            }
        }
    }
}

}  // namespace orrery::program::rules
