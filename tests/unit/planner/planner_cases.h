// Helpers shared by the planner's tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "sim/planner/candidates.h"
#include "sim/planner/lowered_bounds.h"
#include "sim/planner/planner.h"
#include "sim/program/program.h"
#include "sim/program/rates.h"
#include "tests/unit/models/unfused.h"

namespace orrery::sim {

inline constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

/// A request that allows every technique.
inline PlanRequest request_for(const char* model, std::int64_t devices, std::int64_t batch, std::int64_t sequence,
                               const std::string& implementation = "orrery") {
    PlanRequest request;
    request.model = models::load_model(model);
    request.cluster = topologies::load_cluster("dgx-h100", devices);
    request.implementation = models::load_implementation(implementation);
    request.devices = devices;
    request.training.global_batch_size = batch;
    request.training.sequence_length = sequence;
    request.training.precision = program::precision_named("bf16");
    allow_every_technique(request);
    return request;
}

/// For tests that need plans of these costs.
inline PlanRequest unfused(PlanRequest request) {
    request.implementation = models::samples::unfused(std::move(request.implementation));
    return request;
}

/// With the rates that predict its step times.
inline PlanRequest with_rates(PlanRequest request) {
    request.rates = program::resolve_rates(request.implementation, request.cluster);
    return request;
}

/// Only replicas of 1F1B pipelines, without sharding, recomputation, context parallelism or another order of ranks.
inline PlanRequest plain(PlanRequest request) {
    request.schedules = {program::Schedule::one_f_one_b};
    request.data_parallel = {program::DataParallel::ddp};
    request.recompute = {program::Recompute::none};
    request.tries_rank_orders = false;
    request.cp = 1;
    return request;
}

/// Every candidate of the list, with the first kind of selective, with undecided full recomputation and with an
/// undecided number of offloaded blocks.
inline std::vector<Choice> choices_of(const CandidateList& list) {
    std::vector<Choice> choices;
    for (const Family& family : list.families) {
        Choice choice = family.choice;
        for (const std::int64_t micro_batch : family.micro_batches) {
            choice.micro_batch = micro_batch;
            for (const Sharding& sharding : list.shardings_of(family)) {
                choice.sharding = sharding;
                for (const program::Recompute recompute : list.recompute) {
                    choice.recompute = recompute;
                    if (!list.must_offload_activations(sharding)) choices.push_back(choice);
                }
                choice.recompute = program::Recompute::none;
                choice.offload_layers = -1;
                if (list.may_offload_activations(choice)) choices.push_back(choice);
                choice.offload_layers = 0;
            }
        }
    }
    return choices;
}

/// A random candidate: one of the three smallest micro-batch sizes of its pipeline, undecided recomputation, no
/// offloaded activations.
inline Choice draw_choice(const CandidateList& list, std::mt19937& random) {
    const Family& family = list.families[random() % list.families.size()];
    Choice choice = family.choice;
    choice.micro_batch = family.micro_batches[random() % std::min<std::size_t>(3, family.micro_batches.size())];
    const std::vector<Sharding>& shardings = list.shardings_of(family);
    choice.sharding = shardings[random() % shardings.size()];
    choice.recompute = list.recompute[random() % list.recompute.size()];
    return choice;
}

/// The best plans, all of them proven.
inline PlanSearch search(const PlanRequest& request, std::size_t keep) {
    return search_plans(request, topologies::Cluster(request.cluster), keep, keep);
}

/// The most blocks of a virtual stage.
inline std::int64_t largest_stage(const program::Plan& plan) {
    return *std::max_element(plan.parallelism.stage_layers.begin(), plan.parallelism.stage_layers.end());
}

inline std::int64_t peak_of(const program::Plan& plan) {
    const program::Program program = program::lower(plan);
    std::int64_t peak = 0;
    for (const program::RankClass& stage : program.classes) peak = std::max(peak, peak_memory_bytes(program, stage));
    return peak;
}

inline std::vector<program::PlanResult> feasible_of(const PlanSearch& found) {
    std::vector<program::PlanResult> feasible;
    std::copy_if(found.results.begin(), found.results.end(), std::back_inserter(feasible),
                 [](const program::PlanResult& result) { return result.feasible; });
    return feasible;
}

}  // namespace orrery::sim
