// Private to the translation of published runs: functions that fill in the parts of a plan.
#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "sim/program/plan.h"
#include "sim/published/published_run.h"

namespace orrery::published {

/// Thrown by these functions and caught by plan_of: the run cannot be expressed as a plan.
class NotExpressible : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// Values that were filled in although the source does not state them, with the JSON pointer of the plan's value.
class Assumptions {
  public:
    /// Adds the text "WHAT: VALUE (WHY)".
    void add(const std::string& pointer, const std::string& what, const std::string& value, const std::string& why) {
        const std::string text = what + ": " + value + " (" + why + ")";
        texts_.push_back(text);
        origins_[pointer] = "assumption: " + text;
    }
    void add(const std::string& pointer, const std::string& what, std::int64_t value, const std::string& why) {
        add(pointer, what, std::to_string(value), why);
    }
    [[nodiscard]] const std::vector<std::string>& texts() const { return texts_; }
    [[nodiscard]] const std::map<std::string, std::string>& origins() const { return origins_; }

  private:
    std::vector<std::string> texts_;
    std::map<std::string, std::string> origins_;
};

[[nodiscard]] inline bool contains(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}
/// The value, or NotExpressible "WHAT is not stated".
[[nodiscard]] std::int64_t required(const std::optional<std::int64_t>& value, const std::string& what);

/// Fills in facts that the source leaves open if they follow from other facts, from the model's name or from common
/// practice; each is recorded as an assumption. A required fact that is still missing is reported by the function that
/// needs it.
[[nodiscard]] PublishedRun with_missing_facts(PublishedRun run, Assumptions& assumptions);
/// The model of the zoo whose name occurs in the published name and whose dimensions agree with the stated ones.
[[nodiscard]] std::optional<models::ModelSpec> known_model(const PublishedRun::Model& model);

[[nodiscard]] models::ModelSpec model_of(const PublishedRun& run, Assumptions& assumptions);
[[nodiscard]] topologies::ClusterSpec cluster_of(const PublishedRun& run, Assumptions& assumptions);
/// GPUs of a node as this kind of GPU is usually sold.
[[nodiscard]] std::int64_t usual_gpus_per_node(const PublishedRun& run);
[[nodiscard]] models::Implementation implementation_of(const PublishedRun& run, Assumptions& assumptions);
/// With the zero-bubble schedules of sail-sg's fork the optimizer starts at once and is rolled back if the gradient
/// norm turns out too large (post-validation), except in runs whose name says that it waits.
[[nodiscard]] bool validates_after_update(const PublishedRun& run);
/// Call after model_of, since stages are cut from the model's layers.
[[nodiscard]] program::Parallelism parallelism_of(const PublishedRun& run, const models::ModelSpec& model,
                                                  const models::Implementation& implementation,
                                                  Assumptions& assumptions);
[[nodiscard]] program::Training training_of(const PublishedRun& run, const models::ModelSpec& model,
                                            const models::Implementation& implementation,
                                            const program::Parallelism& parallelism, Assumptions& assumptions);

/// Whether the implementation has this name or is based on the one that has it.
[[nodiscard]] bool is_kind_of(const models::Implementation& implementation, const std::string& name);

/// Blocks of each virtual stage, by the partitioning rule of the run's framework.
[[nodiscard]] std::vector<std::int64_t> stage_layers_of(const PublishedRun& run, const models::ModelSpec& model,
                                                        const models::Implementation& implementation,
                                                        const program::Parallelism& parallelism,
                                                        Assumptions& assumptions);

/// The NICs of a node as described in words: "8x 200 Gb/s HDR InfiniBand per node", "1600 Gbps per node RoCE".
struct NicWords {
    std::string family;            // "infiniband", "roce", "omnipath", "efa", ...; empty: none named
    std::int64_t gb_per_s = 0;     // rate of one NIC in Gb/s; 0: not stated
    std::int64_t count = 0;        // per node; 0: not stated
    bool rate_in_figures = false;  // "200 Gb/s" rather than "HDR"
};
[[nodiscard]] NicWords read_nic_words(const std::string& text, std::int64_t gpus_per_node);

}  // namespace orrery::published
