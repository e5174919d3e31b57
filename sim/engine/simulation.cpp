#include "sim/engine/simulation.h"

#include <algorithm>
#include <string>

#include "core/error.h"

namespace orrery::sim {

namespace {

std::size_t at(std::int64_t index) {
    return static_cast<std::size_t>(index);
}

}  // namespace

Simulation::Simulation(const SimulationInput& input)
    : input_(input),
      compiled_(input.compiled),
      quotient_(input.quotient),
      rank_count_(static_cast<std::int32_t>(input.quotient.ranks.size())),
      queue_(quotient_.ranks.size() * (1 + kStreams) + quotient_.groups.size()),
      ranks_(quotient_.ranks.size()),
      groups_(quotient_.groups.size()),
      activities_(quotient_.ranks.size() + quotient_.groups.size()),
      resource_loads_(quotient_.resources.size()),
      is_dirty_(quotient_.resources.size()),
      resource_index_(quotient_.resources.size(), -1),
      activity_index_(activities_.size(), -1),
      step_ends_(at(input.steps)) {
    list_draws();
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
        const std::int32_t rank_class = input.program->class_of(quotient_.ranks[r]);
        ranks_[r].rank_class = &compiled_.classes[at(rank_class)];
        for (std::size_t stream = 0; stream < kStreams; ++stream) {
            if (!ranks_[r].rank_class->stream_calls[stream].empty()) set_head(ranks_[r], stream);
        }
    }
}

std::int32_t Simulation::stream_slot(std::int32_t rank, std::size_t stream) const {
    return static_cast<std::int32_t>(activities_.size() + at(rank) * kStreams + stream);
}

void Simulation::run() {
    for (std::int32_t rank = 0; rank < rank_count_; ++rank) {
        for (std::size_t stream = 0; stream < kStreams; ++stream) consider(rank, stream);
    }
    const auto activity_count = static_cast<std::int32_t>(activities_.size());
    while (!queue_.empty()) {
        // Whatever happens at one moment is settled together, so that its order within the moment does not matter.
        if (!dirty_.empty() && queue_.next_time() > now_) settle();
        const EventQueue::Event event = queue_.pop();
        now_ = event.time_ps;
        if (event.slot < activity_count) {
            finish_activity(event.slot);
        } else {
            const auto stream = at(event.slot - activity_count);
            consider(static_cast<std::int32_t>(stream / kStreams), stream % kStreams);
        }
    }
    check_finished();
}

/// Points the head at the instruction that `stream_call` and `position` name.
void Simulation::set_head(RankState& rank, std::size_t stream) {
    StreamState& head = rank.streams[stream];
    head.call = &rank.rank_class->calls[at(rank.rank_class->stream_calls[stream][at(head.stream_call)].call)];
    head.instruction = &compiled_.instructions[at(compiled_.bodies[at(head.call->body)].first[stream] + head.position)];
    head.waiting = Waiting::for_counter;
}

void Simulation::advance(RankState& rank, std::size_t stream) {
    StreamState& head = rank.streams[stream];
    if (++head.position < compiled_.bodies[at(head.call->body)].count[stream]) {
        ++head.instruction;
        head.waiting = Waiting::for_counter;
        return;
    }
    head.position = 0;
    if (at(++head.stream_call) == rank.rank_class->stream_calls[stream].size()) {
        head.stream_call = 0;
        step_ends_[at(head.step)] = std::max(step_ends_[at(head.step)], now_);
        if (++head.step == input_.steps) {
            head.waiting = Waiting::finished;
            return;
        }
    }
    set_head(rank, stream);
}

/// Starts the stream's head if nothing holds it, else notes what will look at it again.
void Simulation::consider(std::int32_t rank, std::size_t stream) {
    RankState& state = ranks_[at(rank)];
    StreamState& head = state.streams[stream];
    if (head.waiting == Waiting::finished || waits_for_counter(state, stream)) return;
    if (input_.launch_ps > 0) {
        const std::int64_t issued = issue_time(state, head);
        if (issued > now_) {
            head.waiting = Waiting::for_host;
            queue_.schedule(stream_slot(rank, stream), issued);
            return;
        }
    }
    head.ready_ps = now_;
    if (head.step == input_.steps - 1 && last_step_begin_ < 0) last_step_begin_ = now_;
    if (head.instruction->seat < 0) {
        start_compute(rank);
    } else {
        head.compute_busy_at_ready = state.compute_busy + (state.compute_since < 0 ? 0 : now_ - state.compute_since);
        arrive(rank, stream);
    }
}

