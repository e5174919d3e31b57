// Private to the translation of published runs: its parts, by what of a plan they fill in.
#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "sim/program/plan.h"
#include "sim/published/published_run.h"

namespace orrery::published {

/// Thrown by the parts, caught by plan_of: this run cannot be said as a plan.
class NotExpressible : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// What was filled in without being stated, and of what plan value.
class Assumptions {
  public:
    /// "WHAT: VALUE (WHY)".
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

/// The run with the facts that its source leaves open and that follow from the others, from the model's name or from
/// what is usual; each is an assumption. What stays open is named by the part that wants it.
[[nodiscard]] PublishedRun with_missing_facts(PublishedRun run, Assumptions& assumptions);
/// The model of the zoo whose name is in the published one and whose dimensions agree with what is stated.
[[nodiscard]] std::optional<models::ModelSpec> known_model(const PublishedRun::Model& model);

[[nodiscard]] models::ModelSpec model_of(const PublishedRun& run, Assumptions& assumptions);
[[nodiscard]] topologies::ClusterSpec cluster_of(const PublishedRun& run, Assumptions& assumptions);
/// As the run's kind of GPU usually comes.
[[nodiscard]] std::int64_t usual_gpus_per_node(const PublishedRun& run);
[[nodiscard]] models::Implementation implementation_of(const PublishedRun& run, Assumptions& assumptions);
/// After model_of, since stages are cut from the model's layers.
[[nodiscard]] program::Parallelism parallelism_of(const PublishedRun& run, const models::ModelSpec& model,
                                                  const models::Implementation& implementation,
                                                  Assumptions& assumptions);
[[nodiscard]] program::Training training_of(const PublishedRun& run, const models::ModelSpec& model,
                                            const models::Implementation& implementation,
                                            const program::Parallelism& parallelism, Assumptions& assumptions);

/// Whether it is the implementation of this name or based on it.
[[nodiscard]] bool is_kind_of(const models::Implementation& implementation, const std::string& name);

/// Blocks of each virtual stage, by the rule of the run's framework.
[[nodiscard]] std::vector<std::int64_t> stage_layers_of(const PublishedRun& run, const models::ModelSpec& model,
                                                        const models::Implementation& implementation,
                                                        const program::Parallelism& parallelism,
                                                        Assumptions& assumptions);

/// NICs of a node, as words say: "8x 200 Gb/s HDR InfiniBand per node", "1600 Gbps per node RoCE".
struct NicWords {
    std::string family;            // "infiniband", "roce", "omnipath", "efa", ...; empty: none named
    std::int64_t gb_per_s = 0;     // of one NIC, in Gb/s; 0: not stated
    std::int64_t count = 0;        // of a node; 0: not stated
    bool rate_in_figures = false;  // "200 Gb/s" rather than "HDR"
};
[[nodiscard]] NicWords read_nic_words(const std::string& text, std::int64_t gpus_per_node);

}  // namespace orrery::published
