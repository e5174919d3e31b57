#include "sim/planner/plan_changes.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "core/error.h"
#include "sim/planner/candidates.h"
#include "sim/planner/planner.h"
#include "sim/program/pass_pairs.h"

namespace orrery::sim {
namespace {

using program::DataParallel;
using program::Parallelism;
using program::Plan;
using program::Recompute;
using program::Schedule;

/// The degrees that share the devices.
struct Degree {
    const char* name;
    std::int64_t Parallelism::*value;
};
constexpr std::array<Degree, 4> kDegrees{
    {{"dp", &Parallelism::dp}, {"tp", &Parallelism::tp}, {"pp", &Parallelism::pp}, {"cp", &Parallelism::cp}}};

/// Makes the micro-batch divide the sequences of a replica.
void fit_micro_batch(Plan& plan) {
    const std::int64_t sequences = plan.training.global_batch_size / plan.parallelism.dp;
    std::int64_t& size = plan.training.micro_batch_size;
    while (size > 1 && sequences % size != 0) --size;
}

/// Makes the other choices possible with changed degrees.
void follow_degrees(Plan& plan, const Plan& before) {
    Parallelism& p = plan.parallelism;
    if (p.gradient_ranks() == 1) set_sharding(plan, DataParallel::ddp);
    if (p.dp_shard > 0 && p.gradient_ranks() % p.dp_shard != 0) p.dp_shard = 0;
    if (p.dp_shard == p.gradient_ranks()) p.dp_shard = 0;
    p.sequence_parallel = p.tp > 1 && (p.sequence_parallel || before.parallelism.tp == 1);
    if (p.sequence_parallel) plan.training.memory.shards_checkpoints = false;
    if (p.cp > 1 && before.parallelism.cp == 1) {
        p.context_parallel = context_parallel_of(
            {.model = plan.model, .implementation = plan.implementation, .training = plan.training});
    }
    if (p.pp == 1) {
        p.schedule = Schedule::one_f_one_b;
        p.chunks = 1;
    }
    if (p.pp != before.parallelism.pp) {
        while (p.chunks > 2 && p.virtual_stages() > plan.model.layers) --p.chunks;
        if (p.virtual_stages() <= plan.model.layers) cut_stages(plan);  // otherwise check_plan refuses the layout
    }
    fit_micro_batch(plan);
}

class Neighbours {
  public:
    explicit Neighbours(const Plan& plan) : plan_(plan), p_(plan.parallelism) {}

    std::vector<PlanChange> all() {
        micro_batches();
        degrees();
        experts();
        sharding();
        recomputation();
        pipelines();
        switches();
        return std::move(found_);
    }

  private:
    bool add(std::string description, const std::function<void(Plan&)>& apply) {
        PlanChange change{std::move(description), plan_};
        apply(change.plan);
        Parallelism& changed = change.plan.parallelism;
        const bool has_pairs = program::has_pairs_on(changed.schedule, changed.pp);
        changed.overlaps_experts = changed.overlaps_experts && changed.ep > 1 && has_pairs;
        try {
            program::check_plan(change.plan, "a changed plan");
        } catch (const InputError&) {
            return false;
        }
        found_.push_back(std::move(change));
        return true;
    }

    void micro_batches() {
        const std::int64_t size = plan_.training.micro_batch_size;
        const std::vector<std::int64_t> sizes = divisors(plan_.training.global_batch_size / p_.dp);
        const auto try_size = [&](std::int64_t to) {
            return add(instead("micro-batch", std::to_string(to), std::to_string(size)),
                       [to](Plan& plan) { plan.training.micro_batch_size = to; });
        };
        const auto here = std::find(sizes.begin(), sizes.end(), size);
        for (auto one = std::make_reverse_iterator(here); one != sizes.rend(); ++one) {
            if (try_size(*one)) break;
        }
        for (auto one = here; one != sizes.end(); ++one) {
            if (one != here && try_size(*one)) break;
        }
    }

    void degrees() {
        if (!p_.placement.empty()) return;
        for (const Degree& more : kDegrees) {
            for (const Degree& less : kDegrees) {
                if (more.value == less.value || p_.*less.value % 2 != 0) continue;
                const std::int64_t high = 2 * p_.*more.value, low = p_.*less.value / 2;
                const bool is_tp = more.value == &Parallelism::tp;
                if (is_tp && high > plan_.cluster.devices_per_node) continue;
                (void)add(std::string(more.name) + " " + std::to_string(high) + " " + less.name + " " +
                              std::to_string(low) + " instead of " + more.name + " " + std::to_string(p_.*more.value) +
                              " " + less.name + " " + std::to_string(p_.*less.value),
                          [&](Plan& plan) {
                              plan.parallelism.*more.value = high;
                              plan.parallelism.*less.value = low;
                              follow_degrees(plan, plan_);
                          });
            }
        }
    }

    void experts() {
        if (!plan_.model.has_experts()) return;
        std::vector<std::int64_t> degrees{2 * p_.ep};
        if (p_.ep % 2 == 0) degrees.push_back(p_.ep / 2);
        for (const std::int64_t ep : degrees) {
            (void)add(instead("ep", std::to_string(ep), std::to_string(p_.ep)),
                      [ep](Plan& plan) { plan.parallelism.ep = ep; });
        }
        if (p_.ep == 1 || !program::has_pairs_on(p_.schedule, p_.pp)) return;
        (void)add(p_.overlaps_experts ? "passes that wait for their own tokens"
                                      : "passes that compute while the tokens of another pass travel",
                  [](Plan& plan) { plan.parallelism.overlaps_experts = !plan.parallelism.overlaps_experts; });
    }

