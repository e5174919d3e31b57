// The techniques that a search covers: those of the default space, and those that the full space adds.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "sim/planner/planner.h"

namespace orrery::sim {
namespace {

using program::DataParallel;
using program::Recompute;
using program::Schedule;
using program::VocabularyParallel;

/// Schedules that need twice the memory of zb-v and gain from it only if no stage waits for the others at the end of a
/// step.
constexpr std::array kShiftedSchedules{Schedule::zb_h2, Schedule::zb_2p};

/// Whether the implementation has what one of its lists names; if it states nothing, it has everything.
bool has(const models::Support& supports, const std::vector<std::string>& names, const std::string& name) {
    return supports.source.empty() || models::Support::lists(names, name);
}

}  // namespace

void allow_every_technique(PlanRequest& request) {
    const models::Support& supports = request.implementation.supports;
    request.schedules.clear();
    for (int i = 0; i < program::kScheduleCount; ++i) {
        const auto one = static_cast<Schedule>(i);
        const bool is_shifted = std::ranges::find(kShiftedSchedules, one) != kShiftedSchedules.end();
        const bool is_searched = row_of(one).is_searched || (is_shifted && request.training.optimizer.post_validation);
        if (is_searched && has(supports, supports.schedules, name_of(one))) request.schedules.push_back(one);
    }
    if (request.schedules.empty() && has(supports, supports.schedules, name_of(Schedule::gpipe))) {
        request.schedules = {Schedule::gpipe};
    }
    if (request.schedules.empty()) request.schedules = {Schedule::one_f_one_b};  // one stage has nothing to order
    request.data_parallel.clear();
    for (const DataParallel one : program::kDataParallelKinds) {
        if (row_of(one).is_searched && has(supports, supports.data_parallel, name_of(one)))
            request.data_parallel.push_back(one);
    }
    if (request.data_parallel.empty()) {
        for (const std::string& name : supports.data_parallel) {
            request.data_parallel.push_back(program::data_parallel_named(name));
        }
    }
    request.recompute = {Recompute::none};
    for (const Recompute one : {Recompute::selective, Recompute::full}) {
        if (has(supports, supports.recompute, name_of(one))) request.recompute.push_back(one);
    }
    request.tries_shard_groups = supports.source.empty() || supports.shard_groups;
    request.tries_keeping_parameters = request.tries_rank_orders = request.tries_part_sets = true;
}

void allow_expert_overlap(PlanRequest& request) {
    const models::Support& supports = request.implementation.supports;
    request.tries_expert_overlap =
        request.model.has_experts() && (supports.source.empty() || supports.overlaps_experts);
}

void allow_full_space(PlanRequest& request) {
    const models::Support& supports = request.implementation.supports;
    const topologies::ClusterSpec& cluster = request.cluster;
    if (has(supports, supports.schedules, name_of(Schedule::dualpipe_v))) {
        request.schedules.push_back(Schedule::dualpipe_v);
    }
    request.tries_expert_tensor = request.model.has_experts() && has(supports, supports.axes, "etp");
    for (const VocabularyParallel kind :
         {VocabularyParallel::two_barriers, VocabularyParallel::one_barrier, VocabularyParallel::interlaced}) {
        if (has(supports, supports.vocabulary_parallel, name_of(kind))) request.vocabulary_parallel.push_back(kind);
    }
    const topologies::LinkProfile none;
    if (cluster.host_link == none && cluster.host_memory_link == none) return;
    for (const Offload kind : {Offload::activations, Offload::optimizer, Offload::parameters}) {
        // The host updates the states as fast as its memory allows; a cluster that does not state how fast that is
        // cannot offload them.
        if (kind != Offload::activations && cluster.host_memory_bandwidth_gb_per_s.value <= 0) continue;
        if (has(supports, supports.offload, std::string(name_of(kind)))) request.offload.push_back(kind);
    }
    // Parameters on the host are updated there.
    if (std::ranges::find(request.offload, Offload::optimizer) == request.offload.end()) {
        std::erase(request.offload, Offload::parameters);
    }
}

}  // namespace orrery::sim
