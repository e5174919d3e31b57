// Checks that a plan uses only features that its implementation supports.
#include <algorithm>
#include <set>

#include "core/error.h"
#include "sim/program/plan.h"
#include "sim/program/plan_names.h"

namespace orrery::program {
namespace {

using models::Support;

constexpr const char* kInImplementation = "/implementation/supports/";

class SupportChecker {
  public:
    SupportChecker(const Plan& plan, const std::string& source)
        : plan_(plan),
          p_(plan.parallelism),
          t_(plan.training),
          supports_(plan.implementation.supports),
          source_(source) {}

    void run() const {
        check_statement();
        check_cluster();
        check_axes();
        check_pipeline();
        check_data_parallel();
        check_precision();
        check_memory();
    }

  private:
    /// What is allowed and the beginning of the reason, which the caller completes.
    [[nodiscard]] std::string because_it_supports(const std::string& allowed) const {
        return allowed + ", because implementation \"" + plan_.implementation.name + "\" supports ";
    }
    [[noreturn]] void refuse(const std::string& pointer, const std::string& value, const std::string& allowed) const {
        throw InputError(source_, pointer, value, allowed);
    }
    [[nodiscard]] static bool is_among(const std::vector<std::string>& names, std::string_view name) {
        return std::find(names.begin(), names.end(), name) != names.end();
    }
    /// Refuses a value that is neither in `names` nor the value `always`, which every implementation has.
    void named(const std::string& pointer, std::string_view value, std::vector<std::string> names,
               const std::string& always = "", const char* where = "no other") const {
        if (value == always || is_among(names, value)) return;
        if (!always.empty()) names.insert(names.begin(), always);
        const std::string allowed = names.empty() ? "none" : quoted_list(names);
        refuse(pointer, "\"" + std::string(value) + "\"", because_it_supports(allowed) + where);
    }

    /// Refuses unknown names in the implementation's own list: a misspelt name would refuse a supported feature.
    void known(const char* key, const std::vector<std::string>& names, std::vector<std::string> all,
               std::string_view always = "") const {
        std::erase(all, always);
        for (std::size_t i = 0; i < names.size(); ++i) {
            if (is_among(all, names[i])) continue;
            refuse(kInImplementation + std::string(key) + "/" + std::to_string(i), "\"" + names[i] + "\"",
                   quoted_list(all));
        }
    }
    void check_statement() const {
        known("axes", supports_.axes, {"tp", "pp", "cp", "ep", "etp"});
        known("context_parallel", supports_.context_parallel, names_of<ContextParallel>());
        known("schedules", supports_.schedules, names_of<Schedule>());
        known("vocabulary_parallel", supports_.vocabulary_parallel, names_of<VocabularyParallel>(), "none");
        known("data_parallel", supports_.data_parallel, names_of<DataParallel>());
        known("data_parallel_of_pipelines", supports_.data_parallel_of_pipelines, supports_.data_parallel);
        known("precisions", supports_.precisions, {"fp32", "bf16", "fp16"});
        known("narrow_products", supports_.narrow_products, names_of<Fp8Scaling>(), "none");
        known("recompute", supports_.recompute, names_of<Recompute>(), "none");
        known("recompute_parts", supports_.recompute_parts, names_of<models::BlockPart>(), "none");
        known("offload", supports_.offload, {"activations", "optimizer", "parameters"});
    }

    void check_cluster() const {
        const std::int64_t nodes = plan_.cluster.nodes;
        if (supports_.most_nodes == 0 || nodes <= supports_.most_nodes) return;
        refuse("/cluster/nodes", std::to_string(nodes),
               because_it_supports("at most " + std::to_string(supports_.most_nodes)) + "no more");
    }

    void check_axes() const {
        const auto axis = [&](const char* name, std::int64_t degree) {
            if (degree == 1 || is_among(supports_.axes, name)) return;
            refuse(std::string("/parallelism/") + name, std::to_string(degree),
                   because_it_supports("1") + "no " + name);
        };
        axis("tp", p_.tp);
        axis("pp", p_.pp);
        axis("cp", p_.cp);
        axis("ep", p_.ep);
        axis("etp", p_.etp);
        if (p_.sequence_parallel && !supports_.sequence_parallel) {
            refuse("/parallelism/sequence_parallel", "true", because_it_supports("false") + "none");
        }
        if (p_.cp > 1) {
            named("/parallelism/context_parallel", models::name_of(p_.context_parallel), supports_.context_parallel);
        }
    }

    void check_pipeline() const {
        if (p_.pp == 1) return;
        named("/parallelism/schedule", name_of(p_.schedule), supports_.schedules);
        named("/parallelism/vocabulary_parallel", name_of(p_.vocabulary_parallel), supports_.vocabulary_parallel,
              "none");
    }

    void check_data_parallel() const {
        const std::string pointer = "/parallelism/data_parallel", value = name_of(p_.data_parallel);
        if (p_.gradient_ranks() > 1) {
            named(pointer, value, supports_.data_parallel);
            if (p_.pp > 1) named(pointer, value, supports_.data_parallel_of_pipelines, "", "no other with pp above 1");
        }
        if (p_.has_shard_sets() && p_.shards_optimizer() && !supports_.shard_groups) {
            refuse("/parallelism/dp_shard", std::to_string(p_.dp_shard), because_it_supports("0") + "no shard groups");
        }
    }

    void check_precision() const {
        const Precision& precision = t_.precision;
        named("/training/precision/activation", orrery::name_of(precision.activation), supports_.precisions);
        named("/training/precision/fp8", models::name_of(precision.fp8), supports_.narrow_products, "none");
    }

    void check_memory() const {
        const MemorySavings& memory = t_.memory;
        named("/training/memory/recompute", name_of(memory.recompute), supports_.recompute, "none");
        if (memory.recompute == Recompute::selective) {
            const std::string parts = "/training/memory/recompute_parts";
            if (memory.recompute_parts.empty()) named(parts, "attention_core", supports_.recompute_parts);
            for (std::size_t i = 0; i < memory.recompute_parts.size(); ++i) {
                named(parts + "/" + std::to_string(i), memory.recompute_parts[i], supports_.recompute_parts);
            }
        }
        const auto offloads = [&](const char* key, const char* what, bool asked, const std::string& value) {
            if (!asked || is_among(supports_.offload, what)) return;
            refuse(std::string("/training/memory/") + key, value,
                   because_it_supports(value == "true" ? "false" : "0") + "no offload of " + what);
        };
        offloads("offload_layers", "activations", memory.offload_layers > 0, std::to_string(memory.offload_layers));
        offloads("offload_optimizer", "optimizer", memory.offload_optimizer, "true");
        offloads("offload_parameters", "parameters", memory.offload_parameters, "true");
    }

    const Plan& plan_;
    const Parallelism& p_;
    const Training& t_;
    const Support& supports_;
    const std::string& source_;
};

}  // namespace

void check_support(const Plan& plan, const std::string& source) {
    if (plan.implementation.supports.source.empty()) return;
    SupportChecker(plan, source).run();
}

}  // namespace orrery::program
