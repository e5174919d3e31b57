// Checks that a plan uses only features that its implementation supports.
#include <fmt/core.h>

#include <algorithm>

#include "core/error.h"
#include "models/implementation_fields.h"
#include "sim/program/plan_fields.h"

namespace orrery::program {
namespace {

using models::Support;
using Names = std::vector<std::string>;

class SupportChecker {
  public:
    SupportChecker(const Plan& plan, const std::string& source)
        : plan_(plan), p_(plan.parallelism), supports_(plan.implementation.supports), source_(source) {}

    void run() const {
        check_statement();
        check_parallelism();
        check_training();
    }

  private:
    /// `what`: what it supports at most.
    template <typename Value>
    [[noreturn]] void refuse(const std::string& pointer, const Value& value, const std::string& allowed,
                             const std::string& what) const {
        throw InputError(
            source_, pointer, shown(value),
            fmt::format("{}, because implementation \"{}\" supports {}", allowed, plan_.implementation.name, what));
    }
    /// Refuses a name that is neither in the list nor `always`, which every implementation has.
    void named(const char* pointer, std::string_view name, const Names& list, std::string_view always = "",
               const char* what = "no other") const {
        if (name == always || Support::lists(list, name)) return;
        Names allowed = list;
        if (!always.empty()) allowed.emplace(allowed.begin(), always);
        refuse(pointer, in_quotes(name), allowed.empty() ? "none" : quoted_list(allowed), what);
    }

    /// The key of one of the lists.
    [[nodiscard]] std::string key_of(const Names& list) const {
        std::string result;
        visit_fields(supports_, [&](const char* key, const auto& field, const auto&...) {
            if (static_cast<const void*>(&field) == &list) result = key;
        });
        return result;
    }
    /// Refuses unknown names in the implementation's own list: a misspelt name would refuse a supported feature. "none"
    /// is a name of values that every implementation has.
    void known(const Names& list, Names all) const {
        if (Support::states_all(list)) return;
        std::erase(all, "none");
        for (std::size_t i = 0; i < list.size(); ++i) {
            if (std::find(all.begin(), all.end(), list[i]) != all.end()) continue;
            throw InputError(source_, fmt::format("/implementation/supports/{}/{}", key_of(list), i),
                             in_quotes(list[i]), quoted_list(all));
        }
    }
    void check_statement() const {
        known(supports_.axes, {"tp", "pp", "cp", "ep", "etp"});
        known(supports_.context_parallel, names_of<ContextParallel>());
        known(supports_.schedules, names_of<Schedule>());
        known(supports_.vocabulary_parallel, names_of<VocabularyParallel>());
        const Names kinds = names_of<DataParallel>();
        known(supports_.data_parallel, kinds);
        known(supports_.data_parallel_of_pipelines,
              Support::states_all(supports_.data_parallel) ? kinds : supports_.data_parallel);
        known(supports_.precisions, {"fp32", "bf16", "fp16"});
        known(supports_.narrow_products, names_of<Fp8Scaling>());
        known(supports_.moments, {"bf16"});
        known(supports_.moments_of_whole_states,
              Support::states_all(supports_.moments) ? Names{"bf16"} : supports_.moments);
        known(supports_.recompute, names_of<Recompute>());
        known(supports_.recompute_parts, names_of<models::BlockPart>());
        known(supports_.offload, {"activations", "optimizer", "parameters"});
    }

    void check_parallelism() const {
        const std::int64_t nodes = plan_.cluster.nodes;
        if (supports_.most_nodes > 0 && nodes > supports_.most_nodes) {
            refuse("/cluster/nodes", nodes, fmt::format("at most {}", supports_.most_nodes), "no more");
        }
        visit_degrees(p_, [&](const std::string& axis, std::int64_t degree, IntegerRange) {
            if (degree == 1 || axis == "dp" || Support::lists(supports_.axes, axis)) return;
            refuse("/parallelism/" + axis, degree, "1", "no " + axis);
        });
        if (p_.sequence_parallel && !supports_.sequence_parallel) {
            refuse("/parallelism/sequence_parallel", true, "false", "none");
        }
        if (p_.overlaps_experts && !supports_.overlaps_experts) {
            refuse("/parallelism/overlaps_experts", true, "false", "none");
        }
        if (p_.cp > 1) {
            named("/parallelism/context_parallel", models::name_of(p_.context_parallel), supports_.context_parallel);
        }
        if (p_.pp > 1) {
            named("/parallelism/schedule", name_of(p_.schedule), supports_.schedules);
            named("/parallelism/vocabulary_parallel", name_of(p_.vocabulary_parallel), supports_.vocabulary_parallel,
                  "none");
        }
        if (p_.gradient_ranks() > 1) {
            const char* const pointer = "/parallelism/data_parallel";
            const std::string kind = name_of(p_.data_parallel);
            named(pointer, kind, supports_.data_parallel);
            if (p_.pp > 1) named(pointer, kind, supports_.data_parallel_of_pipelines, "", "no other with pp above 1");
        }
        if (p_.has_shard_sets() && p_.shards_optimizer() && !supports_.shard_groups) {
            refuse("/parallelism/dp_shard", p_.dp_shard, "0", "no shard groups");
        }
    }

    void check_training() const {
        const Precision& precision = plan_.training.precision;
        named("/training/precision/activation", orrery::name_of(precision.activation), supports_.precisions);
        named("/training/precision/fp8", models::name_of(precision.fp8), supports_.narrow_products, "none");
        check_optimizer();
        const MemorySavings& memory = plan_.training.memory;
        named("/training/memory/recompute", name_of(memory.recompute), supports_.recompute, "none");
        if (memory.recompute == Recompute::selective) {
            const std::string parts = "/training/memory/recompute_parts";
            if (memory.recompute_parts.empty()) named(parts.c_str(), "attention_core", supports_.recompute_parts);
            for (std::size_t i = 0; i < memory.recompute_parts.size(); ++i) {
                named(fmt::format("{}/{}", parts, i).c_str(), memory.recompute_parts[i], supports_.recompute_parts);
            }
        }
        const auto offload = [&](const char* key, auto asked, const std::string& what) {
            constexpr decltype(asked) kNone{};
            if (asked == kNone || Support::lists(supports_.offload, what)) return;
            refuse(std::string("/training/memory/") + key, asked, shown(kNone), "no offload of " + what);
        };
        offload("offload_layers", memory.offload_layers, "activations");
        offload("offload_optimizer", memory.offload_optimizer, "optimizer");
        offload("offload_parameters", memory.offload_parameters, "parameters");
    }

    void check_optimizer() const {
        const char* const pointer = "/training/precision/moments";
        const std::string_view moments = orrery::name_of(plan_.training.precision.moments);
        named(pointer, moments, supports_.moments, "fp32");
        if (p_.gradient_ranks() > 1 && !p_.shards_optimizer()) {
            named(pointer, moments, supports_.moments_of_whole_states, "fp32", "no other unless states are sharded");
        }
        if (plan_.training.optimizer.post_validation && !supports_.post_validation) {
            refuse("/training/optimizer/post_validation", true, "false", "no post-validation");
        }
    }

    const Plan& plan_;
    const Parallelism& p_;
    const Support& supports_;
    const std::string& source_;
};

}  // namespace

void check_support(const Plan& plan, const std::string& source) {
    if (plan.implementation.supports.source.empty()) return;
    SupportChecker(plan, source).run();
}

}  // namespace orrery::program
