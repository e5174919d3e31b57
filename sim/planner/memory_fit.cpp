// Whether a plan fits its devices, and which changes would make it fit.
#include <algorithm>
#include <functional>
#include <utility>

#include "core/error.h"
#include "core/units.h"
#include "sim/planner/candidates.h"
#include "sim/planner/lowered_bounds.h"
#include "sim/planner/plan_changes.h"
#include "sim/planner/planner.h"
#include "sim/planner/timing.h"

namespace orrery::sim {
namespace {

using program::DataParallel;
using program::MemoryFit;
using program::Plan;
using program::Recompute;
using program::Remedy;

constexpr std::size_t kMostChanges = 3;

struct Change {
    std::string description;
    std::function<void(Plan&)> apply;
    std::vector<Change> milder;  // between the alternative before it and this one, mildest first
};
/// Alternatives that change the same thing, mildest first; at most one of them is applied.
using Changes = std::vector<Change>;

/// All changes that might make this plan fit, grouped by what they change.
class Remedies {
  public:
    explicit Remedies(const Plan& plan) : plan_(plan), p_(plan.parallelism), memory_(plan.training.memory) {}

    std::vector<Changes> all() {
        micro_batches();
        sequence_parallel();
        sharding();
        recomputation();
        host();
        degrees();
        std::erase_if(kinds_, [](const Changes& kind) { return kind.empty(); });
        return std::move(kinds_);
    }

  private:
    void micro_batches() {
        Changes found;
        const std::int64_t size = plan_.training.micro_batch_size;
        const std::vector<std::int64_t> smaller = divisors(size);
        for (auto one = smaller.rbegin() + 1; one != smaller.rend(); ++one) {
            found.push_back({instead("micro-batch", std::to_string(*one), std::to_string(size)),
                             [to = *one](Plan& plan) { plan.training.micro_batch_size = to; }});
        }
        kinds_.push_back(std::move(found));
    }

    void sequence_parallel() {
        if (p_.tp == 1 || p_.sequence_parallel) return;
        kinds_.push_back({{"sequence parallelism", [](Plan& plan) {
                               plan.parallelism.sequence_parallel = true;
                               plan.training.memory.shards_checkpoints = false;
                           }}});
    }

    void sharding() {
        Changes found;
        if (p_.gradient_ranks() > 1 && p_.data_parallel != DataParallel::dp) {
            for (const DataParallel kind : program::kDataParallelKinds) {
                if (!row_of(kind).shards_states || kind <= p_.data_parallel) continue;
                found.push_back({instead("data parallelism", name_of(kind), name_of(p_.data_parallel)),
                                 [kind](Plan& plan) { set_sharding(plan, kind); }});
            }
        }
        kinds_.push_back(std::move(found));
    }

    void recomputation() {
        Changes found;
        const auto change = [](std::string description, Recompute kind, std::int64_t layers,
                               std::vector<std::string> parts) {
            return Change{std::move(description), [kind, layers, parts = std::move(parts)](Plan& plan) {
                              program::MemorySavings& memory = plan.training.memory;
                              memory.recompute = kind;
                              memory.recompute_layers = layers;
                              memory.recompute_parts = parts;
                              if (kind == Recompute::full) memory.offload_layers = 0;
                          }};
        };
        const auto of_blocks = [&](std::int64_t layers) {
            return change("full recomputation of " + std::to_string(layers) + " blocks a chunk", Recompute::full,
                          layers, {});
        };
        if (memory_.recompute == Recompute::none) {
            const std::vector<std::string> parts = selective_parts({.implementation = plan_.implementation});
            std::string named;
            for (const std::string& part : parts) named += (named.empty() ? "" : ", ") + part;
            found.push_back(change("selective recomputation (" + named + ")", Recompute::selective, -1, parts));
        }
        const std::int64_t chunk =
            p_.stage_layers.empty() ? 0 : *std::max_element(p_.stage_layers.begin(), p_.stage_layers.end());
        const std::int64_t now = memory_.recompute == Recompute::full ? memory_.recompute_layers : 0;
        std::int64_t before = now;
        for (std::int64_t layers = now + 1; now >= 0 && layers < chunk; layers = std::min(2 * layers, chunk)) {
            found.push_back(of_blocks(layers));
            while (++before < layers) found.back().milder.push_back(of_blocks(before));
        }
        if (now >= 0 && chunk > 0) {
            found.push_back(change("full recomputation", Recompute::full, -1, {}));
            while (++before < chunk) found.back().milder.push_back(of_blocks(before));
        }
        kinds_.push_back(std::move(found));
    }

    void host() {
        if (memory_.offload_optimizer) return;
        kinds_.push_back(
            {{"optimizer states on the host", [](Plan& plan) { plan.training.memory.offload_optimizer = true; }}});
    }

