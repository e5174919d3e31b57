#include "sim/planner/sharding_costs.h"

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "core/index.h"
#include "sim/program/device_memory.h"

namespace orrery::sim {
namespace {

using program::CommKind;
using program::DataParallel;

/// There are several sets of shards (HSDP).
bool shards_partly(const Choice& choice) {
    return choice.sharding.dp_shard > 0 && choice.sharding.dp_shard < choice.dp * choice.cp;
}

/// Ranks that share one set of shards of the dense parameters.
std::int64_t dense_shards(const Choice& choice) {
    return (shards_partly(choice) ? choice.sharding.dp_shard : choice.dp * choice.cp) * copies_of(choice);
}

std::int64_t expert_shards(const Choice& choice) {
    return std::max<std::int64_t>(1, choice.dp * choice.cp * choice.tp / (choice.ep * choice.etp)) * copies_of(choice);
}

bool reduces_units(const Choice& choice) {
    return reduces_each_micro_batch(choice.sharding.data_parallel, choice.schedule);
}

const program::DataParallelRow& kind_of(const Choice& choice) {
    return row_of(choice.sharding.data_parallel);
}

}  // namespace

void RankElements::add_chunk(std::int64_t blocks) {
    if (blocks == 0) return;
    auto known = std::ranges::lower_bound(chunks, blocks, {}, [](const auto& one) { return one.first; });
    if (known == chunks.end() || known->first != blocks) known = chunks.insert(known, {blocks, 0});
    ++known->second;
}

std::int64_t RankElements::blocks() const {
    std::int64_t sum = 0;
    for (const auto& [size, count] : chunks) sum += size * count;
    return sum;
}

ShardingCosts::ShardingCosts(const PlanRequest& request, const topologies::Cluster& cluster, const RooflineCost& cost)
    : request_(request), cluster_(cluster), cost_(cost) {}

double ShardingCosts::held_bytes(const Choice& choice, const RankElements& own) const {
    return state_bytes(choice, own) + static_cast<double>(window_bytes(choice, own) + staging_bytes(choice, own));
}

void ShardingCosts::add_times(const Choice& choice, const RankElements& own, const LayerCosts& costs,
                              ShardedRank& rank) {
    rank.update_s = update_s(choice, costs, own);
    // DualPipe's reduction also includes the ranks of the other copy and is not bounded here.
    if (copies_of(choice) == 1) add_reductions(choice, own, rank);
    rank.reduces_at_end = !overlaps(choice, own) && !reduces_units(choice) && !kind_of(choice).shards_parameters;
    if (kind_of(choice).shards_states) add_gathers(choice, own, rank);
}

ShardingCosts::PlacementId ShardingCosts::intern(std::vector<std::int64_t> devices) {
    if (devices.size() < 2) return kAlone;
    for (std::int64_t& device : devices) device %= cluster_.spec().device_count();
    const std::int64_t stride = devices[1] - devices[0];
    const auto breaks_stride = [&](std::int64_t a, std::int64_t b) { return b - a != stride; };
    const bool is_regular = std::adjacent_find(devices.begin(), devices.end(), breaks_stride) == devices.end();
    const auto add = [&] {
        const GroupPlacement placement = place_group(cluster_, devices);
        const auto known = std::find(placements_.begin(), placements_.end(), placement);
        const auto id = static_cast<PlacementId>(known - placements_.begin());
        if (known == placements_.end()) placements_.push_back(placement);
        return id;
    };
    if (!is_regular) return add();
    const auto [entry, fresh] = regular_.try_emplace({devices.front(), stride, std::ssize(devices)}, kAlone);
    if (fresh) entry->second = add();
    return entry->second;
}

const ShardingCosts::Groups& ShardingCosts::groups_of(const Choice& choice) {
    const Choice key{.dp = choice.dp,
                     .tp = choice.tp,
                     .pp = choice.pp,
                     .cp = choice.cp,
                     .ep = choice.ep,
                     .etp = choice.etp,
                     .sharding = {.data_parallel = DataParallel::zero1,
                                  .dp_shard = choice.sharding.dp_shard,
                                  .pp_before_dp = choice.sharding.pp_before_dp}};
    const auto [groups, fresh] = groups_.add(key);
    if (!fresh) return groups;
    const program::Mesh mesh(plan_of(request_, key));
    const auto place = [&](program::GroupAxis axis) { return intern(mesh.group_of(axis, 0)); };
    groups.dense = place(program::GroupAxis::dp);
    groups.expert = place(program::GroupAxis::edp);
    if (shards_partly(choice)) {
        groups.shard = place(program::GroupAxis::dp_shard);
        groups.replicate = place(program::GroupAxis::dp_replicate);
    }
    for (std::int64_t stage = 0; stage + 1 < choice.pp; ++stage) {
        groups.transfers.push_back(
            intern(mesh.group_of(program::GroupAxis::down_forward, mesh.rank_at({.pp = stage}))));
    }
    return groups;
}

const CommunicationTimes& ShardingCosts::collective(CommKind kind, PlacementId id, std::int64_t elements, DType type,
                                                    program::GroupAxis axis) {
    static const CommunicationTimes none;
    if (id == kAlone || elements == 0) return none;
    const std::int64_t bytes = elements * size_of(type);
    const auto [entry, fresh] = collectives_.try_emplace({id, kind, bytes});
    if (!fresh) return entry->second;
    entry->second = communication_times({kind, bytes}, axis, placements_[at(id)], cluster_.spec(), request_.rates);
    return entry->second;
}

std::int64_t ShardingCosts::context_bytes(const Choice& choice) {
    const topologies::ClusterSpec& cluster = request_.cluster;
    const std::int64_t fixed = program::fixed_device_memory(cluster.device, request_.implementation).in_use();
    if (request_.implementation.executable) {  // parts of its communicator of all ranks share the buffers
        const std::int64_t ranks = choice.tp * choice.cp * choice.dp * choice.pp;
        return fixed +
               program::communicator_bytes(program::shape_of_all(ranks, cluster.devices_per_node), cluster.device);
    }
    const Groups& groups = groups_of(choice);
    // For a group that does not fit on one node, assume one member on each node: that shape takes the least memory.
    const auto within = [&](std::int64_t ranks, std::int64_t stride) {
        const bool fits = ranks * stride <= cluster.devices_per_node;
        return program::communicator_bytes({.ranks = ranks, .nodes = fits ? 1 : ranks}, cluster.device);
    };
    std::int64_t bytes =
        fixed + within(choice.tp, 1) + within(choice.cp, choice.tp) + within(choice.ep, choice.tp * choice.cp);
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

/// Whether gradients are reduce-scattered rather than all-reduced.
bool ShardingCosts::scatters(const Sharding& sharding) const {
    const program::DataParallelRow& kind = row_of(sharding.data_parallel);
    return kind.shards_states && (request_.implementation.data_parallel.reduces_to_owner || kind.shards_gradients);
}

/// Elements of the experts with their padding: where each parameter's rows are padded to a multiple of the shards, and
/// a rank has fewer experts than there are shards, most of them are padding.
std::int64_t ShardingCosts::padded_experts(const Choice& choice, const RankElements& own) const {
    const bool has_units = reduces_units(choice) || kind_of(choice).shards_parameters;
    if (!request_.implementation.data_parallel.pads_each_parameter || !has_units || own.expert == 0) return own.expert;
    const std::int64_t experts = request_.model.moe.expert_count / choice.ep, shards = expert_shards(choice);
    return own.expert / experts * ((experts + shards - 1) / shards * shards);
}

double ShardingCosts::update_s(const Choice& choice, const LayerCosts& costs, const RankElements& own) const {
    if (costs.optimizer_elements == 0) return 0;
    auto elements = static_cast<double>(own.dense + own.expert);
    if (kind_of(choice).shards_states) {
        elements = static_cast<double>(own.dense) / static_cast<double>(dense_shards(choice)) +
                   static_cast<double>(padded_experts(choice, own)) / static_cast<double>(expert_shards(choice));
    }
    // As program::StepEnd::update_operator, whose gradients have their full type.
    const program::Training& training = request_.training;
    const StoredParameters stored = stored_parameters(choice);
    const bool sends_back = choice.sharding.offload == Offload::optimizer;
    const std::int64_t parameter = sends_back ? size_of(training.precision.parameter) : stored.bytes;
    const std::int64_t bytes =
        parameter + size_of(training.precision.gradient) + training.state_bytes() + (stored.have_master ? 4 : 0);
    models::Operator update = costs.optimizer;
    update.elements = static_cast<std::int64_t>(elements);
    update.flops *= elements / static_cast<double>(costs.optimizer_elements);
    update.bytes_read = update.bytes_written =
        elements * static_cast<double>(bytes) * request_.implementation.kernels.optimizer_passes();
    return cost_.step_seconds() + (choice.sharding.offload == Offload::none ? cost_.operator_seconds(update)
                                                                            : host_update_s(update, sends_back));
}

/// The gradients are copied to the host, which updates the states and sends the parameters back unless it keeps them.
double ShardingCosts::host_update_s(const models::Operator& update, bool sends_back) const {
    if (request_.cluster.device.host_runs_compute) return cost_.operator_seconds(update);
    const program::Precision& precision = request_.training.precision;
    return copy_s(update.elements * size_of(precision.gradient)) + cost_.host_seconds(update, active_devices()) +
           (sends_back ? copy_s(update.elements * size_of(precision.parameter)) : 0);
}

double ShardingCosts::copy_s(std::int64_t bytes) const {
    models::Operator copy{.kind = models::OpKind::copy_to_host};
    copy.bytes_written = static_cast<double>(bytes);
    return cost_.copy_seconds(copy, active_devices());
}

std::int64_t ShardingCosts::active_devices() const {
    return std::min(request_.devices, request_.cluster.devices_per_node);
}

/// Whether gradients that are not reduced by unit are reduced beside backward passes (program::sharding_rules).
bool ShardingCosts::overlaps(const Choice& choice, const RankElements& own) const {
    const models::DataParallelChoices& choices = request_.implementation.data_parallel;
    return choices.overlaps_backward && (own.is_first_stage || !choices.overlaps_first_stage_only) &&
           copies_of(choice) == 1 && choice.vocabulary != program::VocabularyParallel::interlaced;
}

/// The elements from which on a bucket is closed, and which a unit does not exceed.
std::int64_t ShardingCosts::bucket_cap(const Choice& choice, const RankElements& own) const {
    const models::DataParallelChoices& choices = request_.implementation.data_parallel;
    constexpr std::int64_t kWhole = std::int64_t{1} << 60;
    if (choices.overlaps_first_stage_only && !overlaps(choice, own)) return kWhole;
    return std::max(choices.bucket_bytes / size_of(request_.training.precision.gradient),
                    choices.bucket_elements_per_rank * choice.dp * choice.cp * copies_of(choice));
}

/// The elements that a unit does not exceed, unless it is a single layer.
std::int64_t ShardingCosts::unit_cap(const Choice& choice, const RankElements& own) const {
    return request_.implementation.data_parallel.buckets_by_layer ? 0 : bucket_cap(choice, own);
}

/// The most blocks that are gathered and whose gradients are reduced together.
std::int64_t ShardingCosts::blocks_of_unit(const Choice& choice, const RankElements& own) const {
    return std::max<std::int64_t>(1, unit_cap(choice, own) / std::max<std::int64_t>(1, own.smallest_block));
}

/// Units are cut as RankLayoutBuilder does: layers join a unit in their order as long as it does not exceed the cap.
ShardingCosts::UnitSizes ShardingCosts::unit_sizes(const Choice& choice, const RankElements& own) const {
    UnitSizes sizes{.largest = own.largest_block};
    const std::int64_t block = own.smallest_block, together = blocks_of_unit(choice, own);
    const std::int64_t cap = unit_cap(choice, own);
    const auto add = [&](std::int64_t units, std::int64_t chunks, std::int64_t largest) {
        sizes.most = std::max(sizes.most, units);
        sizes.all += units * chunks;
        sizes.largest = std::max(sizes.largest, largest);
    };
    const auto add_chunks = [&](std::int64_t blocks, std::int64_t count) {
        add((blocks + together - 1) / together, count, std::min(blocks, together) * block);
    };
    const bool joins_ends = !has_root() && own.blocks_are_alike();
    for (const RankElements::EndChunk& ends : own.end_chunks) {
        if (has_root()) break;
        if (!own.blocks_are_alike() && ends.blocks > 0) {
            add(1, 0, std::max(ends.embedding, ends.head));
            continue;
        }
        std::int64_t units = 0, held = 0, largest = 0;
        const auto append = [&](std::int64_t elements) {
            if (elements == 0) return;
            const bool opens = units == 0 || held + elements > cap;
            units += opens ? 1 : 0;
            held = opens ? elements : held + elements;
            largest = std::max(largest, held);
        };
        append(ends.embedding);
        for (std::int64_t i = 0; i < ends.blocks; ++i) append(block);
        append(ends.head);
        add(units, 1, largest);
    }
    for (const auto& [blocks, count] : own.chunks) {
        const auto is_one = [&](const RankElements::EndChunk& ends) { return ends.blocks == blocks; };
        const std::int64_t without_ends = count - (joins_ends ? std::ranges::count_if(own.end_chunks, is_one) : 0);
        if (without_ends > 0) add_chunks(blocks, without_ends);
    }
    return sizes;
}

/// Whether embedding and head form a unit that stays gathered.
bool ShardingCosts::has_root() const {
    return request_.implementation.data_parallel.keeps_root_gathered || request_.model.tied_embeddings;
}

/// The units of a rank whose blocks are alike and have `elements` together.
std::vector<ShardingCosts::Units> ShardingCosts::units(std::int64_t elements, const Choice& choice,
                                                       const RankElements& own) const {
    if (own.chunks.empty()) return {};
    const std::int64_t of_block = elements / own.blocks(), together = blocks_of_unit(choice, own);
    std::vector<Units> found;
    for (const auto& [size, count] : own.chunks) {
        if (size >= together) found.push_back({count * (size / together), of_block * together});
        if (size % together != 0) found.push_back({count, of_block * (size % together)});
    }
    return found;
}

/// Times of a collective that runs for each unit; `elements` are those of all blocks. If blocks differ, one collective
/// of all elements, which takes less time.
CommunicationTimes ShardingCosts::of_units(CommKind kind, PlacementId group, std::int64_t elements, DType type,
                                           const Choice& choice, const RankElements& own) {
    if (!own.blocks_are_alike()) return collective(kind, group, elements, type);
    CommunicationTimes sum;
    for (const Units& unit : units(elements, choice, own)) {
        sum.add(collective(kind, group, unit.elements, type), static_cast<double>(unit.count));
    }
    return sum;
}

/// The type in which backward passes write gradients.
DType ShardingCosts::gradient_type(const Choice& choice) const {
    const program::Precision& precision = request_.training.precision;
    return reduces_units(choice) && kind_of(choice).shards_parameters ? precision.parameter : precision.gradient;
}

bool ShardingCosts::has_wide_gradients(const Choice& choice) const {
    return size_of(gradient_type(choice)) > size_of(request_.training.precision.parameter);
}

bool ShardingCosts::is_staged(const Choice& choice) const {
    return request_.training.precision.reduction != gradient_type(choice) ||
           request_.implementation.data_parallel.fusion_buffer || kind_of(choice).shards_parameters;
}

/// Time of the casts of a unit's gradients into the staging buffer, for all units; `elements` are those of all blocks.
double ShardingCosts::staging_s(const Choice& choice, std::int64_t elements, const RankElements& own) const {
    if (!own.blocks_are_alike() || elements == 0) return 0;
    double sum = 0;
    for (const Units& unit : units(elements, choice, own)) {
        models::Operator cast{.kind = models::OpKind::cast, .elements = unit.elements};
        cast.flops = static_cast<double>(unit.elements);
        cast.bytes_read = static_cast<double>(unit.elements * size_of(gradient_type(choice)));
        cast.bytes_written = static_cast<double>(unit.elements * size_of(request_.training.precision.reduction));
        sum += static_cast<double>(unit.count) * cost_.operator_seconds(cast);
    }
    return sum;
}

ShardingCosts::StoredParameters ShardingCosts::stored_parameters(const Choice& choice) const {
    const program::Precision& precision = request_.training.precision;
    const bool fp32_shards = kind_of(choice).shards_parameters && request_.implementation.stores_fp32_shards;
    return {.bytes = fp32_shards ? 4 : size_of(precision.parameter),
            .have_master = precision.master_weights && !fp32_shards};
}

/// Bytes of parameters, gradients and optimizer states.
double ShardingCosts::state_bytes(const Choice& choice, const RankElements& own) const {
    const program::Training& training = request_.training;
    const program::Precision& precision = training.precision;
    const Offload offload = choice.sharding.offload;
    const program::DataParallelRow& kind = kind_of(choice);
    const StoredParameters stored = stored_parameters(choice);
    const std::int64_t parameter = offload == Offload::parameters ? 0 : stored.bytes;
    const std::int64_t update = offload == Offload::none ? training.state_bytes() + (stored.have_master ? 4 : 0) : 0;
    // Where sharded gradients accumulate, unsharded ones may have the parameters' type.
    const std::int64_t gradient = kind.shards_gradients
                                      ? std::min(size_of(precision.gradient), size_of(precision.parameter))
                                      : size_of(precision.gradient);
    const auto held = [&](std::int64_t elements, std::int64_t padded, std::int64_t shards) {
        const auto all = static_cast<double>(elements),
                   part = static_cast<double>(padded) / static_cast<double>(shards);
        return static_cast<double>(parameter) * (kind.shards_parameters ? part : all) +
               static_cast<double>(gradient) * (reduces_units(choice) ? part : all) +
               static_cast<double>(update) * (kind.shards_states ? part : all);
    };
    return held(own.dense, own.dense, dense_shards(choice)) +
           held(own.expert, padded_experts(choice, own), expert_shards(choice));
}

/// The fewest bytes of the windows of gathered units, and of gradients that are reduced by unit.
std::int64_t ShardingCosts::window_bytes(const Choice& choice, const RankElements& own) const {
    const models::DataParallelChoices& choices = request_.implementation.data_parallel;
    const program::Precision& precision = request_.training.precision;
    const bool alone = choice.dp * choice.cp * copies_of(choice) < 2;
    if (alone || request_.implementation.memory.windows_hold_tensors || own.chunks.empty()) return 0;
    const std::int64_t roots = has_root() ? own.dense - own.dense_of_blocks : 0;
    const UnitSizes units = unit_sizes(choice, own);
    const std::int64_t turns = 1 + std::max(choices.forward_prefetch, choices.backward_prefetch);
    std::int64_t bytes = 0;
    if (kind_of(choice).shards_parameters) {
        const std::int64_t slots = choice.sharding.reshards ? std::min(units.most, turns) : units.all;
        bytes += (roots + slots * units.largest) * size_of(precision.fp8_parameters ? DType::fp8 : precision.parameter);
    }
    if (reduces_units(choice)) {
        const std::int64_t slots = is_staged(choice) ? 1 : 2;
        bytes += (roots + slots * units.largest) * size_of(gradient_type(choice));
    }
    return bytes;
}

/// The fewest bytes of the staging buffers of reductions.
std::int64_t ShardingCosts::staging_bytes(const Choice& choice, const RankElements& own) const {
    const models::DataParallelChoices& choices = request_.implementation.data_parallel;
    const models::MemoryChoices& memory = request_.implementation.memory;
    if (choice.dp * choice.cp * copies_of(choice) < 2 || !is_staged(choice)) return 0;
    // Without overlap, staging buffers exist only when no activation is alive.
    if (!choices.overlaps_backward && !memory.lays_out_ahead) return 0;
    const std::int64_t element = size_of(request_.training.precision.reduction);
    if (!reduces_units(choice) && !kind_of(choice).shards_parameters) {
        return choices.buckets_by_layer ? 0 : std::min(bucket_cap(choice, own), own.largest_chunk) * element;
    }
    if (memory.windows_hold_tensors || own.chunks.empty()) return 0;
    return std::max(unit_sizes(choice, own).largest, has_root() ? own.largest_ends : 0) * element;
}

void ShardingCosts::add_reductions(const Choice& choice, const RankElements& own, ShardedRank& rank) {
    const DType type = request_.training.precision.reduction;
    const Groups& groups = groups_of(choice);
    const bool scatters = this->scatters(choice.sharding), partly = scatters && shards_partly(choice);
    const CommKind each = scatters ? CommKind::reduce_scatter : CommKind::all_reduce;
    const bool by_layer = reduces_units(choice) || request_.implementation.data_parallel.buckets_by_layer;
    const auto reduce = [&](CommKind kind, PlacementId group, std::int64_t elements, std::int64_t of_blocks) {
        return by_layer ? of_units(kind, group, of_blocks, type, choice, own) : collective(kind, group, elements, type);
    };
    rank.reduction.add(reduce(each, partly ? groups.shard : groups.dense, own.dense, own.dense_of_blocks));
    rank.reduction.add(reduce(each, groups.expert, padded_experts(choice, own), padded_experts(choice, own)));
    if (reduces_units(choice) && is_staged(choice)) {
        if (groups.dense != kAlone) rank.staging_s += staging_s(choice, own.dense_of_blocks, own);
        if (groups.expert != kAlone) rank.staging_s += staging_s(choice, own.expert, own);
    }
    if (!partly) return;
    const std::int64_t shards = choice.sharding.dp_shard;
    rank.replication = reduce(CommKind::all_reduce, groups.replicate, own.dense / shards, own.dense_of_blocks / shards);
}

void ShardingCosts::add_gathers(const Choice& choice, const RankElements& own, ShardedRank& rank) {
    const program::Precision& precision = request_.training.precision;
    const Groups& groups = groups_of(choice);
    const PlacementId dense = shards_partly(choice) && scatters(choice.sharding) ? groups.shard : groups.dense;
    const DType type = precision.parameter;
    if (!kind_of(choice).shards_parameters) {
        const DType sent = precision.fp8_parameters ? DType::fp8 : type;
        rank.regather = collective(CommKind::all_gather, dense, own.dense, sent);
        rank.regather_experts = collective(CommKind::all_gather, groups.expert, own.expert, sent);
        return;
    }
    if (precision.fp8_parameters) return;
    rank.gather.add(of_units(CommKind::all_gather, dense, own.dense_of_blocks, type, choice, own));
    rank.gather.add(of_units(CommKind::all_gather, groups.expert, padded_experts(choice, own), type, choice, own));
    // A chunk of one unit gathers it into the place that the unit of the pass before has just left.
    const bool has_single = !own.chunks.empty() && own.chunks.front().first == 1;
    if (!choice.sharding.reshards || !own.blocks_are_alike() || !has_single) return;
    const CommunicationTimes& one = collective(CommKind::all_gather, dense, own.dense_of_blocks / own.blocks(), type);
    rank.first_gathers_s = gathers(choice) * static_cast<double>(own.chunks.front().second) * one.seconds;
}

std::vector<CommunicationTimes> ShardingCosts::transfers(const Choice& choice) {
    std::vector<CommunicationTimes> found;
    const DType type = request_.training.precision.activation;
    const bool scatters = request_.implementation.pipeline.scatters_transfers && !choice.sequence_parallel;
    const std::int64_t sent_bytes = hidden_bytes(choice) / (scatters ? choice.tp : 1);
    for (const PlacementId pair : groups_of(choice).transfers) {
        found.push_back(
            collective(CommKind::send, pair, sent_bytes / size_of(type), type, program::GroupAxis::down_forward));
    }
    return found;
}

double ShardingCosts::least_transfer_s(const Choice& choice) {
    if (choice.pp == 1) return 0;
    double least = std::numeric_limits<double>::infinity();
    for (const CommunicationTimes& transfer : transfers(choice)) least = std::min(least, transfer.seconds);
    return least;
}

double ShardingCosts::units_of(const Choice& choice, const RankElements& own, std::int64_t blocks) const {
    if (!request_.implementation.data_parallel.overlaps_backward) return 1;
    return std::max(1.0, static_cast<double>(blocks) / static_cast<double>(blocks_of_unit(choice, own)));
}

double ShardingCosts::pieces_of(const Choice& choice, const RankElements& own, std::int64_t blocks) const {
    const models::DataParallelChoices& choices = request_.implementation.data_parallel;
    const double units = units_of(choice, own, blocks);
    const bool by_unit = reduces_units(choice) || kind_of(choice).shards_parameters || choices.buckets_by_layer;
    if (by_unit || !choices.overlaps_backward) return units;
    // A block may fill several buckets, and the last one may be small.
    const auto elements = static_cast<double>(blocks * own.largest_block);
    return units + elements / static_cast<double>(bucket_cap(choice, own));
}

/// Units take turns in the order of their layers, after the root unit, if the chunk has one.
int ShardingCosts::gradient_place(const Choice& choice, const RankElements& own, bool has_ends) const {
    if (!has_ends) return 0;
    if (has_root()) return 1;
    return own.largest_chunk <= unit_cap(choice, own) ? 0 : -1;
}

double ShardingCosts::reductions(const Choice& choice) const {
    return reduces_units(choice) ? static_cast<double>(micro_batches_of(request_, choice)) : 1;
}

std::int64_t ShardingCosts::hidden_bytes(const Choice& choice) const {
    const program::Training& training = request_.training;
    const std::int64_t tokens = training.sequence_length / choice.cp * choice.micro_batch;
    return tokens / (choice.sequence_parallel ? choice.tp : 1) * request_.model.hidden *
           size_of(training.precision.activation);
}

}  // namespace orrery::sim