bool Simulation::waits_for_counter(RankState& rank, std::size_t stream) {
    StreamState& head = rank.streams[stream];
    const auto hold = [&](std::int32_t counter, std::int64_t count) {
        if (rank.done[at(counter)] >= count) return false;
        head.waiting = Waiting::for_counter;
        head.needed_count = count;
        rank.waiters[at(counter)] = static_cast<std::uint8_t>(rank.waiters[at(counter)] | (1U << stream));
        return true;
    };
    const CompiledInstruction& instruction = *head.instruction;
    for (std::int32_t i = 0; i < instruction.need_count; ++i) {
        const Need& need = compiled_.needs[at(instruction.first_need + i)];
        const std::int64_t before =
            head.step * rank.rank_class->totals[at(need.counter)] + head.call->base[at(need.counter)];
        if (hold(need.counter, before + need.count)) return true;
    }
    if (head.position > 0) return false;
    const StreamCall& call = rank.rank_class->stream_calls[stream][at(head.stream_call)];
    for (std::int32_t i = 0; i < call.wait_count; ++i) {
        const CompiledWait& wait = rank.rank_class->waits[at(call.first_wait + i)];
        const std::int64_t steps = head.step - wait.steps_back;
        if (hold(wait.counter, steps * rank.rank_class->totals[at(wait.counter)] + wait.count)) return true;
    }
    return false;
}

/// When the rank's host has issued the head. Asked only once everything else that holds the head has completed.
std::int64_t Simulation::issue_time(const RankState& rank, const StreamState& head) const {
    const CompiledClass& rank_class = *rank.rank_class;
    const CompiledInstruction& instruction = *head.instruction;
    if (!compiled_.host_runs_compute) {
        const std::int64_t issued =
            head.step * rank_class.instructions + head.call->issued_before + instruction.index + 1;
        return issued * input_.launch_ps;
    }
    // The host goes on from the compute instruction before this one. Is another one behind that already complete, then
    // the host has passed this one.
    const std::int64_t compute_before =
        head.step * rank_class.totals[0] + head.call->base[0] + instruction.compute_before;
    if (rank.done[0] > compute_before) return now_;
    std::int64_t issues = instruction.issues;
    if (instruction.after_call_start) {
        issues += head.call->issues_since_compute;
        if (head.call->since_step_start && head.step > 0) issues += rank_class.trailing_issues;
    }
    return rank.last_compute_end + issues * input_.launch_ps;
}

void Simulation::start_compute(std::int32_t rank) {
    RankState& state = ranks_[at(rank)];
    StreamState& head = state.streams[0];
    head.waiting = Waiting::running;
    head.begin_ps = now_;
    state.compute_since = now_;
    start_activity(rank, compiled_.durations[at(head.call->first_duration + head.instruction->index)]);
}

void Simulation::arrive(std::int32_t rank, std::size_t stream) {
    RankState& state = ranks_[at(rank)];
    StreamState& head = state.streams[stream];
    head.waiting = Waiting::for_partners;
    const auto seat = at(head.instruction->seat);
    const std::int32_t group = quotient_.group_at[at(rank)][seat];
    ORRERY_CHECK(group >= 0, "rank " + std::to_string(quotient_.ranks[at(rank)]) + " communicates on the stream " +
                                 std::string(program::name_of(static_cast<program::Stream>(stream))) +
                                 " but is in no group there");
    GroupState& rendezvous = groups_[at(group)];
    const Quotient::Group& shape = quotient_.groups[at(group)];
    state.stream_at_seat[seat] = static_cast<std::uint8_t>(stream);
    if (rendezvous.arrived == 0) rendezvous.operation = head.instruction->operation;
    ORRERY_CHECK(rendezvous.operation == head.instruction->operation,
                 "rank " + std::to_string(quotient_.ranks[at(rank)]) + " meets another operation on the axis " +
                     std::string(program::name_of(shape.axis)));
    if (++rendezvous.arrived < shape.member_count) return;
    rendezvous.arrived = 0;
    rendezvous.running = true;
    for (std::int32_t i = 0; i < shape.member_count; ++i) {
        const Quotient::RankOfGroup& member = quotient_.members[at(shape.first_member + i)];
        RankState& there = ranks_[at(member.rank)];
        StreamState& their = there.streams[there.stream_at_seat[static_cast<std::size_t>(member.seat)]];
        their.waiting = Waiting::running;
        their.begin_ps = now_;
    }
    start_activity(rank_count_ + group, input_.loads[at(shape.placement)][at(rendezvous.operation)].duration_ps);
}

