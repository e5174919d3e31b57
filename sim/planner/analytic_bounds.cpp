#include "sim/planner/analytic_bounds.h"

#include <algorithm>

#include "core/error.h"
#include "core/units.h"
#include "sim/planner/lowered_bounds.h"
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

std::size_t at(std::int64_t index) {
    return static_cast<std::size_t>(index);
}

ScheduleShape shape_of(const Choice& choice, std::int64_t micro_batches) {
    return {.schedule = choice.schedule, .ranks = choice.pp, .chunks = choice.chunks, .micro_batches = micro_batches};
}

std::int64_t micro_batches_of(const PlanRequest& request, const Choice& choice) {
    return request.training.global_batch_size / (choice.dp * choice.micro_batch);
}

std::int64_t copies_of(const Choice& choice) {
    return choice.pp > 1 ? row_of(choice.schedule).model_copies() : 1;
}

void add(LayerCost& sum, const LayerCost& layer) {
    sum.forward_s += layer.forward_s;
    sum.backward_s += layer.backward_s;
    sum.input_gradient_s += layer.input_gradient_s;
    sum.saved_bytes += layer.saved_bytes;
    sum.dense_parameters += layer.dense_parameters;
    sum.expert_parameters += layer.expert_parameters;
}

using InFlight = IndexedVector<ChunkIndex, std::int64_t>;

/// OrderFacts::alive of one rank. `by_frames`: an arena frees a micro-batch's frame at the end of its whole backward
/// pass. An allocator may free the activations once the input gradient is computed.
std::vector<InFlight> largest_states(const std::vector<ComputeTask>& order, std::int64_t chunks, bool by_frames) {
    const auto last = by_frames ? ComputeTask::Kind::backward_weight : ComputeTask::Kind::backward_input;
    std::vector<InFlight> largest;
    InFlight alive(at(chunks), 0);
    bool grew = false;
    const auto keep = [&] {
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
        if (task.kind == ComputeTask::Kind::forward) {
            ++alive[task.chunk];
            grew = true;
        } else if (task.kind == ComputeTask::Kind::backward || task.kind == last) {
            if (grew) keep();
            grew = false;
            --alive[task.chunk];
        }
    }
    return largest;
}

}  // namespace

AnalyticBounder::AnalyticBounder(const PlanRequest& request, const topologies::Cluster& cluster,
                                 const RooflineCost& cost)
    : request_(request), cluster_(cluster), cost_(cost) {}

