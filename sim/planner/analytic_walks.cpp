// AnalyticBounder's walks of the schedule's passes.
#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/index.h"
#include "sim/planner/analytic_bounds.h"
#include "sim/planner/pass_walk.h"
#include "sim/program/schedule.h"
#include "sim/program/transfer_rules.h"

namespace orrery::sim {

using program::DataParallel;

bool AnalyticBounder::has_path(const Choice& choice) const {
    const std::int64_t passes = micro_batches_of(request_, choice) * choice.pp * choice.chunks;
    return !row_of(choice.schedule).depends_on_times() && copies_of(choice) == 1 && !choice.spreads_vocabulary() &&
           passes <= kMostWalkedPasses && choice.sharding.data_parallel != DataParallel::dp;
}

const PassOrders& AnalyticBounder::orders_of(const Choice& choice) {
    const std::int64_t micro_batches = micro_batches_of(request_, choice);
    const auto [entry, fresh] =
        whole_orders_.try_emplace({choice.schedule, choice.pp, choice.chunks, micro_batches, choice.overlaps_experts});
    if (fresh) {
        entry->second = pass_orders({.schedule = choice.schedule,
                                     .ranks = choice.pp,
                                     .chunks = choice.chunks,
                                     .micro_batches = micro_batches,
                                     .pairs_passes = choice.overlaps_experts},
                                    program::fuses_transfers(choice.schedule, request_.implementation));
    }
    return entry->second;
}

PassCosts AnalyticBounder::pass_costs(const Choice& choice, const Pipeline& pipeline) {
    PassCosts costs{.stages = pipeline.stages()};
    const bool is_wide = sharding_.has_wide_gradients(choice);
    for (const std::vector<std::size_t>& stages : pipeline.stages()) {
        std::vector<PassCosts::OfChunk>& chunks = costs.seconds.emplace_back();
        for (const std::size_t stage : stages) {
            const ChunkSum& chunk = chunk_sums_[stage];
            const double wide_s = is_wide ? chunk.wide_gradients_s : 0;
            chunks.push_back({chunk.forward_s, chunk.backward_s + wide_s, chunk.input_pass_s, chunk.weight_pass_s});
        }
    }
    if (choice.overlaps_experts) {
        for (const std::vector<std::size_t>& stages : pipeline.stages()) {
            std::vector<std::array<PassCosts::InBlock, 2>>& chunks = costs.in_blocks.emplace_back();
            for (const std::size_t stage : stages) {
                const ChunkSum& chunk = chunk_sums_[stage];
                const double wide_s = is_wide ? chunk.wide_gradients_s : 0;
                chunks.push_back(
                    {{{chunk.forward_s, chunk.forward_tokens.seconds, chunk.alone_forward_s},
                      {chunk.backward_s + wide_s, chunk.backward_tokens.seconds, chunk.alone_backward_s + wide_s}}});
            }
        }
    }
    const bool host_waits =
        program::host_waits_for_transfers(choice.schedule, choice.vocabulary, request_.implementation);
    costs.regathers_after_input = host_waits;
    if (choice.offload_layers != 0) {
        costs.copies_after_input = host_waits;
        for (const std::vector<std::size_t>& stages : pipeline.stages()) {
            std::vector<ChunkCopies>& chunks = costs.copies.emplace_back();
            for (const std::size_t stage : stages) chunks.push_back(chunk_sums_[stage].copies);
        }
    }
    costs.forward_transfer_s.assign(pipeline.stages().size(), sharding_.least_transfer_s(choice));
    costs.backward_transfer_s = costs.forward_transfer_s;
    return costs;
}

double AnalyticBounder::RankSums::slowdown(double held, bool is_wide) const {
    const double undisturbed = waiting_s + (is_wide ? wide_gradients_s : 0);
    const double alone = draws.seconds() + undisturbed;
    return alone > 0 ? std::max(1.0, (draws.beside_s(held) + undisturbed) / alone) : 1;
}

/// Other stages than the first may gather all dense parameters before their first block, and all experts in or before
/// it.
void AnalyticBounder::add_regather(const Choice& choice, const Pipeline& pipeline, const ShardedRank& costs,
                                   const RankElements& elements, std::size_t rank, std::size_t stage,
                                   RankTraffic::OfChunk& chunk) {
    const models::DataParallelChoices& choices = request_.implementation.data_parallel;
    if (!choices.gathers_parameters_ahead) return;
    const LayerCosts& base = base_costs(choice);
    const std::size_t first = at(pipeline.first_block(stage) + 1), end = at(pipeline.first_block(stage + 1) + 1);
    std::int64_t dense = base.total(&LayerCost::dense_parameters, first, end);
    const std::int64_t experts = base.total(&LayerCost::expert_parameters, first, end);
    if (pipeline.has_embedding(stage)) dense += base.of_kind.front().dense_parameters;
    if (pipeline.has_head(stage)) dense += base.of_kind.back().dense_parameters;
    const auto share = [](std::int64_t own, std::int64_t all) {
        return all > 0 ? static_cast<double>(own) / static_cast<double>(all) : 0;
    };
    const double dense_s = share(dense, elements.dense) * costs.regather.seconds;
    chunk.regather_s = dense_s + share(experts, elements.expert) * costs.regather_experts.seconds;
    const bool gathers_whole = choices.overlaps_first_stage_only && rank > 0 && first < end;
    chunk.regather_lead_s = gathers_whole ? std::max(dense_s, chunk.regather_s - base.layer(first).forward_s)
                                          : chunk.regather_s / chunk.units;
}

RankTraffic AnalyticBounder::traffic_of(const Choice& choice, const Pipeline& pipeline, const Sharded& sharded,
                                        std::size_t rank, const Transfers& transfers) {
    const std::size_t position = pipeline.like[rank];
    const ShardedRank& costs = sharded.ranks[position];
    const RankElements& elements = pipeline.elements[position];
    const RankSums& sums = sums_.ranks[position];
    const bool is_wide = sharding_.has_wide_gradients(choice);
    RankTraffic traffic;
    traffic.reduces_each = reduces_each_micro_batch(choice.sharding.data_parallel, choice.schedule);
    traffic.reduces_at_end = costs.reduces_at_end;
    traffic.stages_gradients = sharding_.is_staged(choice);
    traffic.gathers_forward = row_of(choice.sharding.data_parallel).shards_parameters;
    traffic.gathers_backward = traffic.gathers_forward && choice.sharding.reshards;
    CommunicationTimes regather = costs.regather;
    regather.add(costs.regather_experts);
    if (request_.implementation.data_parallel.gathers_parameters_ahead) traffic.regather_nic_s = regather.nic_s;
    if (!choice.overlaps_experts) {  // blocks of two passes have time in which nothing is computed
        traffic.reduction_slowdown = sums.slowdown(costs.reduction.held, is_wide);
        traffic.gather_slowdown = sums.slowdown(costs.gather.held, is_wide);
        traffic.regather_slowdown = sums.slowdown(regather.held, is_wide);
        traffic.previous_slowdown = sums.slowdown(transfers.to_previous(rank).held, is_wide);
        traffic.next_slowdown = sums.slowdown(transfers.to_next(rank).held, is_wide);
    }
    traffic.update_s = costs.update_s;
    const LayerCosts &base = base_costs(choice), &layers = costs_of(choice, false);
    const auto all = static_cast<double>(elements.dense + elements.expert);
    const auto of_blocks = static_cast<double>(elements.dense_of_blocks + elements.expert);
    for (const std::size_t stage : pipeline.stages()[rank]) {
        RankTraffic::OfChunk& chunk = traffic.chunks.emplace_back();
        const std::size_t first = at(pipeline.first_block(stage) + 1), end = at(pipeline.first_block(stage + 1) + 1);
        const auto own_blocks = static_cast<double>(base.parameters(first, end));
        auto own = own_blocks;
        if (stage == 0) own += static_cast<double>(base.of_kind.front().dense_parameters);
        if (stage + 1 == pipeline.stage_count()) own += static_cast<double>(base.of_kind.back().dense_parameters);
        const double share = all > 0 ? own / all : 0, block_share = of_blocks > 0 ? own_blocks / of_blocks : 0;
        chunk.reduction_s = share * costs.reduction.seconds;
        chunk.reduction_nic_s = share * costs.reduction.nic_s;
        chunk.replication_s = share * costs.replication.seconds;
        chunk.replication_nic_s = share * costs.replication.nic_s;
        chunk.gather_s = block_share * costs.gather.seconds;
        chunk.gather_nic_s = block_share * costs.gather.nic_s;
        chunk.staging_s = block_share * costs.staging_s;
        if (first < end) chunk.before_gradients_s = layers.layer(end - 1).before_gradients_s;
        if (pipeline.has_head(stage)) chunk.before_gradients_s += base.of_kind.back().backward_s;
        chunk.has_experts = base.total(&LayerCost::expert_parameters, first, end) > 0;
        chunk.units = sharding_.units_of(choice, elements, pipeline.blocks(stage));
        chunk.pieces = sharding_.pieces_of(choice, elements, pipeline.blocks(stage));
        chunk.gradient_place =
            sharding_.gradient_place(choice, elements, pipeline.has_embedding(stage) || pipeline.has_head(stage));
        add_regather(choice, pipeline, costs, elements, rank, stage, chunk);
    }
    return traffic;
}

AnalyticBounder::Transfers AnalyticBounder::transfers_of(const Choice& choice) {
    Transfers transfers;
    const std::vector<CommunicationTimes> all = sharding_.transfers(choice);
    for (const CommunicationTimes& one : all) {
        if (transfers.least.seconds == 0 || one.seconds < transfers.least.seconds) transfers.least = one;
    }
    if (row_of(choice.schedule).is_looped()) transfers.between = all;
    return transfers;
}

double AnalyticBounder::traffic_s(const Choice& choice, const std::vector<Sharding>& shardings, std::size_t index) {
    if (!has_path(choice)) return 0;
    Pipeline& pipeline = pipeline_of(choice);
    Sharded& sharded = sharded_of(choice, pipeline, shardings, index);
    add_times(choice, pipeline, sharded);
    sum(choice, pipeline);
    PassCosts costs = pass_costs(choice, pipeline);
    const Transfers transfers = transfers_of(choice);
    costs.transfer_nic_s = transfers.least.nic_s;
    for (std::size_t r = 0; r < pipeline.stages().size(); ++r) {
        costs.forward_transfer_s[r] = transfers.to_next(r).seconds;
        costs.backward_transfer_s[r] = transfers.to_previous(r).seconds;
        costs.traffic.push_back(traffic_of(choice, pipeline, sharded, r, transfers));
    }
    // As simulated: the second step, from the end of the first one to its own.
    std::vector<double> ends_s;
    for (const PassEnds& ends : walk_passes(orders_of(choice), costs)) ends_s.push_back(ends.step_end_s);
    costs.begin_s = ends_s;
    double end_s = 0;
    for (const PassEnds& ends : walk_passes(orders_of(choice), costs)) end_s = std::max(end_s, ends.step_end_s);
    const double least = end_s - std::ranges::max(ends_s);
    const bool of_units = row_of(choice.sharding.data_parallel).shards_parameters || costs.traffic.front().reduces_each;
    const double added = std::max(0.0, least - path_s(choice));
    const TrafficError& error = of_units ? kUnitTrafficError : kTrafficError;
    return least - std::min(error.of_step * least, error.of_added * added) - error.further_of_added * added;
}

double AnalyticBounder::path_s(const Choice& choice) {
    if (!has_path(choice)) return 0;
    Choice key = choice;
    key.sharding = {.data_parallel = sharding_.has_wide_gradients(choice) ? DataParallel::ddp : DataParallel::zero3,
                    .pp_before_dp = choice.sharding.pp_before_dp};
    const auto [path_s, fresh] = paths_.add(key, 0.0);
    if (!fresh) return path_s;
    const Pipeline& pipeline = pipeline_of(choice);
    sum_chunks(choice, pipeline);
    // The next step begins on the first rank; later ranks may still be busy then.
    return path_s = kRounding * walk_passes(orders_of(choice), pass_costs(choice, pipeline)).front().end_s;
}

}  // namespace orrery::sim
