// Private to the planner: which degrees a request tries on any number of devices.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/planner/candidates.h"
#include "sim/program/obstacle.h"

namespace orrery::sim {

/// Whether a degree that the request may fix (0: any) can be this one.
[[nodiscard]] inline bool is_wanted(std::int64_t asked, std::int64_t degree) {
    return asked == 0 || asked == degree;
}
/// Whether stages may be other than as even as possible.
[[nodiscard]] bool lays_out_stages(const PlanRequest& request);
/// Each stage has a block, except that the first and the last may have none where stages are laid out.
[[nodiscard]] std::int64_t most_stages(const PlanRequest& request);

/// Degrees that divide model, sequence and batch, and that the implementation has. An axis that it lacks is tried if
/// the request asks for it, so that check_plan reports it. PlanRequest::devices does not matter, except to layer_cuts.
class TriedDegrees {
  public:
    /// Keeps a reference.
    explicit TriedDegrees(const PlanRequest& request) : request_(request), model_(request.model) {}

    /// Calls visit(mesh), until it returns true, with each combination of tp, pp, cp and dp that multiplies to this
    /// number of devices, in ascending order. Returns whether it did.
    template <typename Visit>
    bool any_mesh(std::int64_t devices, const Visit& visit) const {
        for (const std::int64_t tp : divisors(devices)) {
            if (!tensor(tp)) continue;
            for (const std::int64_t pp : divisors(devices / tp)) {
                if (!pipeline(pp)) continue;
                for (const std::int64_t cp : divisors(devices / tp / pp)) {
                    const std::int64_t dp = devices / tp / pp / cp;
                    if (!context(cp) || !is_wanted(request_.dp, dp)) continue;
                    if (request_.training.global_batch_size % dp != 0) continue;
                    if (visit(Choice{.dp = dp, .tp = tp, .pp = pp, .cp = cp})) return true;
                }
            }
        }
        return false;
    }
    /// Whether there is such a combination.
    [[nodiscard]] bool has_mesh(std::int64_t devices) const {
        return any_mesh(devices, [](const Choice&) { return true; });
    }

    [[nodiscard]] bool tensor(std::int64_t tp) const {
        return is_wanted(request_.tp, tp) && !obstacle_to_tensor(tp).has_value();
    }
    [[nodiscard]] bool pipeline(std::int64_t pp) const {
        return is_wanted(request_.pp, pp) && !obstacle_to_pipeline(pp).has_value();
    }
    /// Why no plan has this degree; no value: plans may have it.
    [[nodiscard]] std::optional<program::Obstacle> obstacle_to_tensor(std::int64_t tp) const;
    [[nodiscard]] std::optional<program::Obstacle> obstacle_to_pipeline(std::int64_t pp) const;
    [[nodiscard]] bool context(std::int64_t cp) const;
    [[nodiscard]] std::vector<std::int64_t> expert_degrees() const;
    /// Tensor-parallel degrees of the experts beside this one of the other layers: its divisors that divide the
    /// experts' width, if the request tries them.
    [[nodiscard]] std::vector<std::int64_t> expert_tensor_degrees(std::int64_t tp) const;
    /// Both are tried with tp > 1, but a mixture of experts needs sequence parallelism there.
    [[nodiscard]] bool sequence_parallel(bool on, std::int64_t tp) const;
    [[nodiscard]] bool is_too_large(std::int64_t micro_batch) const;

    /// "; implementation X has no tp, no pp", for an error message; empty if it has all axes.
    [[nodiscard]] std::string missing_axes() const;

    /// Every way in which a plan on at most request.devices devices may cut layers and batch: tp, cp, ep, etp,
    /// sequence parallelism and micro-batch size, on one stage with the fewest replicas that hold all experts.
    [[nodiscard]] std::vector<Choice> layer_cuts() const;

  private:
    [[nodiscard]] bool has_axis(const char* name, std::int64_t degree, std::int64_t asked) const;
    void add_cut(Choice cut, std::vector<Choice>& cuts) const;

    const PlanRequest& request_;
    const models::ModelSpec& model_;
};

}  // namespace orrery::sim