const AnalyticBounder::Prefix& AnalyticBounder::prefix_of(const Choice& choice) {
    Choice key = layer_costs_key(choice);
    // With a split backward an allocator frees early what the weight-gradient half does not read, so saved bytes are
    // those of a whole backward.
    if (!request_.implementation.memory.lays_out_ahead) key.schedule = Schedule::one_f_one_b;
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

const AnalyticBounder::Groups& AnalyticBounder::groups_of(const Choice& choice) {
    const Choice key{.dp = choice.dp, .tp = choice.tp, .pp = choice.pp, .cp = choice.cp, .ep = choice.ep};
    const auto [entry, fresh] = groups_.try_emplace(key);
    if (!fresh) return entry->second;
    const program::Mesh mesh(plan_of(request_, key));
    const auto place = [&](program::GroupAxis axis) {
        std::vector<std::int64_t> devices = mesh.group_of(axis, 0);
        if (devices.size() < 2) return GroupPlacement{};
        for (std::int64_t& device : devices) device %= cluster_.spec().device_count();
        return place_group(cluster_, devices);
    };
    entry->second.dense = place(program::GroupAxis::dp);
    entry->second.expert = place(program::GroupAxis::edp);
    return entry->second;
}

const std::vector<std::int64_t>& AnalyticBounder::stages_of(const Choice& choice) {
    const auto [entry, fresh] = stages_.try_emplace({choice.schedule, choice.pp, choice.chunks, choice.ends});
    if (fresh) entry->second = stage_layers_of(request_, choice);
    return entry->second;
}

std::int64_t AnalyticBounder::largest_chunk(const Choice& choice) {
    const std::vector<std::int64_t>& blocks = stages_of(choice);
    return *std::max_element(blocks.begin(), blocks.end());
}

AnalyticBounder::RankSums AnalyticBounder::chunk_sums(const Choice& choice) {
    Choice kept = choice;
    if (choice.recompute == Recompute::full) kept.recompute = Recompute::none;
    const std::vector<LayerCost>& whole = prefix_of(kept).sums;
    const std::vector<LayerCost>& again = prefix_of(choice).sums;
    const ScheduleShape shape = shape_of(choice, 1);
    const std::vector<std::int64_t>& blocks = stages_of(choice);
    std::vector<std::int64_t> first(blocks.size() + 1, 0);  // first block of each virtual stage
    for (std::size_t stage = 0; stage < blocks.size(); ++stage) first[stage + 1] = first[stage] + blocks[stage];
    RankSums ranks(at(choice.pp));
    for (std::int64_t rank = 0; rank < choice.pp; ++rank) {
        for (const ChunkIndex c : IndexRange<ChunkIndex>(0, ChunkIndex::of(choice.chunks))) {
            const auto stage = at(program::chunk_place(shape, rank, c).virtual_stage);
            const bool is_first = stage == 0, is_last = stage + 1 == blocks.size();
            ChunkSum& chunk = ranks[at(rank)].emplace_back();
            chunk.stage = stage;
            const auto add_range = [&](const std::vector<LayerCost>& sums, std::int64_t from, std::int64_t to) {
                const LayerCost &before = sums[at(from)], &after = sums[at(to)];
                chunk.forward_s += after.forward_s - before.forward_s;
                chunk.backward_s += after.backward_s - before.backward_s;
                chunk.input_gradient_s += after.input_gradient_s - before.input_gradient_s;
                chunk.saved_bytes += after.saved_bytes - before.saved_bytes;
                chunk.dense += after.dense_parameters - before.dense_parameters;
                chunk.expert += after.expert_parameters - before.expert_parameters;
            };
            // Layer 0 is the embedding, layer i block i - 1, and the last layer the head.
            const std::int64_t begin = first[stage] + 1, end = first[stage + 1] + 1;
            std::int64_t recomputed = 0;
            if (choice.recompute == Recompute::full) {
                recomputed = choice.recompute_layers < 0 ? end - begin : std::min(choice.recompute_layers, end - begin);
            }
            add_range(again, begin, begin + recomputed);
            add_range(choice.recompute == Recompute::selective ? again : whole, begin + recomputed, end);
            chunk.gathered = chunk.dense;
            chunk.gathered_experts = chunk.expert;
            if (is_first) add_range(whole, 0, 1);
            if (is_last) add_range(whole, end, end + 1);
        }
    }
    return ranks;
}

double AnalyticBounder::collective_s(CommKind kind, const GroupPlacement& group, std::int64_t elements,
                                     DType type) const {
    if (group.ranks < 2 || elements == 0) return 0;
    const program::WorkCell cell = program::cell_of(kind, program::GroupAxis::dp, group.nodes > 1);
    return collective_cost(kind, elements * size_of(type), group, cluster_.spec()).seconds *
           program::factor_of(cell, request_.rates);
}

/// Context, workspaces, and the communicators that every plan with this choice has.
std::int64_t AnalyticBounder::runtime_bytes(const Choice& choice) {
    const topologies::ClusterSpec& cluster = request_.cluster;
    const GroupPlacement& dense = groups_of(choice).dense;
    // For a group that does not fit on one node, assume one member on each node: that shape takes the least memory.
    const auto within = [&](std::int64_t ranks, std::int64_t stride) {
        const bool fits = ranks * stride <= cluster.devices_per_node;
        return program::communicator_bytes({.ranks = ranks, .nodes = fits ? 1 : ranks}, cluster.device);
    };
    return program::fixed_device_memory(cluster.device, request_.implementation).in_use() + within(choice.tp, 1) +
           within(choice.cp, choice.tp) + within(choice.ep, choice.tp * choice.cp) +
           program::communicator_bytes({.ranks = dense.ranks, .nodes = dense.nodes}, cluster.device);
}

double AnalyticBounder::optimizer_s(const Choice& choice, std::int64_t dense, std::int64_t expert) {
    const LayerCosts& costs = prefix_of(choice).costs;
    if (costs.optimizer_elements == 0) return 0;
    auto elements = static_cast<double>(dense + expert);
    if (row_of(choice.data_parallel).shards_states) {
        const std::int64_t expert_ranks = choice.dp * choice.cp * choice.tp / choice.ep;
        elements = (static_cast<double>(dense) / static_cast<double>(choice.dp * choice.cp) +
                    static_cast<double>(expert) / static_cast<double>(std::max<std::int64_t>(1, expert_ranks))) /
                   static_cast<double>(copies_of(choice));
    }
    models::Operator update = costs.optimizer;
    const double share = elements / static_cast<double>(costs.optimizer_elements);
    update.elements = static_cast<std::int64_t>(elements);
    update.flops *= share;
    update.bytes_read *= share;
    update.bytes_written *= share;
    return cost_.operator_seconds(update);
}

/// From a rank's first forward to its last pass. The first micro-batch has to run through all later stages and come
/// back as a gradient before the rank's first backward can start. All passes but the forwards before it then remain.
double AnalyticBounder::least_round_s(const RankSums& ranks, std::size_t rank, const OrderFacts& facts,
                                      double micro_batches) {
    const PerChunk<ChunkSum>& own = ranks[rank];
    const std::size_t first = own.front().stage, back = own[facts.first_backward_chunk].stage;
    double round = 0;
    for (const PerChunk<ChunkSum>& chunks : ranks) {
        for (const ChunkSum& chunk : chunks) {
            if (chunk.stage >= first) round += chunk.forward_s;
            if (chunk.stage > back) round += chunk.input_gradient_s;
        }
    }
    for (const ChunkIndex c : own.indices()) {
        round += (micro_batches - static_cast<double>(facts.forwards_ahead[c])) * own[c].forward_s +
                 micro_batches * own[c].backward_s;
    }
    return round;
}

double AnalyticBounder::least_step(const Choice& choice, const RankSums& ranks) {
    const program::Precision& precision = request_.training.precision;
    const Groups& groups = groups_of(choice);
    // DualPipe's two copies of the model share the micro-batches. Its reduction also includes the ranks of the other
    // copy and is not bounded here.
    const std::int64_t copies = copies_of(choice);
    const auto m = static_cast<double>(micro_batches_of(request_, choice)) / static_cast<double>(copies);
    const bool splits = row_of(choice.schedule).splits_backward();
    // The gradient reduction can overlap at most the last backward pass; with several chunks or a split backward at
    // most the work of pp micro-batches.
    const double overlap = splits || choice.chunks > 1 ? std::min(m, static_cast<double>(choice.pp)) : 1;
    const bool by_units = row_of(choice.data_parallel).shards_gradients && !splits;
    const std::vector<OrderFacts>& orders = order_facts(choice, micro_batches_of(request_, choice));
    const bool has_rounds = row_of(choice.schedule).has_rounds;
    double ramp = 0, least = 0;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        const PerChunk<ChunkSum>& chunks = ranks[rank];
        double work = 0;
        std::int64_t dense = 0, expert = 0, gathered = 0, gathered_experts = 0;
        for (const ChunkSum& chunk : chunks) {
            work += chunk.forward_s + chunk.backward_s;
            dense += chunk.dense;
            expert += chunk.expert;
            gathered += chunk.gathered;
            gathered_experts += chunk.gathered_experts;
        }
        const double update = optimizer_s(choice, dense, expert);
        const CommKind kind =
            row_of(choice.data_parallel).shards_states ? CommKind::reduce_scatter : CommKind::all_reduce;
        const double reduction = copies > 1 ? 0
                                            : collective_s(kind, groups.dense, dense, precision.reduction) +
                                                  collective_s(kind, groups.expert, expert, precision.reduction);
        const double beside = splits || choice.chunks > 1 ? work * overlap : chunks.front().backward_s;
        least = std::max(least, m * work + update + (splits ? 0 : ramp));
        least = std::max(least, m * work + update + std::max(0.0, reduction - beside));
        if (has_rounds) least = std::max(least, least_round_s(ranks, rank, orders[rank], m) + update);
        if (by_units) least = std::max(least, m * reduction);
        if (row_of(choice.data_parallel).shards_parameters) {
            const double gather =
                collective_s(CommKind::all_gather, groups.dense, gathered, precision.parameter) +
                collective_s(CommKind::all_gather, groups.expert, gathered_experts, precision.parameter);
            if (!precision.fp8_parameters) least = std::max(least, 2 * m * gather);
        }
        ramp += chunks.front().forward_s + chunks.front().backward_s;
    }
    return kRounding * least;
}

