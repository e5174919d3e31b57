// Simulates every plan of a request, as the search should not have to.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "core/units.h"
#include "sim/planner/part_sets.h"
#include "sim/planner/timing.h"
#include "tests/unit/planner/planner_cases.h"

namespace orrery::sim {

class BruteForce {
  public:
    explicit BruteForce(PlanRequest request)
        : request_(std::move(request)), cost_(request_.cluster, request_.rates), list_(list_candidates(request_)) {}

    [[nodiscard]] const PlanRequest& request() const { return request_; }

    /// Gives devices so much memory that this share of the plans fits without recomputation or offload.
    void tighten(double share) {
        std::vector<std::int64_t> all;
        for (Choice choice : choices_of(list_)) {
            if (choice.recompute != list_.recompute.front()) continue;
            choice.offload_layers = 0;
            choice.sharding.offload = Offload::none;
            all.push_back(bytes(choice));
        }
        const auto middle = all.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(all.size()));
        std::nth_element(all.begin(), middle, all.end());
        topologies::DeviceProfile& device = request_.cluster.device;
        const double reserved = device.memory_capacity_gib.value - device.usable_gib();
        timed_.clear();
        device.memory_capacity_gib.value = to_gib(Bytes(*middle)) + kDefaultMemoryMarginGib + reserved + 1e-6;
    }

    /// Limits the memory of a rank below the device's.
    void limit(std::int64_t bytes) { request_.max_memory_bytes = bytes; }

    /// The least memory of any plan with any recomputation.
    std::int64_t least_bytes() {
        const std::vector<PartSet> sets = part_sets(request_, topologies::Cluster(request_.cluster), cost_);
        std::int64_t least = std::numeric_limits<std::int64_t>::max();
        for (Choice choice : choices_of(list_)) {
            for (const PartSet set :
                 choice.recompute == program::Recompute::selective ? sets : std::vector<PartSet>{0}) {
                choice.recompute_parts = set;
                least = std::min(least, bytes(choice));
            }
        }
        return least;
    }

    /// All plans that fit, each with the least recomputation or offload of its kind, fastest first.
    std::vector<program::PlanResult> results() {
        const topologies::Cluster cluster(request_.cluster);
        const std::vector<PartSet> sets = part_sets(request_, cluster, cost_);
        const bool has_none = std::count(list_.recompute.begin(), list_.recompute.end(), program::Recompute::none) > 0;
        std::vector<program::PlanResult> results;
        for (Choice choice : choices_of(list_)) {
            if (has_none && leaner_fits(choice)) continue;
            if (!save_enough(sets, choice)) continue;
            auto [entry, fresh] = timed_.try_emplace(choice);  // a limit changes which plans fit, but not their times
            if (fresh) entry->second = timed(plan_of(request_, choice), cluster, cost_);
            results.push_back(entry->second);
        }
        const auto faster = [](const auto& a, const auto& b) { return a.step_time_s < b.step_time_s; };
        std::stable_sort(results.begin(), results.end(), faster);
        return results;
    }

  private:
    std::int64_t bytes(const Choice& choice) {
        const auto [entry, fresh] = bytes_.try_emplace(choice, 0);
        if (fresh) entry->second = peak_of(plan_of(request_, choice));
        return entry->second;
    }
    bool fits(const Choice& choice) {
        const std::int64_t limit = request_.max_memory_bytes > 0 ? request_.max_memory_bytes : bytes(choice);
        return bytes(choice) <= std::min(limit, memory_per_rank_bytes(plan_of(request_, choice)));
    }

    /// Whether the same with less recomputed or on the host, which is tried first, fits.
    bool leaner_fits(const Choice& choice) {
        Choice without = choice;
        without.recompute = program::Recompute::none;
        without.offload_layers = 0;
        if (without != choice && !list_.must_offload_activations(choice.sharding) && fits(without)) return true;
        const auto same_pipeline = [&](const Family& family) {
            Choice pipeline = family.choice;
            pipeline.sharding = without.sharding;
            pipeline.micro_batch = without.micro_batch;
            return pipeline == without;
        };
        const auto family = std::find_if(list_.families.begin(), list_.families.end(), same_pipeline);
        for (const Sharding& less : list_.shardings_of(*family)) {
            without.sharding = choice.sharding;
            without.sharding.offload = less.offload;
            const bool is_less = less.offload < choice.sharding.offload && without.sharding == less;
            if (is_less && !list_.must_offload_activations(less) && fits(without)) return true;
        }
        return false;
    }

    /// Sets the least recomputation or the fewest offloaded blocks with which the choice fits; false if it does not.
    bool save_enough(const std::vector<PartSet>& sets, Choice& choice) {
        if (choice.recompute == program::Recompute::none && choice.offload_layers == 0) return fits(choice);
        if (choice.recompute == program::Recompute::selective) {
            return std::any_of(sets.begin(), sets.end(), [&](PartSet set) {
                choice.recompute_parts = set;
                return fits(choice);
            });
        }
        const std::int64_t blocks = largest_stage(plan_of(request_, choice));
        std::int64_t& layers = choice.relieved_layers();
        for (layers = 1; layers <= blocks; ++layers) {
            if (fits(choice)) return true;
        }
        return false;
    }

    PlanRequest request_;
    RooflineCost cost_;
    CandidateList list_;
    std::map<Choice, std::int64_t> bytes_;
    std::map<Choice, program::PlanResult> timed_;
};

}  // namespace orrery::sim