    void degrees() {
        if (p_.dp % 2 != 0 || !p_.placement.empty()) return;
        const auto half = [](Plan& plan) {
            plan.parallelism.dp /= 2;
            plan.parallelism.dp_shard = 0;
        };
        const auto describe = [&](const char* name, std::int64_t degree) {
            return std::string(name) + " " + std::to_string(2 * degree) + " dp " + std::to_string(p_.dp / 2) +
                   " instead of " + name + " " + std::to_string(degree) + " dp " + std::to_string(p_.dp);
        };
        if (2 * p_.tp <= plan_.cluster.devices_per_node) {
            kinds_.push_back({{describe("tp", p_.tp), [half](Plan& plan) {
                                   half(plan);
                                   plan.parallelism.tp *= 2;
                               }}});
        }
        if (plan_.training.sequence_length / (2 * p_.cp) >= kLeastContextPositions) {
            kinds_.push_back(
                {{describe("cp", p_.cp), [half](Plan& plan) {
                      half(plan);
                      plan.parallelism.cp *= 2;
                      if (plan.parallelism.cp > 2) return;
                      plan.parallelism.context_parallel = context_parallel_of(
                          {.model = plan.model, .implementation = plan.implementation, .training = plan.training});
                  }}});
        }
        if (2 * p_.virtual_stages() > plan_.model.layers) return;
        kinds_.push_back({{describe("pp", p_.pp), [half](Plan& plan) {
                               half(plan);
                               plan.parallelism.pp *= 2;
                               cut_stages(plan);
                           }}});
    }

    const Plan& plan_;
    const program::Parallelism& p_;
    const program::MemorySavings& memory_;
    std::vector<Changes> kinds_;
};

class RemedySearch {
  public:
    RemedySearch(const Plan& plan, const topologies::Cluster& cluster, std::optional<double> margin_gib)
        : plan_(plan),
          cluster_(cluster),
          allowed_(memory_per_rank_bytes(plan, margin_gib)),
          kinds_(Remedies(plan).all()) {}

    std::vector<Remedy> run(std::size_t most) {
        for (const Changes& kind : kinds_) {  // the mildest sufficient change of each group
            for (const Change& change : kind) {
                if (!fitting({&change})) continue;
                found_.push_back(mildest(change));
                break;
            }
        }
        for (std::size_t count = 2; found_.empty() && count <= kMostChanges; ++count) combine({}, 0, count);
        const program::Rates& rates = plan_.rates;
        const RooflineCost cost(plan_.cluster, rates);
        for (Remedy& remedy : found_) remedy.step_time_s = timed(remedy.plan, cluster_, cost).step_time_s;
        std::stable_sort(found_.begin(), found_.end(),
                         [](const Remedy& a, const Remedy& b) { return a.step_time_s < b.step_time_s; });
        if (found_.size() > most) found_.resize(most);
        return std::move(found_);
    }

  private:
    /// Tries every combination of `count` groups, with the strongest change of each.
    void combine(std::vector<const Change*> chosen, std::size_t from, std::size_t count) {
        if (chosen.size() == count) {
            if (std::optional<Remedy> remedy = fitting(chosen)) found_.push_back(std::move(*remedy));
            return;
        }
        for (std::size_t kind = from; kind < kinds_.size(); ++kind) {
            chosen.push_back(&kinds_[kind].back());
            combine(chosen, kind + 1, count);
            chosen.pop_back();
        }
    }

    /// The mildest sufficient one of the change and those that are milder. Each needs less memory than the ones before.
    [[nodiscard]] Remedy mildest(const Change& change) const {
        Remedy remedy = *fitting({&change});
        std::size_t low = 0, high = change.milder.size();
        while (low < high) {
            const std::size_t middle = (low + high) / 2;
            if (std::optional<Remedy> found = fitting({&change.milder[middle]})) {
                remedy = std::move(*found);
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        return remedy;
    }

    /// The plan with these changes, if it is valid and fits.
    [[nodiscard]] std::optional<Remedy> fitting(const std::vector<const Change*>& changes) const {
        Remedy remedy{.plan = plan_};
        for (const Change* change : changes) {
            change->apply(remedy.plan);
            remedy.changes.push_back(change->description);
        }
        try {
            program::check_plan(remedy.plan, "a remedy");
        } catch (const InputError&) {
            return {};
        }
        const std::int64_t needed = lowered_memory_bytes(remedy.plan);
        if (needed > allowed_) return {};
        remedy.peak_memory_gib = to_gib(Bytes(needed));
        return remedy;
    }

    const Plan& plan_;
    const topologies::Cluster& cluster_;
    const std::int64_t allowed_;
    const std::vector<Changes> kinds_;
    std::vector<Remedy> found_;
};

}  // namespace

std::int64_t memory_per_rank_bytes(const Plan& plan, std::optional<double> margin_gib) {
    const topologies::DeviceProfile& device = plan.cluster.device;
    const double margin = margin_gib.value_or(device.host_runs_compute ? 0 : kDefaultMemoryMarginGib);
    std::int64_t ranks_of_device = 1;
    if (plan.cluster.ranks_may_share_devices()) {  // a CPU profile states the memory of the whole node
        const std::int64_t nodes = std::max<std::int64_t>(1, plan.cluster.nodes);
        ranks_of_device = (plan.parallelism.world_size() + nodes - 1) / nodes;
    }
    const double left_gib = std::max(0.0, device.usable_gib() - margin);
    return static_cast<std::int64_t>(left_gib * kGibibyte) / ranks_of_device;
}

MemoryFit memory_fit(const program::Program& program, std::optional<double> margin_gib) {
    MemoryFit fit{.allowed_bytes = memory_per_rank_bytes(*program.plan, margin_gib)};
    for (const program::RankClass& ranks : program.classes) {
        const std::int64_t here = peak_memory_bytes(program, ranks);
        if (here <= fit.needed_bytes) continue;
        fit.needed_bytes = here;
        fit.where = ranks.name;
    }
    return fit;
}

std::vector<Remedy> remedies(const Plan& plan, const topologies::Cluster& cluster, std::size_t most,
                             std::optional<double> margin_gib) {
    return RemedySearch(plan, cluster, margin_gib).run(most);
}

}  // namespace orrery::sim