void Simulation::finish_activity(std::int32_t activity) {
    change_loads(activity, -1);
    if (activity < rank_count_) {
        RankState& state = ranks_[at(activity)];
        state.compute_busy += now_ - state.compute_since;
        state.compute_since = -1;
        state.last_compute_end = now_;
        complete(activity, 0);
        return;
    }
    const std::int32_t group = activity - rank_count_;
    groups_[at(group)].running = false;
    const Quotient::Group& shape = quotient_.groups[at(group)];
    for (std::int32_t i = 0; i < shape.member_count; ++i) {
        const Quotient::RankOfGroup& member = quotient_.members[at(shape.first_member + i)];
        complete(member.rank, ranks_[at(member.rank)].stream_at_seat[static_cast<std::size_t>(member.seat)]);
    }
}

void Simulation::complete(std::int32_t rank, std::size_t stream) {
    RankState& state = ranks_[at(rank)];
    const std::int32_t counter = state.streams[stream].instruction->counter;
    if (state.streams[stream].step == input_.steps - 1) account(state, stream);
    advance(state, stream);
    ++state.done[stream];
    wake_waiters(rank, stream);
    if (counter >= 0) {
        ++state.done[at(counter)];
        wake_waiters(rank, at(counter));
    }
    consider(rank, stream);
}

void Simulation::account(RankState& rank, std::size_t stream) {
    const StreamState& head = rank.streams[stream];
    const std::int64_t busy = now_ - head.ready_ps;
    rank.times[stream].busy_ps += busy;
    if (stream != 0) {
        const std::int64_t compute = rank.compute_busy + (rank.compute_since < 0 ? 0 : now_ - rank.compute_since);
        rank.times[stream].exposed_ps += busy - (compute - head.compute_busy_at_ready);
    }
    if (!input_.record_spans) return;
    rank.spans.push_back(
        {head.call->action, head.call->segment, head.instruction->index, head.ready_ps, head.begin_ps, now_});
}

void Simulation::wake_waiters(std::int32_t rank, std::size_t counter) {
    RankState& state = ranks_[at(rank)];
    std::uint32_t waiters = state.waiters[counter];
    for (std::size_t stream = 0; waiters != 0; ++stream, waiters >>= 1) {
        if ((waiters & 1U) == 0 || state.streams[stream].needed_count > state.done[counter]) continue;
        state.waiters[counter] = static_cast<std::uint8_t>(state.waiters[counter] & ~(1U << stream));
        consider(rank, stream);
    }
}

std::vector<program::Span> Simulation::spans(std::size_t rank) const {
    std::vector<program::Span> result = ranks_[rank].spans;
    for (program::Span& span : result) {
        span.ready_ps -= last_step_begin_;
        span.begin_ps -= last_step_begin_;
        span.end_ps -= last_step_begin_;
    }
    return result;
}

void Simulation::check_finished() const {
    constexpr int kListed = 12;
    int stuck = 0;
    std::string list;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
        const program::RankClass& source = input_.program->classes[at(input_.program->class_of(quotient_.ranks[r]))];
        for (std::size_t stream = 0; stream < kStreams; ++stream) {
            const StreamState& head = ranks_[r].streams[stream];
            if (head.waiting == Waiting::finished || ++stuck > kListed) continue;
            const program::Action& action = source.actions[at(head.call->action)];
            const program::Body& body = input_.program->bodies[at(head.call->body)];
            list += "\n  rank " + std::to_string(quotient_.ranks[r]) + ", stream " +
                    std::string(program::name_of(static_cast<program::Stream>(stream))) + ", step " +
                    std::to_string(head.step) + ", action " + std::to_string(head.call->action) + " (" +
                    std::string(program::name_of(action.kind)) + " of micro-batch " +
                    std::to_string(action.micro_batch) + "), instruction '" +
                    body.instructions[at(head.instruction->index)].name + "' waits for " +
                    (head.waiting == Waiting::for_partners ? "the other members" : "earlier instructions");
        }
    }
    if (stuck > kListed) list += "\n  and " + std::to_string(stuck - kListed) + " more";
    ORRERY_CHECK(stuck == 0, "deadlock at " + std::to_string(now_) + " ps:" + list);
}

}  // namespace orrery::sim