    void sharding() {
        if (p_.gradient_ranks() == 1 || p_.data_parallel == DataParallel::dp) return;
        for (const DataParallel kind : program::kDataParallelKinds) {
            if (kind == p_.data_parallel || !row_of(kind).is_searched) continue;
            (void)add(instead("data parallelism", name_of(kind), name_of(p_.data_parallel)),
                      [kind](Plan& plan) { set_sharding(plan, kind); });
        }
        if (p_.has_shard_sets()) {
            (void)add("shards over all " + std::to_string(p_.gradient_ranks()) + " replicas instead of " +
                          std::to_string(p_.dp_shard),
                      [](Plan& plan) { plan.parallelism.dp_shard = 0; });
        }
        if (!p_.shards_parameters()) return;
        (void)add(p_.reshard_after_forward ? "gathered parameters kept after the forward pass"
                                           : "gathered parameters freed after the forward pass",
                  [](Plan& plan) { plan.parallelism.reshard_after_forward = !plan.parallelism.reshard_after_forward; });
    }

    void recomputation() {
        const program::MemorySavings& memory = plan_.training.memory;
        const auto takes = [&](Recompute kind, const std::vector<std::string>& parts) {
            std::string description = name_of(kind) == "none" ? "no recomputation" : name_of(kind) + " recomputation";
            for (std::size_t i = 0; i < parts.size(); ++i) {
                description += (i == 0 ? " (" : ", ") + parts[i] + (i + 1 == parts.size() ? ")" : "");
            }
            (void)add(std::move(description), [&](Plan& plan) {
                plan.training.memory.recompute = kind;
                plan.training.memory.recompute_layers = -1;
                plan.training.memory.recompute_parts = parts;
                if (kind == Recompute::full) plan.training.memory.offload_layers = 0;
            });
        };
        if (memory.recompute != Recompute::none) takes(Recompute::none, {});
        const std::vector<std::string> parts = selective_parts({.implementation = plan_.implementation});
        if (memory.recompute != Recompute::selective || memory.recompute_parts != parts) {
            takes(Recompute::selective, parts);
        }
        if (memory.recompute != Recompute::full || memory.recompute_layers >= 0) takes(Recompute::full, {});
    }

    void pipelines() {
        if (p_.pp == 1) return;
        const auto takes = [&](Schedule schedule, std::int64_t chunks) {
            std::string description = instead("schedule", name_of(schedule), name_of(p_.schedule));
            if (schedule == p_.schedule) {
                description = instead("chunks a rank", std::to_string(chunks), std::to_string(p_.chunks));
            } else if (chunks > 1) {
                description += " with " + std::to_string(chunks) + " chunks a rank";
            }
            (void)add(std::move(description), [&](Plan& plan) {
                plan.parallelism.schedule = schedule;
                plan.parallelism.chunks = chunks;
                set_sharding(plan, plan.parallelism.data_parallel);
                if (plan.parallelism.virtual_stages() <= plan.model.layers) cut_stages(plan);
            });
        };
        if (p_.schedule != Schedule::one_f_one_b) takes(Schedule::one_f_one_b, 1);
        if (p_.schedule == Schedule::interleaved) {
            takes(Schedule::interleaved, 2 * p_.chunks);
            if (p_.chunks > 3) takes(Schedule::interleaved, p_.chunks / 2);
        } else {
            takes(Schedule::interleaved, 2);
        }
    }

    void switches() {
        if (p_.tp > 1) {
            (void)add(p_.sequence_parallel ? "no sequence parallelism" : "sequence parallelism", [](Plan& plan) {
                plan.parallelism.sequence_parallel = !plan.parallelism.sequence_parallel;
                plan.training.memory.shards_checkpoints = false;
            });
        }
        if (p_.pp == 1 || p_.dp == 1 || !p_.placement.empty()) return;
        const auto other = p_.order == kStagesBeforeReplicas ? Parallelism().order : kStagesBeforeReplicas;
        (void)add("rank order " + mesh_order_text(Parallelism{.order = other}),
                  [&](Plan& plan) { plan.parallelism.order = other; });
    }

    const Plan& plan_;
    const Parallelism& p_;
    std::vector<PlanChange> found_;
};

}  // namespace

std::string instead(const std::string& name, const std::string& value, const std::string& of) {
    return name + " " + value + " instead of " + of;
}

void cut_stages(Plan& plan) {
    Parallelism& p = plan.parallelism;
    p.stage_layers = program::even_stages(plan.model.layers, p.virtual_stages());
    std::int64_t& layers = plan.training.memory.recompute_layers;
    layers = layers > p.stage_layers.front() ? -1 : layers;
}

void set_sharding(Plan& plan, DataParallel kind) {
    Parallelism& p = plan.parallelism;
    p.data_parallel = kind;
    p.reduces_every_micro_batch = reduces_each_micro_batch(kind, p.schedule);
    if (!p.shards_optimizer()) p.dp_shard = 0;
    if (!p.shards_parameters()) p.reshard_after_forward = true;
}

std::vector<PlanChange> single_changes(const Plan& plan) {
    return Neighbours(plan).all();
}

}  // namespace orrery::sim