/// Bytes of one micro-batch's hidden states between two stages.
std::int64_t AnalyticBounder::hidden_bytes(const Choice& choice) const {
    const program::Training& training = request_.training;
    const std::int64_t tokens = training.sequence_length / choice.cp * choice.micro_batch;
    return tokens / (choice.sequence_parallel ? choice.tp : 1) * request_.model.hidden *
           size_of(training.precision.activation);
}

AnalyticBounds AnalyticBounder::bounds(const Choice& choice) {
    if (choice.data_parallel == DataParallel::dp) return {};
    const RankSums ranks = chunk_sums(choice);
    const program::Training& training = request_.training;
    const program::Precision& precision = training.precision;
    const std::int64_t micro_batches = micro_batches_of(request_, choice);
    const std::vector<OrderFacts>& orders = order_facts(choice, micro_batches);
    const program::DataParallelRow& kind = row_of(choice.data_parallel);
    const bool splits = row_of(choice.schedule).splits_backward();
    const auto dense_ranks = static_cast<double>(choice.dp * choice.cp * copies_of(choice));
    const auto expert_ranks = static_cast<double>(
        std::max<std::int64_t>(1, choice.dp * choice.cp * choice.tp / choice.ep) * copies_of(choice));
    const bool fp32_shards = request_.implementation.stores_fp32_shards;
    const double parameter_bytes =
        static_cast<double>(kind.shards_parameters && fp32_shards ? 4 : size_of(precision.parameter));
    const bool has_master = precision.master_weights && !(kind.shards_parameters && fp32_shards);
    const bool states_away = training.memory.offload_optimizer;
    const double state_bytes =
        states_away ? 0 : static_cast<double>(4 * training.optimizer.states() + (has_master ? 4 : 0));
    // Where sharded gradients accumulate, unsharded ones may have the parameters' type.
    const auto gradient_bytes =
        static_cast<double>(kind.shards_gradients ? std::min(size_of(precision.gradient), size_of(precision.parameter))
                                                  : size_of(precision.gradient));
    AnalyticBounds result;
    const auto context = static_cast<double>(runtime_bytes(choice));
    // An arena laid out ahead has room for all frames and all transients. An allocator needs room only for what is
    // alive at the peak.
    const bool lays_out_ahead = request_.implementation.memory.lays_out_ahead;
    const std::int64_t transients = lays_out_ahead ? prefix_of(choice).costs.block_transient_bytes : 0;
    // With a split backward the gradient sent to the previous stage lies in a boundary buffer, not in the frame.
    const std::int64_t passed_on = lays_out_ahead && splits ? hidden_bytes(choice) : 0;
    for (std::int64_t rank = 0; rank < choice.pp; ++rank) {
        double states = context;
        for (const ChunkSum& chunk : ranks[at(rank)]) {
            const auto held = [&](std::int64_t elements, double shards) {
                const auto all = static_cast<double>(elements), shard = all / shards;
                const bool shards_gradients = kind.shards_gradients && !splits;
                return parameter_bytes * (kind.shards_parameters ? shard : all) +
                       gradient_bytes * (shards_gradients ? shard : all) +
                       state_bytes * (kind.shards_states ? shard : all);
            };
            states += held(chunk.dense, dense_ranks) + held(chunk.expert, expert_ranks);
        }
        if (training.memory.offload_parameters) states = context;
        std::int64_t most = 0;
        for (const InFlight& state : orders[at(rank)].alive) {
            std::int64_t bytes = 0;
            for (const ChunkIndex c : state.indices()) {
                bytes += state[c] * std::max<std::int64_t>(0, ranks[at(rank)][c].saved_bytes - passed_on);
            }
            if (row_of(choice.schedule).keeps_all_alive) bytes *= micro_batches;
            most = std::max(most, bytes);
        }
        result.least_state_bytes = std::max(result.least_state_bytes, static_cast<std::int64_t>(states));
        result.least_memory_bytes =
            std::max(result.least_memory_bytes, static_cast<std::int64_t>(states) + most + transients);
    }
    result.least_step_s = least_step(choice, ranks);
    return result;
}

std::int64_t AnalyticBounder::fewest_recomputed(const Choice& choice, std::int64_t limit_bytes) {
    Choice tried = choice;
    std::int64_t low = 1, high = largest_chunk(choice);
    while (low < high) {
        tried.recompute_layers = (low + high) / 2;
        if (bounds(tried).least_memory_bytes <= limit_bytes) {
            high = tried.recompute_layers;
        } else {
            low = tried.recompute_layers + 1;
        }
    }
    return low;
}

}  // namespace orrery::sim
