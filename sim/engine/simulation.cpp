#include "sim/engine/simulation.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "core/error.h"
#include "core/index.h"

namespace orrery::sim {

Simulation::Simulation(const SimulationInput& input, SharedWork& work, UnfinishedJobs& unfinished_jobs)
    : input_(input),
      compiled_(input.compiled),
      quotient_(input.quotient),
      work_(work),
      tangents_(work.tangents()),
      clock_(work.queue()),
      rank_count_(static_cast<std::int32_t>(input.quotient.ranks.size())),
      stream_count_(static_cast<std::int32_t>(compiled_.counters.streams.size())),
      local_streams_(compiled_.counters.local_streams),
      activity_count_(rank_count_ * local_streams_ + static_cast<std::int32_t>(quotient_.groups.size())),
      first_activity_(work.add_activities(activity_count_)),
      first_group_(first_activity_ + rank_count_ * local_streams_),
      ranks_(quotient_.ranks.size()),
      streams_(ranks_.size() * compiled_.counters.streams.size()),
      done_(ranks_.size() * compiled_.counters.end.position()),
      waiters_(done_.size()),
      stream_at_(ranks_.size()),
      groups_(quotient_.groups.size()),
      unfinished_jobs_(unfinished_jobs),
      step_limit_(input.steps),
      step_ends_(at(input.steps)) {
    ++unfinished_jobs.count;
    if (tangents_ != nullptr) {
        step_end_moments_.assign(at(input.steps), tangents_->no_moment());
        for (RankState& rank : ranks_) rank.host_end = tangents_->no_moment();
    }
    for (const program::Stream stream : compiled_.counters.streams) {
        host_own_.push_back(program::runs_on_host(stream, compiled_.host_runs_compute));
    }
    list_draws();
    const std::size_t counters = compiled_.counters.end.position();
    for (const SimulatedRank r : ranks_.indices()) {
        RankState& rank = ranks_[r];
        rank.rank_class = &compiled_.classes[input.program->class_of(quotient_.ranks[r])];
        if (input.durations != nullptr) rank.given_durations = input.durations->of_rank(quotient_.ranks[r]).data();
        if (input.durations == nullptr) rank.slow_down = quotient_.slow_down[r];
        rank.streams = {streams_.data() + r.position() * compiled_.counters.streams.size()};
        rank.done = {done_.data() + r.position() * counters};
        rank.waiters = {waiters_.data() + r.position() * counters};
        for (const CounterIndex stream : compiled_.counters.streams.indices()) {
            const std::vector<program::ActionIndex>& actions = rank.rank_class->stream_actions[stream];
            rank.streams[stream].actions = actions.data();
            rank.streams[stream].action_count = static_cast<std::int32_t>(actions.size());
            if (actions.empty()) continue;
            ++streams_unfinished_;
            enter_action(rank, stream);
        }
    }
}

void Simulation::begin(std::int32_t first_own_slot) {
    first_own_slot_ = first_own_slot;
    for (const SimulatedRank rank : ranks_.indices()) {
        for (const CounterIndex stream : compiled_.counters.streams.indices()) consider(rank, stream);
    }
}

void Simulation::wake(std::int32_t own_slot) {
    const auto rank = SimulatedRank::of((own_slot - first_own_slot_) / stream_count_);
    const auto stream = CounterIndex::of((own_slot - first_own_slot_) % stream_count_);
    if (tangents_ != nullptr) {
        const HostWork issues = issues_of(ranks_[rank], ranks_[rank].streams[stream]);
        terms_.clear();
        for (const SimulationInput::HostTerm& term : input_.host_terms) {
            terms_.push_back(
                {term.cell.value(), issues.launches * term.launch_ps + issues.block_passes * term.pass_ps});
        }
        tangents_->set_now(ranks_[rank].host_end, terms_);
    }
    consider(rank, stream);
}

/// Moves the head to the first instruction of the action at `stream_action`.
void Simulation::enter_action(RankState& rank, CounterIndex stream) {
    StreamState& head = rank.streams[stream];
    const CompiledClass& rank_class = *rank.rank_class;
    const program::ActionIndex action = head.actions[head.stream_action];
    if (head.stream_action + 1 < head.action_count) {  // a long Program does not stay in the cache from step to step
        const program::ActionIndex next = head.actions[head.stream_action + 1];
        __builtin_prefetch(&rank_class.actions[next]);
        __builtin_prefetch(rank_class.action_base(next).first);
    }
    head.action = &rank_class.actions[action];
    head.action_base = rank_class.action_base(action);
    const StreamCalls calls = rank_class.calls_on(*head.action, stream);
    head.next_call = calls.first;
    head.calls_left = calls.count;
    enter_call(rank, stream);
    head.starts_action = true;
}

/// Moves the head to the first instruction of the action's next call on the stream.
void Simulation::enter_call(RankState& rank, CounterIndex stream) {
    StreamState& head = rank.streams[stream];
    const StreamCall& entered = rank.rank_class->call_order[head.next_call];
    ++head.next_call;
    --head.calls_left;
    head.call = &rank.rank_class->calls[entered.call];
    head.call_base = rank.rank_class->call_base(entered.call);
    head.instruction = &compiled_.instructions[entered.first_instruction];
    head.left = entered.count;
    head.starts_call = true;
    head.starts_action = false;
    head.waiting = Waiting::for_counter;
}

void Simulation::advance(RankState& rank, CounterIndex stream) {
    StreamState& head = rank.streams[stream];
    if (--head.left > 0) {
        ++head.instruction;
        head.starts_call = false;
        head.starts_action = false;
        head.waiting = Waiting::for_counter;
        return;
    }
    if (head.calls_left > 0) {
        enter_call(rank, stream);
        return;
    }
    if (++head.stream_action == head.action_count) {
        head.stream_action = 0;
        if (end_step(head)) return;
    }
    enter_action(rank, stream);
}

/// Ends the stream's step. Returns whether it was the stream's last.
bool Simulation::end_step(StreamState& head) {
    if (tangents_ != nullptr && clock_.now() > step_ends_[at(head.step)]) {
        step_end_moments_[at(head.step)] = tangents_->now();
    }
    step_ends_[at(head.step)] = std::max(step_ends_[at(head.step)], clock_.now());
    ++head.step;
    if (head.step == input_.steps && --streams_unfinished_ == 0) --unfinished_jobs_.count;
    if (head.step < step_limit_) return false;
    // The first stream that gets here decides for all streams of the job: either it raises the limit for all, or no
    // other job is unfinished, which stays so.
    const std::int64_t own = streams_unfinished_ > 0 ? 1 : 0;
    if (unfinished_jobs_.count > own) {
        ++step_limit_;
        step_ends_.push_back(0);
        if (tangents_ != nullptr) step_end_moments_.push_back(tangents_->no_moment());
        return false;
    }
    head.waiting = Waiting::finished;
    return true;
}

/// Starts the stream's head if nothing holds it. Otherwise registers for a later call at the next event that may free
/// it.
void Simulation::consider(SimulatedRank rank, CounterIndex stream) {
    RankState& state = ranks_[rank];
    StreamState& head = state.streams[stream];
    if (head.waiting == Waiting::finished || waits_for_counter(state, stream)) return;
    if (!input_.host.is_free()) {
        const std::int64_t issued = issue_time(state, head);
        if (issued > clock_.now()) {
            head.waiting = Waiting::for_host;
            work_.queue().schedule(own_slot(rank, stream), issued);
            return;
        }
    }
    head.ready_ps = clock_.now();
    if (head.step == input_.steps - 1 && last_step_begin_ < 0) last_step_begin_ = clock_.now();
    if (stream != kComputeCounter) head.compute_busy_at_ready = compute_busy(state);
    if (!head.instruction->endpoint) {
        start_local(rank, stream);
    } else {
        arrive(rank, stream);
    }
}

bool Simulation::waits_for_counter(RankState& rank, CounterIndex stream) {
    StreamState& head = rank.streams[stream];
    const auto hold = [&](CounterIndex counter, std::int64_t count) {
        if (rank.done[counter] >= count) return false;
        head.waiting = Waiting::for_counter;
        head.needed_count = count;
        rank.waiters[counter] |= 1U << stream.position();
        return true;
    };
    const auto hold_needs = [&](const auto& holder) {
        for (const Need& need : compiled_.needs_of(holder)) {
            const std::int64_t before = head.step * rank.rank_class->totals[need.counter] +
                                        head.action_base[need.counter] + head.call_base[need.counter];
            if (hold(need.counter, before + need.count)) return true;
        }
        return false;
    };
    if (hold_needs(*head.instruction)) return true;
    if (!head.starts_call) return false;
    if (hold_needs(*head.call)) return true;
    if (!head.starts_action) return false;
    for (const CompiledWait& wait : rank.rank_class->waits_of(*head.action)) {
        if (!wait.holds(stream)) continue;
        const std::int64_t steps = head.step - wait.steps_back;
        if (hold(wait.counter, steps * rank.rank_class->totals[wait.counter] + wait.count)) return true;
    }
    return false;
}

/// The host's work since its own instruction before the head, including the head's launch.
HostWork Simulation::issues_of(const RankState& rank, const StreamState& head) const {
    const HostStretch& step = rank.rank_class->host;
    const HostStretch before = head.action->host_before + head.call->host_before + head.instruction->host_before;
    if (before.own > 0 || head.step == 0) return before.issues;
    const auto steps = static_cast<std::int32_t>(step.own == 0 ? head.step : 1);  // it continues from these
    return before.issues + HostWork{steps * step.issues.launches, steps * step.issues.block_passes};
}

/// The time when the rank's host has issued the head or, if the head is the host's own, reaches it. Valid only when
/// everything else for which the head waits has completed.
std::int64_t Simulation::issue_time(const RankState& rank, const StreamState& head) const {
    const std::int64_t own_before = head.step * rank.rank_class->host.own + head.action->host_before.own +
                                    head.call->host_before.own + head.instruction->host_before.own;
    if (rank.host_done > own_before) return clock_.now();  // one of the host's own after the head has completed
    return rank.host_end_ps + input_.host.of(issues_of(rank, head));
}

DurationPlace Simulation::duration_place(const StreamState& head) {
    return head.action->first_duration + head.call->first_duration + head.instruction->index.value();
}

/// The head's duration at full speed.
std::int64_t Simulation::duration_of(const RankState& rank, CounterIndex stream) const {
    const DurationPlace place = duration_place(rank.streams[stream]);
    if (rank.given_durations == nullptr) {
        const std::int64_t duration = compiled_.durations[place];
        const double slow_down = slow_down_of(rank, stream);
        return slow_down == 1 ? duration : std::llround(static_cast<double>(duration) * slow_down);
    }
    return rank.given_durations[place - rank.rank_class->actions.front().first_duration];
}

std::span<const Tangents::Term> Simulation::terms_of(const RankState& rank, CounterIndex stream) {
    const DurationPlace place = duration_place(rank.streams[stream]);
    const Tangents::Term* const terms = compiled_.terms.data();
    const std::span<const Tangents::Term> all{terms + compiled_.first_term[place].value(),
                                              terms + compiled_.first_term[place + 1].value()};
    const double slow_down = slow_down_of(rank, stream);
    if (slow_down == 1) return all;
    terms_.assign(all.begin(), all.end());
    for (Tangents::Term& term : terms_) term.picoseconds *= slow_down;
    return terms_;
}

void Simulation::start_local(SimulatedRank rank, CounterIndex stream) {
    RankState& state = ranks_[rank];
    StreamState& head = state.streams[stream];
    head.waiting = Waiting::running;
    head.begin_ps = clock_.now();
    work_.start(local_activity(rank, stream), draws_of_local(rank, stream), duration_of(state, stream));
    if (tangents_ != nullptr) tangents_->start(local_activity(rank, stream), terms_of(state, stream), clock_.now());
}

void Simulation::arrive(SimulatedRank rank, CounterIndex stream) {
    RankState& state = ranks_[rank];
    StreamState& head = state.streams[stream];
    head.waiting = Waiting::for_partners;
    const Endpoint endpoint = *head.instruction->endpoint;
    const SimulatedGroup group = quotient_.group_at[rank][endpoint];
    ORRERY_CHECK(group >= 0, "rank " + std::to_string(quotient_.ranks[rank]) + " communicates on the stream " +
                                 std::string(program::name_of(compiled_.counters.streams[stream])) +
                                 " but is in no group of the axis");
    GroupState& rendezvous = groups_[group];
    const Quotient::Group& shape = quotient_.groups[group];
    stream_at_[rank][endpoint] = stream;
    if (rendezvous.arrived == 0) rendezvous.operation = head.instruction->operation;
    ORRERY_CHECK(rendezvous.operation == head.instruction->operation,
                 "rank " + std::to_string(quotient_.ranks[rank]) +
                     " and its group are at different operations on the axis " +
                     std::string(program::name_of(shape.axis)));
    const bool spins = shape.axis == program::GroupAxis::pipeline;
    if (++rendezvous.arrived < shape.member_count) {
        if (spins) hold_while_waiting(rendezvous, shape.placement, rank, 1);
        return;
    }
    rendezvous.arrived = 0;
    for (const Quotient::RankOfGroup& member : quotient_.members_of(shape)) {
        StreamState& their = head_of(member);
        their.waiting = Waiting::running;
        their.begin_ps = clock_.now();
        if (spins && member.rank != rank) hold_while_waiting(rendezvous, shape.placement, member.rank, -1);
    }
    rendezvous.running = true;
    const GroupDraws& draws = draws_of(rendezvous);
    const OperationLoad& load = load_of(rendezvous, shape.placement, state_);
    work_.start(group_activity(group), draws.draws, draws.held,
                state.given_durations != nullptr ? duration_of(state, stream) : load.duration_ps, draws.moves);
    if (tangents_ == nullptr) return;
    tangents_->start(group_activity(group), load.terms, clock_.now());
}

/// The kernel of a collective occupies its compute units from the arrival of its own rank, and polls until the others
/// have arrived. This is modelled only for collectives over the pipeline, which stages reach at different times; the
/// ranks of one stage wait only briefly for each other.
void Simulation::hold_while_waiting(const GroupState& rendezvous, PlacementIndex placement, SimulatedRank rank,
                                    std::int64_t sign) {
    const std::int32_t device = quotient_.attachments[rank][ResourceKind::compute_units].resource;
    const std::int64_t units = load_of(rendezvous, placement, 0).held_compute_units;
    if (device >= 0 && units > 0) work_.hold(device, sign * units);
}

void Simulation::finish_activity(std::int32_t activity) {
    work_.finish(activity);
    if (activity < first_group_) {
        const auto rank = SimulatedRank::of((activity - first_activity_) / local_streams_);
        const auto stream = CounterIndex::of((activity - first_activity_) % local_streams_);
        RankState& state = ranks_[rank];
        if (stream == kComputeCounter) state.compute_busy += clock_.now() - state.streams[stream].begin_ps;
        if (host_own_[stream] != 0) {
            ++state.host_done;
            state.host_end_ps = clock_.now();
            if (tangents_ != nullptr) state.host_end = tangents_->now();
        }
        complete(rank, stream);
        return;
    }
    const auto group = SimulatedGroup::of(activity - first_group_);
    groups_[group].running = false;
    for (const Quotient::RankOfGroup& member : quotient_.members_of(quotient_.groups[group])) {
        complete(member.rank, stream_at_[member.rank][member.endpoint]);
    }
}

void Simulation::enter_next_state() {
    ++state_;
    for (const SimulatedGroup group : groups_.indices()) {
        const GroupState& changed = groups_[group];
        if (!changed.running) continue;
        const PlacementIndex placement = quotient_.groups[group].placement;
        work_.change(group_activity(group), draws_of(changed).draws,
                     load_of(changed, placement, state_ - 1).duration_ps,
                     load_of(changed, placement, state_).duration_ps);
    }
}

void Simulation::complete(SimulatedRank rank, CounterIndex stream) {
    RankState& state = ranks_[rank];
    const CounterIndex counter = state.streams[stream].instruction->counter;
    if (state.streams[stream].step == input_.steps - 1) account(state, stream);
    advance(state, stream);
    ++state.done[stream];
    wake_waiters(rank, stream);
    if (counter >= 0) {
        ++state.done[counter];
        wake_waiters(rank, counter);
    }
    consider(rank, stream);
}

void Simulation::account(RankState& rank, CounterIndex stream) {
    const StreamState& head = rank.streams[stream];
    const std::int64_t busy = clock_.now() - head.ready_ps;
    program::StreamTime& time = rank.times[compiled_.counters.streams[stream]];
    time.busy_ps += busy;
    if (stream != kComputeCounter) {
        time.exposed_ps += busy - (compute_busy(rank) - head.compute_busy_at_ready);
    }
    if (!input_.record_spans) return;
    rank.spans.push_back({action_of(rank, head), head.call->segment, head.instruction->index, head.ready_ps,
                          head.begin_ps, clock_.now()});
}

void Simulation::wake_waiters(SimulatedRank rank, CounterIndex counter) {
    RankState& state = ranks_[rank];
    std::uint32_t waiters = state.waiters[counter];
    for (; waiters != 0; waiters &= waiters - 1) {
        const auto stream = CounterIndex::of(std::countr_zero(waiters));
        if (state.streams[stream].needed_count > state.done[counter]) continue;
        state.waiters[counter] &= ~(1U << stream.position());
        consider(rank, stream);
    }
}

std::vector<program::Span> Simulation::spans(SimulatedRank rank) const {
    std::vector<program::Span> result = ranks_[rank].spans;
    for (program::Span& span : result) {
        span.ready_ps -= last_step_begin_;
        span.begin_ps -= last_step_begin_;
        span.end_ps -= last_step_begin_;
    }
    return result;
}

IndexedVector<CellIndex, double> Simulation::step_derivatives() const {
    const std::size_t last = at(input_.steps) - 1;
    IndexedVector<CellIndex, double> derivatives;
    for (const CellIndex cell : compiled_.cells.indices()) {
        const double before = last > 0 ? Tangents::value(step_end_moments_[last - 1], cell.position()) : 0.0;
        derivatives.push_back(Tangents::value(step_end_moments_[last], cell.position()) - before);
    }
    return derivatives;
}

void Simulation::check_finished() const {
    constexpr int kListed = 12;
    int stuck = 0;
    std::string list;
    for (const SimulatedRank r : ranks_.indices()) {
        const RankState& rank = ranks_[r];
        for (const CounterIndex stream : compiled_.counters.streams.indices()) {
            const StreamState& head = rank.streams[stream];
            if (head.waiting == Waiting::finished || ++stuck > kListed) continue;
            const program::ActionIndex index = action_of(rank, head);
            const program::Action& action =
                input_.program->classes[input_.program->class_of(quotient_.ranks[r])].actions[index];
            const program::Body& body = input_.program->bodies[head.call->body];
            list += "\n  rank " + std::to_string(quotient_.ranks[r]) + ", stream " +
                    std::string(program::name_of(compiled_.counters.streams[stream])) + ", step " +
                    std::to_string(head.step) + ", action " + std::to_string(index.value()) + " (" +
                    std::string(program::name_of(action.kind)) + " of micro-batch " +
                    std::to_string(action.micro_batch) + "), instruction '" +
                    body.instructions[head.instruction->index].name + "' waits for " +
                    (head.waiting == Waiting::for_partners ? "the other members" : "earlier instructions");
        }
    }
    if (stuck > kListed) list += "\n  and " + std::to_string(stuck - kListed) + " more";
    ORRERY_CHECK(stuck == 0, "deadlock at " + std::to_string(clock_.now()) + " ps:" + list);
}

}  // namespace orrery::sim
