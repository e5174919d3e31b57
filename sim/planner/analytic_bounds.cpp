#include "sim/planner/analytic_bounds.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <utility>

#include "core/error.h"
#include "core/units.h"
#include "sim/planner/isolated_times.h"
#include "sim/program/device_memory.h"
#include "sim/program/schedule.h"
#include "sim/program/work_rates.h"

namespace orrery::sim {

namespace {

using program::ChunkIndex;
using program::CommKind;
using program::ComputeTask;
using program::DataParallel;
using program::Recompute;
using program::Schedule;
using program::ScheduleShape;

/// Allows for rounding of sums, and of the simulator's instructions to a picosecond.
constexpr double kRounding = 1 - 1e-6;
/// From this many micro-batches per pipeline rank on, another one no longer raises the number in flight (except in
/// schedules that keep all of them alive).
constexpr std::int64_t kSettledDepths = 4;

/// In pipelines with more passes the critical path is not walked.
constexpr std::int64_t kMostTasks = 1 << 15;

std::size_t at(std::int64_t index) {
    return static_cast<std::size_t>(index);
}

ScheduleShape shape_of(const Choice& choice, std::int64_t micro_batches) {
    return {.schedule = choice.schedule, .ranks = choice.pp, .chunks = choice.chunks, .micro_batches = micro_batches};
}

/// A choice whose layers have the same times and parameters, and whose costs need one lowering less.
Choice with_whole_backward(Choice choice) {
    choice.schedule = Schedule::one_f_one_b;
    return choice;
}

void add(LayerCost& sum, const LayerCost& layer) {
    sum.forward_s += layer.forward_s;
    sum.backward_s += layer.backward_s;
    sum.input_gradient_s += layer.input_gradient_s;
    sum.input_pass_s += layer.input_pass_s;
    sum.weight_pass_s += layer.weight_pass_s;
    sum.draws += layer.draws;
    sum.saved_bytes += layer.saved_bytes;
    sum.kept_bytes += layer.kept_bytes;
    sum.dense_parameters += layer.dense_parameters;
    sum.expert_parameters += layer.expert_parameters;
}

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

}  // namespace

AnalyticBounder::AnalyticBounder(const PlanRequest& request, const topologies::Cluster& cluster,
                                 const RooflineCost& cost)
    : request_(request), cluster_(cluster), cost_(cost) {
    const models::MemoryChoices& memory = request.implementation.memory;
    if (!memory.lays_out_ahead && !request.cluster.device.host_runs_compute) cached_share_ = memory.cached_share.value;
}

const AnalyticBounder::Prefix& AnalyticBounder::prefix_of(const Choice& choice) {
    const Choice key = layer_costs_key(choice);
    const auto [entry, fresh] = costs_.try_emplace(key);
    if (fresh) {
        Prefix& prefix = entry->second;
        prefix.costs = layer_costs(request_, cluster_, cost_, entry->first);
        LayerCost sum;
        prefix.sums.push_back(sum);
        for (const LayerCost& layer : prefix.costs.layers) {
            add(sum, layer);
            prefix.sums.push_back(sum);
        }
    }
    return entry->second;
}

const std::vector<AnalyticBounder::OrderFacts>& AnalyticBounder::order_facts(const Choice& choice,
                                                                             std::int64_t micro_batches) {
    // If all micro-batches stay alive, one is enough: their memory grows in proportion. The order of schedules that
    // depend on durations is not known here; 1F1B with one micro-batch stands for it.
    const program::ScheduleRow& row = row_of(choice.schedule);
    const bool settles = !row.keeps_all_alive && !row.depends_on_times();
    const std::int64_t enough = kSettledDepths * choice.pp;
    const std::int64_t few = settles ? std::min(micro_batches, enough) : 1;
    const auto [entry, fresh] = orders_.try_emplace({choice.schedule, choice.pp, choice.chunks, few});
    if (fresh) {
        ScheduleShape shape = shape_of(choice, few);
        if (!settles) shape.schedule = Schedule::one_f_one_b;
        for (const auto& order : program::compute_orders(shape)) {
            OrderFacts& facts = entry->second.emplace_back();
            facts.alive = largest_states(order, choice.chunks, request_.implementation.memory.lays_out_ahead);
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

AnalyticBounder::Pipeline& AnalyticBounder::pipeline_of(const Choice& choice) {
    Choice key = choice;
    key.sharding = {};
    key.recompute = Recompute::none;
    key.recompute_parts = 0;
    key.recompute_layers = -1;
    key.micro_batch = 1;
    const auto [entry, fresh] = pipelines_.try_emplace(key);
    Pipeline& pipeline = entry->second;
    if (!fresh) return pipeline;
    const std::vector<std::int64_t> blocks = stage_layers_of(request_, choice);
    pipeline.first_block.assign(1, 0);
    for (const std::int64_t count : blocks) pipeline.first_block.push_back(pipeline.first_block.back() + count);
    const ScheduleShape shape = shape_of(choice, 1);
    std::vector<std::int64_t> load;  // blocks of each rank
    for (std::int64_t rank = 0; rank < choice.pp; ++rank) {
        load.push_back(0);
        for (const ChunkIndex c : IndexRange<ChunkIndex>(0, ChunkIndex::of(choice.chunks))) {
            const auto stage = at(program::chunk_place(shape, rank, c).virtual_stage);
            pipeline.stages.push_back(stage);
            load.back() += blocks[stage];
        }
    }
    const auto most = std::max_element(load.begin(), load.end());
    const auto last_most = std::find(load.rbegin(), load.rend(), *most);
    std::vector<std::int64_t> ranks{
        0, 1, choice.pp - 2, choice.pp - 1, most - load.begin(), std::ssize(load) - 1 - (last_most - load.rbegin())};
    std::erase_if(ranks, [&](std::int64_t rank) { return rank < 0 || rank >= choice.pp; });
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    Choice kept = choice;
    kept.recompute = Recompute::none;
    const Prefix& prefix = prefix_of(with_whole_backward(kept));
    const std::vector<LayerCost>& sums = prefix.sums;
    for (const std::int64_t rank : ranks) {
        pipeline.ranks.push_back(at(rank));
        Elements& elements = pipeline.elements.emplace_back();
        for (std::int64_t c = 0; c < choice.chunks; ++c) {
            const std::size_t stage = pipeline.stages[at(rank * choice.chunks + c)];
            const auto count = [&](std::int64_t from, std::int64_t to, bool gathers) {
                const std::int64_t dense = sums[at(to)].dense_parameters - sums[at(from)].dense_parameters;
                const std::int64_t expert = sums[at(to)].expert_parameters - sums[at(from)].expert_parameters;
                elements.dense += dense;
                elements.expert += expert;
                if (!gathers) return;
                elements.gathered += dense;
                elements.gathered_experts += expert;
            };
            const std::int64_t begin = pipeline.first_block[stage] + 1, end = pipeline.first_block[stage + 1] + 1;
            const std::int64_t before = elements.dense;
            count(begin, end, true);
            const std::int64_t blocks_end = elements.dense;
            if (stage == 0) count(0, 1, false);
            if (stage + 1 == pipeline.stage_count()) count(end, end + 1, false);
            elements.largest_chunk = std::max(elements.largest_chunk, elements.dense - before);
            elements.largest_ends = std::max(elements.largest_ends, elements.dense - blocks_end);
            if (end > begin) ++elements.chunks[end - begin];
            for (std::int64_t layer = begin; layer < end; ++layer) {
                const LayerCost& block = prefix.costs.layers[at(layer)];
                const std::int64_t all = block.dense_parameters + block.expert_parameters;
                elements.largest_block = std::max(elements.largest_block, all);
                elements.smallest_block = elements.smallest_block == 0 ? all : std::min(elements.smallest_block, all);
            }
        }
    }
    return pipeline;
}

std::int64_t AnalyticBounder::largest_chunk(const Choice& choice) {
    const std::vector<std::int64_t>& first = pipeline_of(choice).first_block;
    std::int64_t most = 0;
    for (std::size_t stage = 0; stage + 1 < first.size(); ++stage)
        most = std::max(most, first[stage + 1] - first[stage]);
    return most;
}

/// Calls visit(whether full recomputation applies, first layer, end) for the layers of a virtual stage.
template <typename Visit>
void AnalyticBounder::for_each_range(const Choice& choice, const Pipeline& pipeline, std::size_t stage,
                                     const Visit& visit) {
    // Layer 0 is the embedding, layer i block i - 1, and the last layer the head.
    const std::size_t begin = at(pipeline.first_block[stage] + 1), end = at(pipeline.first_block[stage + 1] + 1);
    std::size_t recomputed = 0;
    if (choice.recompute == Recompute::full) {
        recomputed = choice.recompute_layers < 0 ? end - begin : std::min(at(choice.recompute_layers), end - begin);
    }
    if (recomputed > 0) visit(true, begin, begin + recomputed);
    const bool is_first = stage == 0, is_last = stage + 1 == pipeline.stage_count();
    visit(false, begin + recomputed, is_last ? end + 1 : end);
    if (is_first) visit(false, 0, 1);
}

void AnalyticBounder::sum_chunks(const Choice& choice, const Pipeline& pipeline, bool counts_memory) {
    Choice kept = counts_memory ? choice : with_whole_backward(choice);
    if (choice.recompute == Recompute::full) kept.recompute = Recompute::none;
    const Prefix& again = prefix_of(counts_memory ? choice : kept);
    const std::vector<LayerCost>& whole = prefix_of(kept).sums;
    chunk_sums_.assign(pipeline.stage_count(), {});
    for (std::size_t stage = 0; stage < chunk_sums_.size(); ++stage) {
        ChunkSum& chunk = chunk_sums_[stage];
        const auto add_range = [&](const std::vector<LayerCost>& sums, std::size_t from, std::size_t to) {
            const LayerCost &before = sums[from], &after = sums[to];
            chunk.forward_s += after.forward_s - before.forward_s;
            chunk.backward_s += after.backward_s - before.backward_s;
            chunk.input_gradient_s += after.input_gradient_s - before.input_gradient_s;
            chunk.input_pass_s += after.input_pass_s - before.input_pass_s;
            chunk.weight_pass_s += after.weight_pass_s - before.weight_pass_s;
            chunk.saved_bytes += after.saved_bytes - before.saved_bytes;
            chunk.kept_bytes += after.kept_bytes - before.kept_bytes;
        };
        for_each_range(choice, pipeline, stage, [&](bool recomputes, std::size_t from, std::size_t to) {
            add_range(recomputes ? again.sums : whole, from, to);
        });
    }
    // An arena laid out ahead has room for all frames and all transients. An allocator needs room only for what is
    // alive at the peak.
    const bool lays_out_ahead = request_.implementation.memory.lays_out_ahead;
    transient_bytes_ = lays_out_ahead ? again.costs.block_transient_bytes : 0;
    // With a split backward the gradient sent to the previous stage lies in a boundary buffer, not in the frame.
    passed_on_bytes_ = lays_out_ahead && row_of(choice.schedule).splits_backward() ? hidden_bytes(choice) : 0;
}

/// From a rank's first forward to its last pass: the first micro-batch has to run through all later stages and come
/// back as a gradient before the rank's first backward can start. All passes but the forwards before it then remain.
void AnalyticBounder::sum_draws(const Choice& choice, const Pipeline& pipeline) {
    Choice kept = choice;
    if (choice.recompute == Recompute::full) kept.recompute = Recompute::none;
    const std::vector<LayerCost>& again = prefix_of(choice).sums;
    const std::vector<LayerCost>& whole = prefix_of(kept).sums;
    for (std::size_t i = 0; i < rank_sums_.size(); ++i) {
        RankSums& sums = rank_sums_[i];
        for (std::size_t c = 0; c < at(choice.chunks); ++c) {
            for_each_range(choice, pipeline, pipeline.stages[pipeline.ranks[i] * at(choice.chunks) + c],
                           [&](bool recomputes, std::size_t from, std::size_t to) {
                               const std::vector<LayerCost>& costs = recomputes ? again : whole;
                               sums.draws += costs[to].draws;
                               sums.draws -= costs[from].draws;
                           });
        }
        sums.waiting_s = std::max(0.0, sums.work_s - sums.draws.seconds());
    }
}

void AnalyticBounder::sum_ranks(const Choice& choice, const Pipeline& pipeline) {
    const std::int64_t micro_batches = micro_batches_of(choice);
    const std::vector<OrderFacts>& orders = order_facts(choice, micro_batches);
    const program::ScheduleRow& row = row_of(choice.schedule);
    const bool splits = row.splits_backward();
    // DualPipe's two copies of the model share the micro-batches.
    micro_batches_ = static_cast<double>(micro_batches) / static_cast<double>(copies_of(choice));
    // The gradient reduction can overlap at most the last backward pass; with several chunks or a split backward at
    // most the work of pp micro-batches.
    const double overlap = std::min(micro_batches_, static_cast<double>(choice.pp));
    const auto chunk_of = [&](std::size_t rank, std::size_t chunk) -> const ChunkSum& {
        return chunk_sums_[pipeline.stages[rank * at(choice.chunks) + chunk]];
    };
    rank_sums_.clear();
    double ramp = 0;
    std::size_t before = 0;
    for (const std::size_t rank : pipeline.ranks) {
        for (; before < rank; ++before) ramp += chunk_of(before, 0).forward_s + chunk_of(before, 0).backward_s;
        const OrderFacts& facts = orders[rank];
        RankSums& sums = rank_sums_.emplace_back();
        sums.ramp_s = splits ? 0 : ramp;
        for (std::size_t c = 0; c < at(choice.chunks); ++c) {
            const ChunkSum& chunk = chunk_of(rank, c);
            sums.work_s += chunk.forward_s + chunk.backward_s;
            if (row.has_rounds) {
                sums.round_s -= static_cast<double>(facts.forwards_ahead[ChunkIndex::of(c)]) * chunk.forward_s;
            }
        }
        if (row.has_rounds) {
            const std::size_t first = pipeline.stages[rank * at(choice.chunks)];
            const std::size_t back = pipeline.stages[rank * at(choice.chunks) + facts.first_backward_chunk.position()];
            for (std::size_t s = first; s < chunk_sums_.size(); ++s) sums.round_s += chunk_sums_[s].forward_s;
            for (std::size_t s = back + 1; s < chunk_sums_.size(); ++s) sums.round_s += chunk_sums_[s].input_gradient_s;
        }
        sums.beside_s = splits || choice.chunks > 1 ? sums.work_s * overlap : chunk_of(rank, 0).backward_s;
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
    }
}

AnalyticBounds AnalyticBounder::bounds(const Choice& choice, const Sharded& sharded) const {
    const program::ScheduleRow& row = row_of(choice.schedule);
    const double m = micro_batches_, gathers = gathers_of(choice.sharding);
    const double reductions = reductions_of(choice);
    double least = 0;
    AnalyticBounds result;
    for (std::size_t i = 0; i < rank_sums_.size(); ++i) {
        const RankSums& sums = rank_sums_[i];
        const ShardedRank& rank = sharded.ranks[i];
        const double alone = m * (sums.work_s + rank.staging_s + rank.first_gathers_s) + rank.update_s;
        double extra =
            std::max(sums.ramp_s, std::max(rank.reduction.seconds, rank.replication.seconds) - sums.beside_s);
        if (row.has_rounds) extra = std::max(extra, sums.round_s);
        least = std::max(least, alone + std::max(0.0, extra));
        const double idle = std::max({0.0, sums.ramp_s, row.has_rounds ? sums.round_s : 0.0});
        // Of one micro-batch, beside which idle time, updates and casts count as time without computation.
        const double free = (idle + rank.update_s) / m + rank.staging_s + rank.first_gathers_s + sums.waiting_s;
        const double delay =
            std::max(sums.draws.least_delay_s(rank.reduction.held, reductions / m * rank.reduction.seconds, free),
                     sums.draws.least_delay_s(rank.gather.held, gathers * rank.gather.seconds, free));
        least = std::max(least, alone + idle + m * delay);
        if (reductions > 1) least = std::max(least, reductions * rank.reduction.seconds);
        least = std::max(least, gathers * m * rank.gather.seconds);
        least = std::max(least,
                         reductions * rank.reduction.nic_s + rank.replication.nic_s + gathers * m * rank.gather.nic_s);
        const auto in_use = [&](std::int64_t activations) {
            const double tensors = rank.state_bytes + static_cast<double>(activations + transient_bytes_);
            return static_cast<std::int64_t>(sharded.context_bytes + tensors * (1 + cached_share_));
        };
        result.least_state_bytes = std::max(result.least_state_bytes, in_use(-transient_bytes_));
        result.least_memory_bytes = std::max(result.least_memory_bytes, in_use(sums.activation_bytes));
    }
    result.least_step_s = kRounding * least;
    return result;
}

/// Bytes of one micro-batch's hidden states between two stages.
std::int64_t AnalyticBounder::hidden_bytes(const Choice& choice) const {
    const program::Training& training = request_.training;
    const std::int64_t tokens = training.sequence_length / choice.cp * choice.micro_batch;
    return tokens / (choice.sequence_parallel ? choice.tp : 1) * request_.model.hidden *
           size_of(training.precision.activation);
}

AnalyticBounds AnalyticBounder::bounds(const Choice& choice) {
    if (choice.sharding.data_parallel == DataParallel::dp) return {};
    const Pipeline& pipeline = pipeline_of(choice);
    sum_chunks(choice, pipeline);
    sum_ranks(choice, pipeline);
    sum_draws(choice, pipeline);
    return bounds(choice, shard(choice, pipeline));
}

void AnalyticBounder::bounds_of_each(const Choice& choice, const std::vector<Sharding>& shardings,
                                     std::vector<AnalyticBounds>& found) {
    Pipeline& pipeline = pipeline_of(choice);
    Choice one = choice;
    if (pipeline.sharded.empty()) {
        for (const Sharding& sharding : shardings) {
            one.sharding = sharding;
            pipeline.sharded.push_back(shard(one, pipeline));
        }
    }
    ORRERY_CHECK(pipeline.sharded.size() == shardings.size(), "a pipeline with two lists of shardings");
    sum_chunks(choice, pipeline);
    sum_ranks(choice, pipeline);
    sum_draws(choice, pipeline);
    found.clear();
    for (std::size_t i = 0; i < shardings.size(); ++i) {
        one.sharding = shardings[i];
        found.push_back(shardings[i].data_parallel == DataParallel::dp ? AnalyticBounds()
                                                                       : bounds(one, pipeline.sharded[i]));
    }
}

double AnalyticBounder::least_computation_s(const Choice& choice) {
    Choice kept = choice;
    kept.recompute = Recompute::none;
    const Pipeline& pipeline = pipeline_of(choice);
    sum_chunks(kept, pipeline, false);
    sum_ranks(kept, pipeline);
    double least = 0;
    for (const RankSums& sums : rank_sums_) {
        const double ahead = row_of(choice.schedule).has_rounds ? std::max(sums.ramp_s, sums.round_s) : sums.ramp_s;
        least = std::max(least, micro_batches_ * sums.work_s + std::max(0.0, ahead));
    }
    return kRounding * least;
}

double AnalyticBounder::path_s(const Choice& choice) {
    const ScheduleShape shape = shape_of(choice, micro_batches_of(choice));
    const bool is_short = shape.micro_batches * shape.ranks * shape.chunks <= kMostTasks;
    if (row_of(choice.schedule).depends_on_times() || copies_of(choice) > 1 || !is_short) return 0;
    Choice key = choice;
    key.sharding = {.pp_before_dp = choice.sharding.pp_before_dp};
    const auto [entry, fresh] = paths_.try_emplace(key, 0.0);
    if (!fresh) return entry->second;
    const Pipeline& pipeline = pipeline_of(choice);
    sum_chunks(choice, pipeline);
    const auto chunks = at(choice.chunks), stages = pipeline.stage_count(), m = at(shape.micro_batches);
    const double transfer = transfer_s(choice).first;
    constexpr double kNever = -1;
    std::vector<double> forward(stages * m, kNever), backward(stages * m, kNever);  // when the next stage has them
    std::vector<double> free(at(choice.pp), 0);
    std::vector<std::size_t> next(at(choice.pp), 0);
    const std::vector<std::vector<ComputeTask>> orders = program::compute_orders(shape);
    const auto run = [&](std::size_t rank, const ComputeTask& task) {
        const std::size_t stage = pipeline.stages[rank * chunks + task.chunk.position()];
        const ChunkSum& costs = chunk_sums_[stage];
        const auto b = at(task.micro_batch);
        const bool is_forward = task.kind == ComputeTask::Kind::forward, is_last = stage + 1 == stages;
        double ready = 0;
        if (is_forward && stage > 0) ready = forward[(stage - 1) * m + b];
        if (task.kind == ComputeTask::Kind::backward || task.kind == ComputeTask::Kind::backward_input) {
            ready = is_last ? forward[stage * m + b] : backward[(stage + 1) * m + b];
        }
        if (ready == kNever) return false;
        const std::array<double, 4> seconds{costs.forward_s, costs.backward_s, costs.input_pass_s, costs.weight_pass_s};
        free[rank] = std::max(free[rank], ready) + seconds[static_cast<std::size_t>(task.kind)];
        if (task.kind == ComputeTask::Kind::backward_weight) return true;
        const bool stays = is_forward ? is_last || pipeline.rank_of(stage + 1, chunks) == rank
                                      : stage == 0 || pipeline.rank_of(stage - 1, chunks) == rank;
        (is_forward ? forward : backward)[stage * m + b] = free[rank] + (stays ? 0 : transfer);
        return true;
    };
    for (bool goes_on = true; goes_on;) {
        goes_on = false;
        for (std::size_t rank = 0; rank < orders.size(); ++rank) {
            while (next[rank] < orders[rank].size() && run(rank, orders[rank][next[rank]])) {
                ++next[rank];
                goes_on = true;
            }
        }
    }
    // The next step begins on the first rank; later ranks may still be busy then.
    return entry->second = kRounding * free.front();
}

std::int64_t AnalyticBounder::fewest_recomputed(const Choice& choice, std::int64_t limit_bytes) {
    const Pipeline& pipeline = pipeline_of(choice);
    const Sharded sharded = shard(choice, pipeline);
    Choice tried = choice;
    std::int64_t low = 1, high = largest_chunk(choice);
    while (low < high) {
        tried.recompute_layers = (low + high) / 2;
        sum_chunks(tried, pipeline);
        sum_ranks(tried, pipeline);
        if (bounds(tried, sharded).least_memory_bytes <= limit_bytes) {
            high = tried.recompute_layers;
        } else {
            low = tried.recompute_layers + 1;
        }
    }
    return low;
}

}  // namespace orrery::sim
