// What `orrery plan`, and every command that searches for plans, is to plan for: the options and the searches'
// requests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/plan_goal.h"
#include "cli/plan_space.h"
#include "models/model_spec.h"
#include "sim/planner/planner.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own name
class App;
class Option;
}  // namespace CLI

namespace orrery::cli {

/// As given on the command line.
struct PlanJob {
    std::string model, cluster, precision, moments, data = "synthetic";
    std::vector<std::string> implementations;                      // empty: by the cluster
    std::string schedule, data_parallel, recompute, stage_layout;  // empty: any
    std::int64_t devices = 0;                                      // with `spares`: at most
    bool spares = false;                                           // plans may leave devices idle
    std::int64_t global_batch = 0, sequence = 0, tp = 0, pp = 0, dp = 0, cp = 0, ep = 0, micro_batch = 0, chunks = 0,
                 dp_shard = 0;
    std::vector<std::string> recompute_parts;  // empty: any
    std::string order, reshard;                // empty: any
    std::int64_t seed = 1234;
    double clip_norm = 0;
    bool post_validation = false;
    std::optional<double> memory_margin_gib;
    models::ModelParts parts = models::ModelParts::whole;
    PlanSpace space;
    PlanGoal goal;
};

/// --model, --text-only and --cluster. Returns the required ones.
std::vector<CLI::Option*> add_model_options(CLI::App& command, PlanJob& job);
CLI::Option* add_sequence_option(CLI::App& command, PlanJob& job);
/// Precision, implementations, optimizer, and what the search may or must choose.
void add_request_options(CLI::App& command, PlanJob& job);
void add_seed_option(CLI::App& command, PlanJob& job);
void add_threads_option(CLI::App& command, int& threads);

/// Refuses flags that exclude each other; they would be ignored.
void check_together(const PlanJob& job);
/// Refuses degrees that cannot cut the model, on any number of devices, naming the flag.
void check_cuts(const PlanJob& job, const models::ModelSpec& model);
/// Also those that do not multiply to the devices. Everything else is left to the search.
void check_degrees(const PlanJob& job, const models::ModelSpec& model);

/// A request for each implementation to search.
[[nodiscard]] std::vector<sim::PlanRequest> requests_of(const PlanJob& job, const models::ModelSpec& model,
                                                        const topologies::ClusterSpec& spec);
/// The requests for a cluster of any size.
[[nodiscard]] std::vector<sim::PlanRequest> requests_for_any_size(const PlanJob& job, const models::ModelSpec& model);

}  // namespace orrery::cli
