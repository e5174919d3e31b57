// AnalyticBounder: what depends on how the ranks of a stage share states.
#include <algorithm>
#include <limits>
#include <utility>

#include "core/error.h"
#include "sim/planner/analytic_bounds.h"
#include "sim/planner/isolated_times.h"
#include "sim/program/device_memory.h"

namespace orrery::sim {
namespace {

using program::CommKind;
using program::DataParallel;
using program::Recompute;

std::size_t at(std::int64_t index) {
    return static_cast<std::size_t>(index);
}

/// As reduces_each_micro_batch().
bool reduces_each(const Choice& choice) {
    return row_of(choice.sharding.data_parallel).shards_gradients && !row_of(choice.schedule).splits_backward();
}

/// The sum holds the smallest share.
void add_to(CommunicationTimes& sum, const CommunicationTimes& times, double count) {
    if (times.seconds <= 0) return;
    sum.held = sum.seconds > 0 ? std::min(sum.held, times.held) : times.held;
    sum.seconds += count * times.seconds;
    sum.nic_s += count * times.nic_s;
}

}  // namespace

AnalyticBounder::PlacementId AnalyticBounder::intern(std::vector<std::int64_t> devices) {
    if (devices.size() < 2) return kAlone;
    for (std::int64_t& device : devices) device %= cluster_.spec().device_count();
    const std::int64_t stride = devices[1] - devices[0];
    const auto leaves_rhythm = [&](std::int64_t a, std::int64_t b) { return b - a != stride; };
    const bool is_regular = std::adjacent_find(devices.begin(), devices.end(), leaves_rhythm) == devices.end();
    const auto add = [&] {
        const GroupPlacement placement = place_group(cluster_, devices);
        const auto known = std::find(placements_.begin(), placements_.end(), placement);
        const auto id = static_cast<PlacementId>(known - placements_.begin());
        if (known == placements_.end()) placements_.push_back(placement);
        return id;
    };
    if (!is_regular) return add();
    const auto [entry, fresh] = regular_placements_.try_emplace({devices.front(), stride, std::ssize(devices)}, kAlone);
    if (fresh) entry->second = add();
    return entry->second;
}

const AnalyticBounder::Groups& AnalyticBounder::groups_of(const Choice& choice) {
    const Choice key{.dp = choice.dp,
                     .tp = choice.tp,
                     .pp = choice.pp,
                     .cp = choice.cp,
                     .ep = choice.ep,
                     .sharding = {.data_parallel = DataParallel::zero1,
                                  .dp_shard = choice.sharding.dp_shard,
                                  .pp_before_dp = choice.sharding.pp_before_dp}};
    const auto [entry, fresh] = groups_.try_emplace(key);
    if (!fresh) return entry->second;
    const program::Mesh mesh(plan_of(request_, key));
    const auto place = [&](program::GroupAxis axis) { return intern(mesh.group_of(axis, 0)); };
    Groups& groups = entry->second;
    groups.dense = place(program::GroupAxis::dp);
    groups.expert = place(program::GroupAxis::edp);
    if (shards_partly(choice)) {
        groups.shard = place(program::GroupAxis::dp_shard);
        groups.replicate = place(program::GroupAxis::dp_replicate);
    }
    for (std::int64_t stage = 0; stage + 1 < choice.pp; ++stage) {
        const PlacementId pair = intern(mesh.group_of(program::GroupAxis::down_forward, mesh.rank_at({.pp = stage})));
        if (std::find(groups.transfers.begin(), groups.transfers.end(), pair) == groups.transfers.end()) {
            groups.transfers.push_back(pair);
        }
    }
    return groups;
}

const CommunicationTimes& AnalyticBounder::collective(CommKind kind, PlacementId id, std::int64_t elements, DType type,
                                                      program::GroupAxis axis) {
    static const CommunicationTimes none;
    if (id == kAlone || elements == 0) return none;
    const std::int64_t bytes = elements * size_of(type);
    const auto [entry, fresh] = collectives_.try_emplace({id, kind, bytes});
    if (!fresh) return entry->second;
    entry->second = communication_times(kind, axis, bytes, placements_[at(id)], cluster_.spec(), request_.rates);
    return entry->second;
}

/// Context, workspaces, and the communicators that every plan with this choice has.
std::int64_t AnalyticBounder::runtime_bytes(const Choice& choice) {
    const topologies::ClusterSpec& cluster = request_.cluster;
    const Groups& groups = groups_of(choice);
    // For a group that does not fit on one node, assume one member on each node: that shape takes the least memory.
    const auto within = [&](std::int64_t ranks, std::int64_t stride) {
        const bool fits = ranks * stride <= cluster.devices_per_node;
        return program::communicator_bytes({.ranks = ranks, .nodes = fits ? 1 : ranks}, cluster.device);
    };
    std::int64_t bytes = program::fixed_device_memory(cluster.device, request_.implementation).in_use() +
                         within(choice.tp, 1) + within(choice.cp, choice.tp) + within(choice.ep, choice.tp * choice.cp);
    const auto add = [&](PlacementId id) {
        if (id == kAlone) return;
        const GroupPlacement& group = placements_[at(id)];
        bytes += program::communicator_bytes({.ranks = group.ranks, .nodes = group.nodes}, cluster.device);
    };
    if (scatters(choice.sharding) && groups.shard != kAlone) {
        add(groups.shard);
        add(groups.replicate);
    } else {
        add(groups.dense);
    }
    return bytes;
}

bool AnalyticBounder::shards_partly(const Choice& choice) {
    return choice.sharding.dp_shard > 0 && choice.sharding.dp_shard < choice.dp * choice.cp;
}

/// Ranks that share one set of shards of the dense parameters.
std::int64_t AnalyticBounder::dense_shards(const Choice& choice) {
    return shards_partly(choice) ? choice.sharding.dp_shard : choice.dp * choice.cp;
}

std::int64_t AnalyticBounder::expert_shards(const Choice& choice) {
    return std::max<std::int64_t>(1, choice.dp * choice.cp * choice.tp / choice.ep);
}

std::int64_t AnalyticBounder::copies_of(const Choice& choice) {
    return choice.pp > 1 ? row_of(choice.schedule).model_copies() : 1;
}

/// Whether gradients are reduce-scattered rather than all-reduced.
bool AnalyticBounder::scatters(const Sharding& sharding) const {
    const program::DataParallelRow& kind = row_of(sharding.data_parallel);
    return kind.shards_states && (request_.implementation.data_parallel.reduces_to_owner || kind.shards_gradients);
}

double AnalyticBounder::optimizer_s(const Choice& choice, const LayerCosts& costs, const Elements& own) const {
    if (costs.optimizer_elements == 0) return 0;
    auto elements = static_cast<double>(own.dense + own.expert);
    if (row_of(choice.sharding.data_parallel).shards_states) {
        elements = (static_cast<double>(own.dense) / static_cast<double>(dense_shards(choice)) +
                    static_cast<double>(own.expert) / static_cast<double>(expert_shards(choice))) /
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

/// The elements from which on a bucket is closed, and which a unit does not exceed.
std::int64_t AnalyticBounder::bucket_cap(const Choice& choice) const {
    const models::DataParallelChoices& choices = request_.implementation.data_parallel;
    return std::max(choices.bucket_bytes / size_of(request_.training.precision.gradient),
                    choices.bucket_elements_per_rank * choice.dp * choice.cp * copies_of(choice));
}

/// The most blocks that are gathered and whose gradients are reduced together.
std::int64_t AnalyticBounder::blocks_of_unit(const Choice& choice, const Elements& own) const {
    if (request_.implementation.data_parallel.buckets_by_layer) return 1;
    return std::max<std::int64_t>(1, bucket_cap(choice) / std::max<std::int64_t>(1, own.smallest_block));
}

/// Calls visit(number of units, elements of each) for units of equal size, where blocks are alike and have `elements`
/// together.
template <typename Visit>
void AnalyticBounder::for_each_unit(std::int64_t elements, const Elements& own, std::int64_t together,
                                    const Visit& visit) {
    std::int64_t blocks = 0;
    for (const auto& [size, count] : own.chunks) blocks += size * count;
    if (blocks == 0) return;
    const std::int64_t of_block = elements / blocks;
    for (const auto& [size, count] : own.chunks) {
        if (size >= together) visit(count * (size / together), of_block * together);
        if (size % together != 0) visit(count, of_block * (size % together));
    }
}

/// Times of a collective that runs for each unit; `elements` are those of all blocks. If blocks differ, one collective
/// of all elements, which takes less time.
CommunicationTimes AnalyticBounder::of_units(CommKind kind, PlacementId group, std::int64_t elements, DType type,
                                             const Elements& own, std::int64_t together) {
    if (own.largest_block != own.smallest_block) return collective(kind, group, elements, type);
    CommunicationTimes sum;
    for_each_unit(elements, own, together, [&](std::int64_t count, std::int64_t of_unit) {
        const CommunicationTimes& one = collective(kind, group, of_unit, type);
        add_to(sum, one, static_cast<double>(count));
    });
    return sum;
}

/// Time of the casts of a unit's gradients into the staging buffer, for all units; `elements` are those of all blocks.
double AnalyticBounder::staging_s(DType gradient, std::int64_t elements, const Elements& own,
                                  std::int64_t together) const {
    if (own.largest_block != own.smallest_block || elements == 0) return 0;
    double sum = 0;
    for_each_unit(elements, own, together, [&](std::int64_t count, std::int64_t of_unit) {
        models::Operator cast{.kind = models::OpKind::cast, .elements = of_unit};
        cast.flops = static_cast<double>(of_unit);
        cast.bytes_read = static_cast<double>(of_unit * size_of(gradient));
        cast.bytes_written = static_cast<double>(of_unit * size_of(request_.training.precision.reduction));
        sum += static_cast<double>(count) * cost_.operator_seconds(cast);
    });
    return sum;
}

/// The fewest bytes of the windows of gathered units and of gradients that are reduced by unit, and of the staging
/// buffers of reductions.
std::int64_t AnalyticBounder::buffer_bytes(const Choice& choice, const Elements& own) const {
    const program::DataParallelRow& kind = row_of(choice.sharding.data_parallel);
    const models::DataParallelChoices& choices = request_.implementation.data_parallel;
    const program::Precision& precision = request_.training.precision;
    const std::int64_t ranks = choice.dp * choice.cp * copies_of(choice);
    if (ranks < 2) return 0;
    const bool reduces_units = kind.shards_gradients && !row_of(choice.schedule).splits_backward();
    const DType gradient = reduces_units && kind.shards_parameters ? precision.parameter : precision.gradient;
    const bool is_staged = precision.reduction != gradient || choices.fusion_buffer || kind.shards_parameters;
    // Without overlap, staging buffers exist only when no activation is alive.
    const bool counts_staging =
        is_staged && (choices.overlaps_backward || request_.implementation.memory.lays_out_ahead);
    const std::int64_t cap = bucket_cap(choice);
    const std::int64_t staged_type = size_of(precision.reduction);
    if (!reduces_units && !kind.shards_parameters) {
        return counts_staging && !choices.buckets_by_layer ? std::min(cap, own.largest_chunk) * staged_type : 0;
    }
    if (request_.implementation.memory.windows_hold_tensors || own.chunks.empty()) return 0;
    const bool has_root = choices.keeps_root_gathered || request_.model.tied_embeddings;
    const std::int64_t roots = has_root ? own.dense - own.gathered : 0;
    const std::int64_t together = blocks_of_unit(choice, own);
    const std::int64_t units = (own.chunks.rbegin()->first + together - 1) / together;
    const std::int64_t turns = 1 + std::max(choices.forward_prefetch, choices.backward_prefetch);
    std::int64_t bytes = 0;
    if (kind.shards_parameters) {
        const std::int64_t slots = std::min(units, turns) * own.largest_block;
        const std::int64_t kept =
            choice.sharding.reshards ? slots : std::max(slots, own.gathered + own.gathered_experts);
        bytes += (roots + kept) * size_of(precision.fp8_parameters ? DType::fp8 : precision.parameter);
    }
    if (reduces_units)
        bytes += (roots + (is_staged ? 1 : std::min<std::int64_t>(2, units)) * own.largest_block) * size_of(gradient);
    if (counts_staging) bytes += std::max(own.largest_block, has_root ? own.largest_ends : 0) * staged_type;
    return bytes;
}

/// Bytes of parameters, gradients and optimizer states.
double AnalyticBounder::state_bytes(const Choice& choice, const Elements& own) const {
    const program::Training& training = request_.training;
    const program::Precision& precision = training.precision;
    if (training.memory.offload_parameters) return 0;
    const program::DataParallelRow& kind = row_of(choice.sharding.data_parallel);
    const std::int64_t copies = copies_of(choice), dense_ranks = dense_shards(choice) * copies,
                       expert_ranks = expert_shards(choice) * copies;
    const bool fp32_shards = kind.shards_parameters && request_.implementation.stores_fp32_shards;
    const bool has_master = precision.master_weights && !fp32_shards;
    const std::int64_t parameter = fp32_shards ? 4 : size_of(precision.parameter);
    const std::int64_t update =
        training.memory.offload_optimizer ? 0 : 4 * training.optimizer.states() + (has_master ? 4 : 0);
    // Where sharded gradients accumulate, unsharded ones may have the parameters' type.
    const std::int64_t gradient = kind.shards_gradients
                                      ? std::min(size_of(precision.gradient), size_of(precision.parameter))
                                      : size_of(precision.gradient);
    const bool shards_gradients = kind.shards_gradients && !row_of(choice.schedule).splits_backward();
    const auto held = [&](std::int64_t elements, std::int64_t shards) {
        const auto all = static_cast<double>(elements), part = all / static_cast<double>(shards);
        return static_cast<double>(parameter) * (kind.shards_parameters ? part : all) +
               static_cast<double>(gradient) * (shards_gradients ? part : all) +
               static_cast<double>(update) * (kind.shards_states ? part : all);
    };
    return held(own.dense, dense_ranks) + held(own.expert, expert_ranks);
}

void AnalyticBounder::add_reductions(const Choice& choice, const Elements& own, ShardedRank& rank) {
    const program::Precision& precision = request_.training.precision;
    const program::DataParallelRow& kind = row_of(choice.sharding.data_parallel);
    const Groups& groups = groups_of(choice);
    const bool scatters = this->scatters(choice.sharding), partly = scatters && shards_partly(choice);
    const CommKind each = scatters ? CommKind::reduce_scatter : CommKind::all_reduce;
    const bool by_units = kind.shards_gradients && !row_of(choice.schedule).splits_backward();
    const bool by_layer = by_units || request_.implementation.data_parallel.buckets_by_layer;
    const std::int64_t together = blocks_of_unit(choice, own);
    const auto reduce = [&](PlacementId group, std::int64_t elements, std::int64_t of_blocks) {
        add_to(rank.reduction,
               by_layer ? of_units(each, group, of_blocks, precision.reduction, own, together)
                        : collective(each, group, elements, precision.reduction),
               1);
    };
    reduce(partly ? groups.shard : groups.dense, own.dense, own.gathered);
    reduce(groups.expert, own.expert, own.gathered_experts);
    const DType gradient = kind.shards_parameters ? precision.parameter : precision.gradient;
    if (by_units && (kind.shards_parameters || precision.reduction != gradient)) {
        if (groups.dense != kAlone) rank.staging_s += staging_s(gradient, own.gathered, own, together);
        if (groups.expert != kAlone) rank.staging_s += staging_s(gradient, own.gathered_experts, own, together);
    }
    if (partly) {
        const std::int64_t shards = choice.sharding.dp_shard;
        rank.replication =
            by_layer ? of_units(CommKind::all_reduce, groups.replicate, own.gathered / shards, precision.reduction, own,
                                together)
                     : collective(CommKind::all_reduce, groups.replicate, own.dense / shards, precision.reduction);
    }
}

void AnalyticBounder::add_gathers(const Choice& choice, const Elements& own, ShardedRank& rank) {
    const program::Precision& precision = request_.training.precision;
    const program::DataParallelRow& kind = row_of(choice.sharding.data_parallel);
    const Groups& groups = groups_of(choice);
    const PlacementId dense = shards_partly(choice) && scatters(choice.sharding) ? groups.shard : groups.dense;
    if (!kind.shards_parameters) {
        rank.regather_s = collective(CommKind::all_gather, dense, own.dense, precision.parameter).seconds +
                          collective(CommKind::all_gather, groups.expert, own.expert, precision.parameter).seconds;
    } else if (!precision.fp8_parameters) {
        const std::int64_t together = blocks_of_unit(choice, own);
        const auto gather = [&](PlacementId group, std::int64_t elements) {
            add_to(rank.gather, of_units(CommKind::all_gather, group, elements, precision.parameter, own, together), 1);
        };
        gather(dense, own.gathered);
        gather(groups.expert, own.gathered_experts);
        // A chunk of one unit gathers it into the place that the unit of the pass before has just left.
        const auto single = own.chunks.find(1);
        if (choice.sharding.reshards && own.largest_block == own.smallest_block && single != own.chunks.end()) {
            const std::int64_t count = single->second;
            std::int64_t blocks = 0;
            for (const auto& [size, chunks] : own.chunks) blocks += size * chunks;
            rank.first_gathers_s =
                gathers_of(choice.sharding) * static_cast<double>(count) *
                collective(CommKind::all_gather, dense, own.gathered / blocks, precision.parameter).seconds;
        }
    }
}

AnalyticBounder::Sharded AnalyticBounder::shard(const Choice& choice, const Pipeline& pipeline) {
    Choice whole = choice;
    whole.recompute = Recompute::none;
    whole.recompute_parts = 0;
    whole.schedule = program::Schedule::one_f_one_b;
    const LayerCosts& costs = prefix_of(whole).costs;
    Sharded result{.context_bytes = static_cast<double>(runtime_bytes(choice))};
    for (const Elements& own : pipeline.elements) {
        ShardedRank& rank = result.ranks.emplace_back();
        rank.state_bytes = state_bytes(choice, own) + static_cast<double>(buffer_bytes(choice, own));
        rank.update_s = optimizer_s(choice, costs, own);
        // DualPipe's reduction also includes the ranks of the other copy and is not bounded here.
        if (copies_of(choice) == 1) add_reductions(choice, own, rank);
        if (row_of(choice.sharding.data_parallel).shards_states) add_gathers(choice, own, rank);
    }
    return result;
}

std::pair<double, double> AnalyticBounder::transfer_s(const Choice& choice) {
    if (choice.pp == 1) return {0, 0};
    std::pair<double, double> ends{std::numeric_limits<double>::infinity(), 0};
    const std::int64_t elements = hidden_bytes(choice) / size_of(request_.training.precision.activation);
    for (const PlacementId pair : groups_of(choice).transfers) {
        const double seconds = collective(CommKind::send, pair, elements, request_.training.precision.activation,
                                          program::GroupAxis::down_forward)
                                   .seconds;
        ends = {std::min(ends.first, seconds), std::max(ends.second, seconds)};
    }
    return ends;
}

double AnalyticBounder::most_excess_s(const Choice& choice, const std::vector<Sharding>& shardings, std::size_t a,
                                      std::size_t b) {
    const Pipeline& pipeline = pipeline_of(choice);
    const auto m = static_cast<double>(micro_batches_of(choice));
    const auto reductions = [&](const Sharding& sharding) {
        Choice of = choice;
        of.sharding = sharding;
        return reductions_of(of);
    };
    const auto gathers = [&](const Sharding& sharding) { return m * gathers_of(sharding); };
    const Sharding &one = shardings[a], &other = shardings[b];
    if (one.data_parallel != other.data_parallel) return std::numeric_limits<double>::infinity();
    double most = 0;
    for (std::size_t i = 0; i < pipeline.ranks.size(); ++i) {
        const ShardedRank &x = pipeline.sharded[a].ranks[i], &y = pipeline.sharded[b].ranks[i];
        const auto longer = [](double mine, double its) { return std::max(0.0, mine - its); };
        most =
            std::max(most, longer(x.update_s, y.update_s) +
                               m * longer(x.staging_s + x.first_gathers_s, y.staging_s + y.first_gathers_s) +
                               longer(reductions(one) * x.reduction.seconds, reductions(other) * y.reduction.seconds) +
                               longer(x.replication.seconds, y.replication.seconds) +
                               longer(gathers(one) * x.gather.seconds, gathers(other) * y.gather.seconds) +
                               longer(x.regather_s, y.regather_s));
    }
    if (one.pp_before_dp != other.pp_before_dp) {
        Choice ordered = choice;
        ordered.sharding = one;
        const double longest = transfer_s(ordered).second;
        ordered.sharding = other;
        const auto transfers = 2 * (m * static_cast<double>(choice.chunks) + static_cast<double>(choice.pp));
        most += transfers * std::max(0.0, longest - transfer_s(ordered).first);
    }
    return most;
}

/// How often a step reduces the gradients.
double AnalyticBounder::reductions_of(const Choice& choice) const {
    return reduces_each(choice) ? static_cast<double>(micro_batches_of(choice)) : 1;
}

/// How often a micro-batch gathers the parameters.
double AnalyticBounder::gathers_of(const Sharding& sharding) {
    return sharding.reshards ? 2 : 1;
}

}  // namespace orrery::sim
