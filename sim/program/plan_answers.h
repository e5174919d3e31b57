// What the planner answers beside its ranking: what limits the best plan and what would help, which plan is nearest if
// none fits, plans that differ in kind, and the figures of the field's decision guide.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/program/plan_result.h"

namespace orrery::program {

/// The memory of a plan's fullest rank, in bytes.
struct MemoryNeed {
    std::string where;                  // the rank class
    std::int64_t needed_bytes = 0;      // on the rank's device, context included
    std::int64_t allowed_bytes = 0;     // what the rank may use
    std::int64_t states_bytes = 0;      // parameters, gradients and optimizer states
    std::int64_t activation_bytes = 0;  // activations and transients at the peak
    /// Gathered parameters, buffers, allocator, context, communicators and libraries.
    [[nodiscard]] std::int64_t other_bytes() const { return needed_bytes - states_bytes - activation_bytes; }
    [[nodiscard]] bool fits() const { return needed_bytes <= allowed_bytes; }
    [[nodiscard]] std::int64_t over_bytes() const { return needed_bytes - allowed_bytes; }
};

/// A plan with one change, simulated whether or not it fits.
struct WhatIf {
    std::string change;  // such as "micro-batch 2 instead of 1"
    std::string of;      // what changes: "plan", "batch", "sequence", "devices", "links", "memory", "precision" or
                         // "implementation"
    double step_time_s = 0;
    double tokens_per_s_per_device = 0;
    std::int64_t devices = 0;
    MemoryNeed memory;
};

/// A mesh on which no plan fits.
struct MeshMisfit {
    Plan plan;  // the plan on this mesh that needs the least memory
    MemoryNeed memory;
    std::optional<Remedy> fix;  // the fewest changes that make it fit, those that keep the mesh first; simulated
};

struct PlanAdvice {
    PlanResult best;
    MemoryNeed memory;
    std::vector<WhatIf> plan_changes;   // single changes of the best plan, fastest first
    std::vector<WhatIf> input_changes;  // of batch, sequence, cluster, precision or implementation, by tokens/s/device
    std::vector<MeshMisfit> meshes;     // those nearest to fitting
    std::size_t meshes_left_out = 0;    // further meshes on which nothing fits
};

struct SmallestCluster {
    std::int64_t devices = 0;
    PlanResult best;                       // the best plan on it
    std::int64_t largest_without_fit = 0;  // the largest smaller size that was tried; nothing fits on it
};

/// Of a request for which no plan fits.
struct NearestPlan {
    Plan plan;  // the plan that needs the least memory
    MemoryNeed memory;
    std::optional<Remedy> fix;
    std::optional<SmallestCluster> cluster;
    std::int64_t most_devices_tried =
        0;  // if `cluster` is empty: nothing fits on clusters up to this size; 0: none tried
};

/// One way to train, at a fork of the decision guide.
struct GuideOption {
    std::string name;  // such as "zero3 over 64 GPUs"
    /// The best plan of this kind. Not feasible: the one that needs the least memory, with `reason`.
    std::optional<PlanResult> result;
    MemoryNeed memory;    // of the result
    std::string refused;  // why there is no plan of this kind at all; empty: there is
    [[nodiscard]] bool fits() const { return result && result->feasible; }
};

struct GuideFork {
    std::string question;
    std::string rule;  // the rule of thumb
    std::vector<GuideOption> options;
    std::string answer;  // what the figures say
};

struct PlanGuide {
    std::vector<GuideFork> forks;
    std::optional<PlanResult> by_rule;  // the plan to which the rules of thumb lead; empty: to none that fits
    std::optional<PlanResult> best;     // rank 1; empty: nothing fits
};

}  // namespace orrery::program
