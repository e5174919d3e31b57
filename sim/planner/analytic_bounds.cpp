#include "sim/planner/analytic_bounds.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/index.h"
#include "sim/planner/pass_walk.h"
#include "sim/program/schedule.h"

namespace orrery::sim {

namespace {

using program::ChunkIndex;
using program::ComputeTask;
using program::DataParallel;
using program::Recompute;
using program::Schedule;
using program::ScheduleShape;

/// From this many micro-batches per pipeline rank on, another one no longer raises the number in flight (except in
/// schedules that keep all of them alive).
constexpr std::int64_t kSettledDepths = 4;

using InFlight = IndexedVector<ChunkIndex, std::int64_t>;

/// OrderFacts::alive of one rank. `by_frames`: an arena frees a micro-batch's frame at the end of its whole backward
/// pass. An allocator frees what the weight-gradient half does not read once the input gradient is computed.
std::vector<InFlight> largest_states(const std::vector<ComputeTask>& order, std::int64_t chunks, bool by_frames) {
    std::vector<InFlight> largest;
    InFlight alive(at(2 * chunks), 0);
    bool grew = false;
    const auto keep = [&] {
        if (!std::exchange(grew, false)) return;
        const auto covers = [](const InFlight& a, const InFlight& b) {
            return std::equal(a.begin(), a.end(), b.begin(), [](std::int64_t x, std::int64_t y) { return x >= y; });
        };
        for (const auto& known : largest) {
            if (covers(known, alive)) return;
        }
        std::erase_if(largest, [&](const auto& known) { return covers(alive, known); });
        largest.push_back(alive);
    };
    for (const ComputeTask& task : order) {
        std::int64_t& whole = alive[task.chunk];
        std::int64_t& half = alive[ChunkIndex::of(task.chunk.position() + at(chunks))];
        switch (task.kind) {
            case ComputeTask::Kind::forward:
                ++whole;
                grew = true;
                break;
            case ComputeTask::Kind::backward:
                keep();
                --whole;
                break;
            case ComputeTask::Kind::backward_input:
                if (by_frames) break;
                keep();
                --whole;
                ++half;
                grew = true;
                break;
            case ComputeTask::Kind::backward_weight:
                keep();
                --(by_frames ? whole : half);
                break;
        }
    }
    return largest;
}

/// The order with the backward of each pair before its forward. Passes that take turns hold at least as much as so: the
/// forward saves while the backward frees.
std::vector<ComputeTask> backwards_first(std::vector<ComputeTask> order) {
    for (std::size_t t = 1; t < order.size(); ++t) {
        if (order[t].overlaps_previous) std::swap(order[t - 1], order[t]);
    }
    return order;
}

}  // namespace

AnalyticBounder::AnalyticBounder(const PlanRequest& request, const topologies::Cluster& cluster,
                                 const RooflineCost& cost)
    : request_(request), sharding_(request, cluster, cost), costing_(request, cluster, cost) {
    const models::MemoryChoices& memory = request.implementation.memory;
    if (!memory.lays_out_ahead && !request.cluster.device.host_runs_compute) cached_share_ = memory.cached_share.value;
}

const LayerCosts& AnalyticBounder::costs_of(const Choice& choice, bool is_wide) {
    const Choice key = layer_costs_key(choice);
    const auto [costs, fresh] = costs_.add(key);
    if (fresh) {
        costs = row_of(key.schedule).splits_backward()
                    ? costing_.costs_of_halves(key, costs_of(with_whole_backward(key), true))
                    : costing_.costs(key);
    }
    if (is_wide) costing_.add_wide_gradients(key, costs);
    return costs;
}

const LayerCosts& AnalyticBounder::base_costs(const Choice& choice) {
    return costs_of(with_whole_backward(without_recomputation(choice)), false);
}

const std::vector<AnalyticBounder::OrderFacts>& AnalyticBounder::order_facts(const Choice& choice,
                                                                             std::int64_t micro_batches) {
    if (choice.spreads_vocabulary()) return vocabulary_order_facts(choice, micro_batches);
    // If all micro-batches stay alive, one is enough: their memory grows in proportion. The order of schedules that
    // depend on durations is not known here; 1F1B with one micro-batch stands for it.
    const program::ScheduleRow& row = row_of(choice.schedule);
    const bool settles = !row.keeps_all_alive && !row.depends_on_times();
    const std::int64_t enough = kSettledDepths * choice.pp;
    const std::int64_t few = settles ? std::min(micro_batches, enough) : 1;
    const auto [entry, fresh] =
        orders_.try_emplace({choice.schedule, choice.pp, choice.chunks, few, choice.overlaps_experts});
    if (fresh) {
        ScheduleShape shape{.schedule = choice.schedule,
                            .ranks = choice.pp,
                            .chunks = choice.chunks,
                            .micro_batches = few,
                            .pairs_passes = choice.overlaps_experts};
        if (!settles) shape.schedule = Schedule::one_f_one_b;
        for (const auto& order : program::compute_orders(shape)) {
            OrderFacts& facts = entry->second.emplace_back();
            const bool lays_out_ahead = request_.implementation.memory.lays_out_ahead;
            facts.alive = choice.overlaps_experts && !lays_out_ahead
                              ? largest_states(backwards_first(order), choice.chunks, lays_out_ahead)
                              : largest_states(order, choice.chunks, lays_out_ahead);
            facts.forwards_ahead.assign(at(choice.chunks), 0);
            for (const ComputeTask& task : order) {
                facts.first_backward_chunk = task.chunk;
                if (task.kind != ComputeTask::Kind::forward) break;
                ++facts.forwards_ahead[task.chunk];
            }
        }
    }
    return entry->second;
}

AnalyticBounder::Sharded AnalyticBounder::shard(const Choice& choice, Pipeline& pipeline) {
    count_elements(choice, pipeline);
    Sharded sharded{.context_bytes = static_cast<double>(sharding_.context_bytes(choice))};
    for (const RankElements& own : pipeline.elements) {
        sharded.ranks.push_back({.state_bytes = sharding_.held_bytes(choice, own)});
    }
    return sharded;
}

void AnalyticBounder::add_times(const Choice& choice, const Pipeline& pipeline, Sharded& sharded) {
    if (std::exchange(sharded.has_times, true)) return;
    const LayerCosts& costs = base_costs(choice);
    for (std::size_t i = 0; i < sharded.ranks.size(); ++i) {
        sharding_.add_times(choice, pipeline.elements[i], costs, sharded.ranks[i]);
    }
}

AnalyticBounder::Sharded& AnalyticBounder::sharded_of(const Choice& choice, Pipeline& pipeline,
                                                      const std::vector<Sharding>& shardings, std::size_t index) {
    if (pipeline.sharded.empty()) pipeline.sharded.resize(shardings.size());
    ORRERY_CHECK(pipeline.sharded.size() == shardings.size() && shardings[index] == choice.sharding,
                 "a sharding that is not one of the pipeline's");
    Sharded& sharded = pipeline.sharded[index];
    if (sharded.ranks.empty()) sharded = shard(choice, pipeline);
    return sharded;
}

std::int64_t AnalyticBounder::largest_chunk(const Choice& choice) {
    const Pipeline& pipeline = pipeline_of(choice);
    std::int64_t most = 0;
    for (std::size_t stage = 0; stage < pipeline.stage_count(); ++stage) most = std::max(most, pipeline.blocks(stage));
    return most;
}

/// Calls visit(whether full recomputation applies, first layer, end) for the layers of a virtual stage.
template <typename Visit>
void AnalyticBounder::for_each_range(const Choice& choice, const Pipeline& pipeline, std::size_t stage,
                                     const Visit& visit) {
    // Layer 0 is the embedding, layer i block i - 1, and the last layer the head.
    const std::size_t begin = at(pipeline.first_block(stage) + 1), end = at(pipeline.first_block(stage + 1) + 1);
    std::size_t recomputed = 0;
    if (choice.recompute == Recompute::full) {
        recomputed = choice.recompute_layers < 0 ? end - begin : std::min(at(choice.recompute_layers), end - begin);
    }
    if (recomputed > 0) visit(true, begin, begin + recomputed);
    visit(false, begin + recomputed, pipeline.has_head(stage) ? end + 1 : end);
    if (pipeline.has_embedding(stage)) visit(false, 0, 1);
}

void AnalyticBounder::sum_chunks(const Choice& choice, const Pipeline& pipeline, bool counts_memory) {
    summed_.reset();
    Choice kept = counts_memory ? choice : with_whole_backward(choice);
    if (choice.recompute == Recompute::full) kept.recompute = Recompute::none;
    const bool is_wide = counts_memory && sharding_.has_wide_gradients(choice);
    const LayerCosts& whole = costs_of(kept, is_wide);
    const LayerCosts& again = counts_memory ? costs_of(choice, is_wide) : whole;
    chunk_sums_.assign(pipeline.stage_count(), {});
    for (std::size_t stage = 0; stage < chunk_sums_.size(); ++stage) {
        ChunkSum& chunk = chunk_sums_[stage];
        const auto add = [&chunk](const LayerCost& layer, std::int32_t count) {
            const double times = count;
            chunk.forward_s += times * layer.forward_s;
            chunk.backward_s += times * layer.backward_s;
            chunk.wide_gradients_s += times * layer.wide_gradients_s;
            chunk.input_gradient_s += times * layer.input_gradient_s;
            chunk.input_pass_s += times * layer.input_pass_s;
            chunk.weight_pass_s += times * layer.weight_pass_s;
            chunk.forward_tokens.add(layer.forward_tokens, times);
            chunk.backward_tokens.add(layer.backward_tokens, times);
            chunk.alone_forward_s += times * layer.alone_forward_s;
            chunk.alone_backward_s += times * layer.alone_backward_s;
            chunk.saved_bytes += count * layer.saved_bytes;
            chunk.kept_bytes += count * layer.kept_bytes;
        };
        for_each_range(choice, pipeline, stage, [&](bool recomputes, std::size_t from, std::size_t to) {
            (recomputes ? again : whole).for_each(from, to, add);
        });
        if (choice.offload_layers != 0) offload_activations(choice, pipeline, stage, whole);
        if (pipeline.spreads_vocabulary) {
            const LayerCost& head = whole.of_kind.back();
            chunk.vocabulary_s =
                kLeastVocabularyShare * (head.forward_s + head.backward_s) / static_cast<double>(choice.pp);
        }
        if (counts_memory && !request_.implementation.memory.lays_out_ahead)
            chunk.beyond_bytes = beyond_bytes(choice, pipeline, stage, again, whole);
    }
    // An arena laid out ahead has room for all frames and all transients. An allocator needs room only for what is
    // alive at the peak.
    const bool lays_out_ahead = request_.implementation.memory.lays_out_ahead;
    sums_.transient_bytes = lays_out_ahead ? again.block_transient_bytes : 0;
    // With a split backward the gradient sent to the previous stage lies in a boundary buffer, not in the frame.
    passed_on_bytes_ = lays_out_ahead && row_of(choice.schedule).splits_backward() ? sharding_.hidden_bytes(choice) : 0;
}

/// The forward of a chunk ends and its backward begins with its last layer, when all its activations are alive.
std::int64_t AnalyticBounder::beyond_bytes(const Choice& choice, const Pipeline& pipeline, std::size_t stage,
                                           const LayerCosts& again, const LayerCosts& whole) {
    std::int64_t beyond = 0, after = 0;  // what later layers have freed in the backward or saved in the forward
    const auto add = [&](const LayerCost& layer) {
        const program::BodyChange &forward = layer.forward_change, &backward = layer.backward_change;
        beyond = std::max({beyond, after + backward.peak_bytes, forward.peak_bytes - forward.net_bytes});
        after += backward.net_bytes;
    };
    const std::int64_t begin = pipeline.first_block(stage), end = pipeline.first_block(stage + 1);
    if (pipeline.has_head(stage)) add(whole.of_kind.back());
    if (begin == end) return beyond;
    const bool all_recomputed = choice.recompute_layers < 0 || end - begin <= choice.recompute_layers;
    add((choice.recompute == Recompute::full && all_recomputed ? again : whole).layer(at(end)));
    return beyond;
}

void AnalyticBounder::sum_draws(const Choice& choice, const Pipeline& pipeline) {
    Choice kept = choice;
    if (choice.recompute == Recompute::full) kept.recompute = Recompute::none;
    const LayerCosts &again = costs_of(choice, false), &whole = costs_of(kept, false);
    for (std::size_t i = 0; i < sums_.ranks.size(); ++i) {
        RankSums& sums = sums_.ranks[i];
        for (const std::size_t stage : pipeline.stages()[pipeline.ranks[i]]) {
            for_each_range(choice, pipeline, stage, [&](bool recomputes, std::size_t from, std::size_t to) {
                (recomputes ? again : whole).for_each(from, to, [&](const LayerCost& layer, std::int32_t count) {
                    sums.draws.add(layer.draws, count);
                });
            });
        }
        sums.waiting_s = std::max(0.0, sums.work_s - sums.draws.seconds());
    }
}

/// The first micro-batch has to run through all later stages and come back as a gradient before the rank's first
/// backward can start. All passes but the forwards before it then remain.
double AnalyticBounder::round_s(const std::vector<std::size_t>& stages, const OrderFacts& facts, bool splits) const {
    double round = -static_cast<double>(facts.vocabulary_ahead) * chunk_sums_[stages.front()].vocabulary_s;
    for (std::size_t c = 0; c < stages.size(); ++c) {
        round -= static_cast<double>(facts.forwards_ahead[ChunkIndex::of(c)]) * chunk_sums_[stages[c]].forward_s;
    }
    for (std::size_t s = stages.front(); s < chunk_sums_.size(); ++s) round += chunk_sums_[s].forward_s;
    for (std::size_t s = stages[facts.first_backward_chunk.position()] + 1; s < chunk_sums_.size(); ++s) {
        round += splits ? chunk_sums_[s].input_gradient_s : chunk_sums_[s].backward_s;
    }
    return round;
}

void AnalyticBounder::sum_ranks(const Choice& choice, const Pipeline& pipeline) {
    const std::int64_t micro_batches = micro_batches_of(request_, choice);
    const std::vector<OrderFacts>& orders = order_facts(choice, micro_batches);
    const program::ScheduleRow& row = row_of(choice.schedule);
    const bool splits = row.splits_backward();
    // DualPipe's two copies of the model share the micro-batches.
    const double of_copy = static_cast<double>(micro_batches) / static_cast<double>(copies_of(choice));
    sums_.micro_batches = of_copy;
    // The gradient reduction can overlap at most the last backward pass; with several chunks or a split backward at
    // most the work of pp micro-batches.
    const double overlap = std::min(of_copy, static_cast<double>(choice.pp));
    const auto chunk_of = [&](std::size_t rank, std::size_t chunk) -> const ChunkSum& {
        return chunk_sums_[pipeline.stages()[rank][chunk]];
    };
    sums_.ranks.clear();
    double ramp = 0, wide_ramp = 0;
    std::size_t before = 0;
    for (const std::size_t rank : pipeline.ranks) {
        for (; before < rank; ++before) {
            ramp += chunk_of(before, 0).forward_s + chunk_of(before, 0).backward_s;
            wide_ramp += chunk_of(before, 0).wide_gradients_s;
        }
        const OrderFacts& facts = orders[rank];
        RankSums& sums = sums_.ranks.emplace_back();
        sums.ramp_s = splits ? 0 : ramp;
        sums.wide_ramp_s = splits ? 0 : wide_ramp;
        const double outside = static_cast<double>(facts.vocabulary_outside) * chunk_of(rank, 0).vocabulary_s;
        sums.ramp_s -= outside;
        double alone_forward_s = 0, alone_backward_s = 0;
        for (std::size_t c = 0; c < at(choice.chunks); ++c) {
            const ChunkSum& chunk = chunk_of(rank, c);
            sums.work_s += chunk.forward_s + chunk.backward_s + chunk.vocabulary_s;
            sums.wide_gradients_s += chunk.wide_gradients_s;
            sums.tokens.add(chunk.forward_tokens);
            sums.tokens.add(chunk.backward_tokens);
            alone_forward_s += chunk.alone_forward_s;
            alone_backward_s += chunk.alone_backward_s;
        }
        sums.blocks_s = std::max({sums.tokens.seconds, alone_forward_s, alone_backward_s});
        if (row.has_rounds) sums.round_s = round_s(pipeline.stages()[rank], facts, splits);
        if (choice.offload_layers != 0 && row.has_rounds) {
            sums.work_s += copy_wait_s(choice, pipeline.stages()[rank], facts) / of_copy;
            sums.round_s -= copy_wait_ahead_s(pipeline.stages()[rank], facts);
        }
        const bool spreads_overlap = splits || choice.chunks > 1 || pipeline.spreads_vocabulary;
        sums.beside_s = spreads_overlap ? sums.work_s * overlap : chunk_of(rank, 0).longest_backward_s();
        // Some chunk's backward follows the moment at which the most is in flight.
        sums.beyond_bytes = chunk_of(rank, 0).beyond_bytes;
        for (std::size_t c = 1; c < at(choice.chunks); ++c) {
            sums.beyond_bytes = std::min(sums.beyond_bytes, chunk_of(rank, c).beyond_bytes);
        }
        for (const InFlight& state : facts.alive) {
            std::int64_t bytes = 0;
            for (std::size_t c = 0; c < at(choice.chunks); ++c) {
                const ChunkSum& chunk = chunk_of(rank, c);
                bytes += state[ChunkIndex::of(c)] * std::max<std::int64_t>(0, chunk.saved_bytes - passed_on_bytes_) +
                         state[ChunkIndex::of(c + at(choice.chunks))] * chunk.kept_bytes;
            }
            if (row.keeps_all_alive) bytes *= micro_batches;
            sums.activation_bytes = std::max(sums.activation_bytes, bytes);
        }
        std::int64_t window_bytes = 0;
        for (std::size_t c = 0; c < at(choice.chunks); ++c)
            window_bytes = std::max(window_bytes, chunk_of(rank, c).window_bytes);
        sums.activation_bytes += window_bytes;
    }
}

std::int64_t AnalyticBounder::in_use_bytes(const Sharded& sharded, std::size_t rank, std::int64_t beside_states) const {
    const double tensors = sharded.ranks[rank].state_bytes + static_cast<double>(beside_states);
    return static_cast<std::int64_t>(sharded.context_bytes + tensors * (1 + cached_share_));
}

AnalyticBounds AnalyticBounder::memory_bounds(const Sums& sums, const Sharded& sharded) const {
    AnalyticBounds result;
    for (std::size_t i = 0; i < sums.ranks.size(); ++i) {
        const RankSums& rank = sums.ranks[i];
        const auto in_use = [&](std::int64_t beside_states) { return in_use_bytes(sharded, i, beside_states); };
        result.least_state_bytes = std::max(result.least_state_bytes, in_use(0));
        result.least_lasting_bytes = std::max(result.least_lasting_bytes, in_use(rank.activation_bytes));
        result.least_memory_bytes = std::max(result.least_memory_bytes,
                                             in_use(rank.activation_bytes + rank.beyond_bytes + sums.transient_bytes));
    }
    return result;
}

double AnalyticBounder::step_bound_s(const Choice& choice, const Sums& all_sums, const Sharded& sharded) const {
    const program::ScheduleRow& row = row_of(choice.schedule);
    const double m = all_sums.micro_batches, gathers = ShardingCosts::gathers(choice);
    const double reductions = sharding_.reductions(choice), overlap = std::min(m, static_cast<double>(choice.pp));
    const bool is_wide = sharding_.has_wide_gradients(choice);
    double least = 0;
    for (std::size_t i = 0; i < all_sums.ranks.size(); ++i) {
        const RankSums& sums = all_sums.ranks[i];
        const ShardedRank& rank = sharded.ranks[i];
        const double wide_s = is_wide ? sums.wide_gradients_s : 0;
        // A pass that waits for copies may gather its parameters meanwhile.
        const double first_gathers_s = choice.offload_layers != 0 ? 0 : rank.first_gathers_s;
        const double alone = m * (sums.work_s + wide_s + rank.staging_s + first_gathers_s) + rank.update_s;
        // A rank's long update on the host runs beside the gradients' way back to the first rank and its update.
        const double ahead_s = choice.sharding.offload == Offload::none
                                   ? 0
                                   : std::max(0.0, rank.update_s - sharded.ranks.front().update_s);
        const double ramp_s = sums.ramp_s + (is_wide ? sums.wide_ramp_s : 0) - ahead_s;
        // Between the arrival of the first micro-batch and the departure of the last one.
        least = std::max(least, m * sums.blocks_s + std::max(0.0, ramp_s) + rank.update_s);
        const double reduction_s = std::max(rank.reduction.seconds, rank.replication.seconds);
        // Gradients that are reduced beside passes may be reduced beside those of several micro-batches.
        const double beside_s = sums.beside_s + overlap * wide_s;
        const double round_s = row.has_rounds ? std::max(0.0, sums.round_s) : 0;
        double extra = std::max({ramp_s, round_s, reduction_s - beside_s});
        if (rank.reduces_at_end) {
            const double at_end_s = std::max(reduction_s, rank.reduction.nic_s + rank.replication.nic_s);
            // From its first forward on: the ranks before it may have begun the next step by then.
            extra = std::max(extra, at_end_s + round_s);
        }
        least = std::max(least, alone + std::max(0.0, extra));
        const double idle = std::max({0.0, ramp_s, round_s});
        // Of one micro-batch, beside which idle time, updates and casts count as time without computation.
        const double free = (idle + rank.update_s) / m + rank.staging_s + first_gathers_s + sums.waiting_s + wide_s;
        CommunicationTimes reduction, gather;
        if (!rank.reduces_at_end) reduction.add(rank.reduction, reductions / m);
        gather.add(rank.gather, gathers);
        const double delay =
            std::max(sums.draws.least_delay_s(reduction, free), sums.draws.least_delay_s(gather, free));
        least = std::max(least, alone + idle + m * delay);
        if (reductions > 1) least = std::max(least, reductions * rank.reduction.seconds);
        least = std::max(least, gathers * m * rank.gather.seconds);
        least = std::max(least, reductions * rank.reduction.nic_s + rank.replication.nic_s +
                                    m * (gathers * rank.gather.nic_s + sums.tokens.nic_s));
    }
    return kRounding * least;
}

AnalyticBounds AnalyticBounder::bounds(const Choice& choice, const Pipeline& pipeline, const Sums& sums,
                                       Sharded& sharded) {
    AnalyticBounds found = memory_bounds(sums, sharded);
    add_times(choice, pipeline, sharded);
    found.least_step_s = step_bound_s(choice, sums, sharded);
    return found;
}

AnalyticBounds AnalyticBounder::bounds(const Choice& choice) {
    if (choice.sharding.data_parallel == DataParallel::dp) return {};
    Pipeline& pipeline = pipeline_of(choice);
    sum(choice, pipeline);
    Sharded sharded = shard(choice, pipeline);
    return bounds(choice, pipeline, sums_, sharded);
}

AnalyticBounds AnalyticBounder::bounds(const Choice& choice, const std::vector<Sharding>& shardings,
                                       std::size_t index) {
    if (choice.sharding.data_parallel == DataParallel::dp) return {};
    Pipeline& pipeline = pipeline_of(choice);
    Sharded& sharded = sharded_of(choice, pipeline, shardings, index);
    return bounds(choice, pipeline, sums_of(choice, pipeline), sharded);
}

void AnalyticBounder::sum(const Choice& choice, const Pipeline& pipeline) {
    if (summed_ == choice) return;
    sum_chunks(choice, pipeline);
    sum_ranks(choice, pipeline);
    sum_draws(choice, pipeline);
    summed_ = choice;
}

const AnalyticBounder::Sums& AnalyticBounder::sums_of(const Choice& choice, const Pipeline& pipeline) {
    Choice key = choice;
    key.sharding = {.data_parallel = sharding_.has_wide_gradients(choice) ? DataParallel::ddp : DataParallel::zero3};
    if (const Sums* const known = kept_sums_.find(key)) return *known;
    if (kept_sums_.size() == kMostSums) kept_sums_.clear();
    sum(choice, pipeline);
    return kept_sums_.add(key, sums_).first;
}

void AnalyticBounder::bounds_of_each(const Choice& choice, const std::vector<Sharding>& shardings,
                                     std::vector<AnalyticBounds>& found, std::int64_t limit_bytes) {
    std::vector<std::size_t> all(shardings.size());
    std::iota(all.begin(), all.end(), 0);
    bounds_of_some(choice, shardings, all, found, limit_bytes);
}

void AnalyticBounder::bounds_of_some(const Choice& choice, const std::vector<Sharding>& shardings,
                                     std::span<const std::size_t> indices, std::vector<AnalyticBounds>& found,
                                     std::int64_t limit_bytes) {
    Pipeline& pipeline = pipeline_of(choice);
    sum(choice, pipeline);
    found.resize(shardings.size());
    Choice one = choice;
    for (const std::size_t i : indices) {
        one.sharding = shardings[i];
        AnalyticBounds& bounds = found[i] = {};
        if (one.sharding.data_parallel == DataParallel::dp) continue;
        Sharded& sharded = sharded_of(one, pipeline, shardings, i);
        bounds = memory_bounds(sums_, sharded);
        if (bounds.least_state_bytes > limit_bytes) continue;
        add_times(one, pipeline, sharded);
        bounds.least_step_s = step_bound_s(one, sums_, sharded);
    }
}

bool AnalyticBounder::all_states_exceed(const Choice& choice, const std::vector<Sharding>& shardings,
                                        std::int64_t limit_bytes) {
    Pipeline& pipeline = pipeline_of(choice);
    Choice one = choice;
    for (std::size_t i = 0; i < shardings.size(); ++i) {
        one.sharding = shardings[i];
        if (one.sharding.data_parallel == DataParallel::dp) return false;
        const Sharded& sharded = sharded_of(one, pipeline, shardings, i);
        bool fits = true;
        for (std::size_t r = 0; r < sharded.ranks.size(); ++r) fits &= in_use_bytes(sharded, r, 0) <= limit_bytes;
        if (fits) return false;
    }
    return true;
}

double AnalyticBounder::least_computation_s(const Choice& choice) {
    const Choice kept = without_recomputation(choice);
    const Pipeline& pipeline = pipeline_of(choice);
    sum_chunks(kept, pipeline, false);
    return summed_computation_s(kept, pipeline);
}

std::int64_t AnalyticBounder::efficient_micro_batch(const Choice& choice,
                                                    const std::vector<std::int64_t>& micro_batches) const {
    const std::int64_t positions = request_.training.sequence_length / choice.cp;
    std::int64_t efficient = micro_batches.front();
    for (const std::int64_t size : micro_batches) {
        if (size * positions <= kEfficientPositions * choice.tp) efficient = size;
    }
    return efficient;
}

double AnalyticBounder::least_computation_s(const Choice& choice, const std::vector<std::int64_t>& micro_batches) {
    Choice smallest = without_recomputation(choice), efficient = smallest;
    smallest.micro_batch = micro_batches.front();
    // The only size whose costs are needed, so that most cuts are lowered once.
    efficient.micro_batch = efficient_micro_batch(choice, micro_batches);
    const Pipeline& pipeline = pipeline_of(efficient);
    sum_chunks(efficient, pipeline, false);
    const double share =
        kLeastShareOfEfficient * static_cast<double>(smallest.micro_batch) / static_cast<double>(efficient.micro_batch);
    for (ChunkSum& chunk : chunk_sums_) {
        for (double* seconds : {&chunk.forward_s, &chunk.backward_s, &chunk.input_gradient_s, &chunk.vocabulary_s}) {
            *seconds *= share;
        }
        // Short messages may be less efficient by far.
        chunk.forward_tokens = chunk.backward_tokens = {};
        chunk.alone_forward_s = chunk.alone_backward_s = 0;
    }
    return summed_computation_s(smallest, pipeline);
}

double AnalyticBounder::least_computation_s(std::span<const Family> mesh) {
    Choice choice = mesh.front().choice;
    const auto samples = static_cast<double>(request_.training.global_batch_size / choice.dp);
    double least_s = std::numeric_limits<double>::infinity();
    for (const Family& family : mesh) {
        const std::int64_t efficient = efficient_micro_batch(family.choice, family.micro_batches);
        if (&family != mesh.data() && efficient == choice.micro_batch) continue;  // most pipelines have the same
        choice.micro_batch = efficient;
        const LayerCosts& costs = base_costs(choice);
        const LayerCost& head = costs.of_kind.back();
        const std::size_t last = costs.kinds->layers() - 1;
        const double blocks_s =
            costs.total(&LayerCost::forward_s, 1, last) + costs.total(&LayerCost::backward_s, 1, last);
        const double seconds = blocks_s + kLeastVocabularyShare * (head.forward_s + head.backward_s);
        least_s = std::min(least_s, samples * seconds / static_cast<double>(efficient));
    }
    return kRounding * kLeastShareOfEfficient * least_s / static_cast<double>(choice.pp);
}

double AnalyticBounder::summed_computation_s(const Choice& choice, const Pipeline& pipeline) {
    sum_ranks(choice, pipeline);
    double least = 0;
    for (const RankSums& sums : sums_.ranks) {
        const double ahead = row_of(choice.schedule).has_rounds ? std::max(sums.ramp_s, sums.round_s) : sums.ramp_s;
        least = std::max(least, sums_.micro_batches * sums.work_s + std::max(0.0, ahead));
        least = std::max(least, sums_.micro_batches * sums.blocks_s + std::max(0.0, sums.ramp_s));
    }
    return kRounding * least;
}

std::int64_t AnalyticBounder::fewest_recomputed(const Choice& choice, const std::vector<Sharding>& shardings,
                                                std::size_t index, std::int64_t limit_bytes) {
    Pipeline& pipeline = pipeline_of(choice);
    const Sharded& sharded = sharded_of(choice, pipeline, shardings, index);
    Choice tried = choice;
    std::int64_t low = 1, high = largest_chunk(choice);
    while (low < high) {
        const std::int64_t layers = (low + high) / 2;
        tried.relieved_layers() = layers;
        if (memory_bounds(sums_of(tried, pipeline), sharded).least_memory_bytes <= limit_bytes) {
            high = layers;
        } else {
            low = layers + 1;
        }
    }
    return low;
}

}  // namespace orrery::sim
