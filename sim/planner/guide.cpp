#include "sim/planner/guide.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "core/error.h"
#include "core/units.h"
#include "sim/planner/candidates.h"

namespace orrery::sim {
namespace {

using program::DataParallel;
using program::GuideFork;
using program::GuideOption;
using program::PlanGuide;
using program::PlanResult;
using program::Schedule;

/// Pipeline depths and degrees shown at a fork beyond those that do not fit.
constexpr std::size_t kMostFitting = 2;
constexpr std::size_t kMostShown = 5;

std::string gib(std::int64_t bytes) {
    const auto tenths = static_cast<std::int64_t>(10 * to_gib(Bytes(bytes)) + 0.5);
    return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " GiB";
}

std::string percent(double fraction) {
    const auto tenths = static_cast<std::int64_t>(1000 * fraction + 0.5);
    return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + "%";
}

std::string count_of(std::int64_t devices) {
    return std::to_string(devices) + (devices == 1 ? " device" : " devices");
}

double exposed_share(const PlanResult& result) {
    return result.exposed_communication_s / result.step_time_s;
}

const GuideOption* fastest_of(const std::vector<GuideOption>& options) {
    const GuideOption* fastest = nullptr;
    for (const GuideOption& option : options) {
        if (!option.fits()) continue;
        if (fastest == nullptr || option.result->step_time_s < fastest->result->step_time_s) fastest = &option;
    }
    return fastest;
}

class Guide {
  public:
    Guide(const RequestsFor& requests, std::int64_t devices) : requests_(requests), devices_(devices) {}

    PlanGuide run(const PlanResult* best) {
        if (best != nullptr) guide_.best = *best;
        const std::vector<PlanRequest> here = requests_(devices_);
        model_ = here.front().model;
        cluster_ = here.front().cluster;
        training_ = here.front().training;
        one_device();
        if (devices_ > 1) {
            sharding();
            tensor_parallel();
            pipeline();
            context();
            experts();
        }
        return std::move(guide_);
    }

  private:
    using Restriction = std::function<void(PlanRequest&)>;

    /// The best plan of the restricted requests.
    GuideOption option(std::string name, std::int64_t devices, const Restriction& restricts) {
        GuideOption found{.name = std::move(name)};
        std::vector<PlanRequest> requests;
        try {
            requests = requests_(devices);
            for (PlanRequest& request : requests) {
                restricts(request);
                // Other schedules refine a pipeline; they do not decide between the forks.
                const std::vector<Schedule>& schedules = request.schedules;
                const bool has_plain =
                    std::find(schedules.begin(), schedules.end(), Schedule::one_f_one_b) != schedules.end();
                if (has_plain) request.schedules = {Schedule::one_f_one_b};
            }
            found.result = search_each(requests, 1, 1).results.front();
            found.memory = memory_need(found.result->plan, allowed_bytes(requests.front(), found.result->plan));
        } catch (const InfeasibleError&) {
            LeanPlan lean = leanest_plan(requests);
            found.memory = std::move(lean.memory);
            found.result = PlanResult{.plan = std::move(lean.plan),
                                      .peak_memory_gib = to_gib(Bytes(found.memory.needed_bytes)),
                                      .reason = gib(found.memory.over_bytes()) + " too much on " + found.memory.where};
        } catch (const InputError& error) {
            found.refused = error.what();
        }
        return found;
    }

    static Restriction mesh(std::int64_t tp, std::int64_t pp, std::int64_t cp, std::int64_t ep) {
        return [=](PlanRequest& request) {
            request.tp = tp;
            request.pp = pp;
            request.cp = cp;
            request.ep = ep;
        };
    }

    /// The rules lead to the first option that fits. Later forks begin from the degrees of the fastest one so far.
    void take(const GuideOption& found) {
        if (!found.fits() || found.result->plan.parallelism.world_size() != devices_) return;
        if (!guide_.by_rule) guide_.by_rule = found.result;
        if (found.result->step_time_s >= fastest_s_) return;
        fastest_s_ = found.result->step_time_s;
        tp_ = found.result->plan.parallelism.tp;
        pp_ = found.result->plan.parallelism.pp;
        cp_ = found.result->plan.parallelism.cp;
    }

    void one_device() {
        GuideFork fork{.question = "Does the model train on one device?",
                       .rule = "if it does, replicas (DDP) are the simplest plan, and often the fastest"};
        fork.options.push_back(option("1 device", 1, mesh(1, 1, 1, 1)));
        const GuideOption& alone = fork.options.front();
        const auto& need = alone.memory;
        fork.answer = !alone.refused.empty() ? "no plan on one device"
                      : alone.fits()
                          ? "yes: " + gib(need.needed_bytes) + " of " + gib(need.allowed_bytes)
                          : "no: parameters, gradients and optimizer states take " + gib(need.states_bytes) + " of " +
                                gib(need.allowed_bytes) + ", activations " + gib(need.activation_bytes);
        if (devices_ == 1) {
            take(alone);
        } else {
            fork.options.push_back(option("ddp over " + count_of(devices_), devices_, [](PlanRequest& request) {
                mesh(1, 1, 1, 1)(request);
                request.data_parallel = {DataParallel::ddp};
            }));
            const GuideOption& replicas = fork.options.back();
            if (replicas.fits()) {
                fork.answer += "; of the step with replicas " + percent(exposed_share(*replicas.result)) +
                               " is exposed communication";
            } else if (!replicas.refused.empty()) {
                fork.answer += "; " + replicas_problem();
            }
            take(replicas);
        }
        guide_.forks.push_back(std::move(fork));
    }

    [[nodiscard]] std::string replicas_problem() const {
        if (training_.global_batch_size % devices_ == 0) return "replicas alone are not possible";
        return "replicas alone cannot use the devices: the global batch " +
               std::to_string(training_.global_batch_size) + " is no multiple of " + std::to_string(devices_);
    }

    void sharding() {
        GuideFork fork{.question = "Do sharded states fit, without other parallelism?",
                       .rule = "zero1 shards optimizer states, zero2 also gradients, zero3 (FSDP) also parameters"};
        for (const DataParallel kind : {DataParallel::zero1, DataParallel::zero2, DataParallel::zero3}) {
            fork.options.push_back(
                option(name_of(kind) + " over " + count_of(devices_), devices_, [kind](PlanRequest& request) {
                    mesh(1, 1, 1, 1)(request);
                    request.data_parallel = {kind};
                }));
            take(fork.options.back());
        }
        const GuideOption* fastest = fastest_of(fork.options);
        if (fastest != nullptr) {
            fork.answer = "yes: " + fastest->name + " is the fastest of these; " +
                          percent(exposed_share(*fastest->result)) + " of its step is exposed communication";
        } else if (std::all_of(fork.options.begin(), fork.options.end(),
                               [](const GuideOption& one) { return !one.refused.empty(); })) {
            fork.answer = "no: " + replicas_problem();
        } else {
            fork.answer = "no: even the leanest exceeds the memory";
        }
        guide_.forks.push_back(std::move(fork));
    }

    void tensor_parallel() {
        GuideFork fork{.question = "Does tensor parallelism inside the node help?",
                       .rule =
                           "tp divides states and activations, at the price of collectives in every layer; beyond "
                           "a node these are too slow"};
        const std::int64_t most = std::min(cluster_.devices_per_node, devices_);
        for (const std::int64_t tp : divisors(most)) {
            if (tp == 1 || devices_ % tp != 0) continue;
            fork.options.push_back(option("tp " + std::to_string(tp), devices_, mesh(tp, 1, 1, 1)));
            if (!guide_.by_rule && fork.options.back().refused.empty()) tp_ = tp;
            take(fork.options.back());
        }
        if (fork.options.empty()) return;
        const GuideOption* fastest = fastest_of(fork.options);
        fork.answer = fastest == nullptr
                          ? "not enough: no plan fits with tp alone"
                          : fastest->name + " is the fastest of these; " + percent(exposed_share(*fastest->result)) +
                                " of its step is exposed communication";
        guide_.forks.push_back(std::move(fork));
    }

    void pipeline() {
        GuideFork fork{.question = "Is a pipeline needed?",
                       .rule =
                           "pp divides the layers over nodes with little communication, and costs a bubble of "
                           "(pp - 1) / micro-batches"};
        const bool is_needed = !guide_.by_rule;
        const std::int64_t tp = tp_;
        std::size_t fitting = 0;
        for (const std::int64_t pp : divisors(devices_ / tp)) {
            if (pp == 1 || pp > model_.layers || fitting == kMostFitting) continue;
            GuideOption found =
                option("tp " + std::to_string(tp) + " pp " + std::to_string(pp), devices_, mesh(tp, pp, 1, 1));
            if (!found.refused.empty()) continue;
            fitting += found.fits() ? 1U : 0U;
            take(found);
            fork.options.push_back(std::move(found));
        }
        if (fork.options.empty()) return;
        const std::size_t shown = std::min(fork.options.size(), kMostShown);  // the last ones, which fit or nearly do
        fork.options.erase(fork.options.begin(), fork.options.end() - static_cast<std::ptrdiff_t>(shown));
        const GuideOption* fastest = fastest_of(fork.options);
        fork.answer = fastest == nullptr ? "no plan fits with tp " + std::to_string(tp) + " and any depth"
                                         : fastest->name + ": " + percent(fastest->result->bubble_fraction) +
                                               " of the step is the bubble (1f1b; interleaving makes it smaller)";
        if (fastest != nullptr)
            fork.answer = (is_needed ? "yes, nothing fits without; " : "not to fit; ") + fork.answer;
        guide_.forks.push_back(std::move(fork));
    }

    void context() {
        GuideFork fork{.question = "Is the sequence long enough for context parallelism?",
                       .rule =
                           "cp divides the activations of one sequence; it pays when a single sequence does not "
                           "fit, or when there are fewer sequences than replicas"};
        const std::int64_t tp = tp_, pp = pp_, rest = devices_ / tp / pp;
        for (const std::int64_t cp : {std::int64_t{1}, std::int64_t{2}, std::int64_t{4}, std::int64_t{8}}) {
            if (rest % cp != 0 || (cp > 1 && training_.sequence_length / cp < kLeastContextPositions)) continue;
            GuideOption found =
                option("tp " + std::to_string(tp) + " pp " + std::to_string(pp) + " cp " + std::to_string(cp), devices_,
                       mesh(tp, pp, cp, 1));
            if (cp > 1 && !found.refused.empty()) continue;
            take(found);
            fork.options.push_back(std::move(found));
        }
        const GuideOption* fastest = fastest_of(fork.options);
        if (fastest == nullptr) {
            fork.answer = "no plan fits with these degrees";
        } else if (fastest->result->plan.parallelism.cp > 1) {
            fork.answer = "yes: " + fastest->name + " is the fastest of these";
        } else {
            fork.answer = "no: cp 1 is the fastest of these; the activations of its fullest rank take " +
                          gib(fastest->memory.activation_bytes);
        }
        guide_.forks.push_back(std::move(fork));
    }

    void experts() {
        if (!model_.has_experts()) return;
        GuideFork fork{.question = "How are the experts divided?",
                       .rule =
                           "ep gives each rank whole experts, inside a node or across a few; tokens are exchanged "
                           "in every expert layer"};
        // Where nothing fits without ep, ep takes the place of tp, and the pipeline is as short as possible.
        const bool is_needed = !guide_.by_rule;
        const std::int64_t tp = is_needed ? 1 : tp_, cp = is_needed ? 1 : cp_;
        const std::vector<std::int64_t> depths = is_needed ? divisors(devices_) : std::vector<std::int64_t>{pp_};
        std::size_t fitting = 0;
        for (const std::int64_t ep : divisors(model_.moe.expert_count)) {
            if (fitting == kMostShown) break;
            std::optional<GuideOption> found = experts_over(ep, tp, cp, depths);
            if (!found) continue;
            fitting += found->fits() ? 1U : 0U;
            take(*found);
            fork.options.push_back(std::move(*found));
        }
        const GuideOption* fastest = fastest_of(fork.options);
        fork.answer = fastest == nullptr
                          ? "no plan fits with these degrees"
                          : fastest->name + " is the fastest of these; " + percent(exposed_share(*fastest->result)) +
                                " of its step is exposed communication";
        // Experts are divided even if replicas of all of them fit, if that is faster.
        if (fastest != nullptr && (!guide_.by_rule || fastest->result->step_time_s < guide_.by_rule->step_time_s)) {
            guide_.by_rule = fastest->result;
        }
        guide_.forks.push_back(std::move(fork));
    }

    /// With the first depth with which a plan fits, or the one that is nearest. Nothing: no depth divides.
    std::optional<GuideOption> experts_over(std::int64_t ep, std::int64_t tp, std::int64_t cp,
                                            const std::vector<std::int64_t>& depths) {
        std::optional<GuideOption> nearest;
        for (const std::int64_t pp : depths) {
            if (pp > model_.layers || devices_ / pp % ep != 0) continue;
            GuideOption found = option("ep " + std::to_string(ep) + " tp " + std::to_string(tp) + " pp " +
                                           std::to_string(pp) + (cp > 1 ? " cp " + std::to_string(cp) : ""),
                                       devices_, mesh(tp, pp, cp, ep));
            if (found.fits()) return found;
            if (!found.refused.empty()) continue;
            if (!nearest || found.memory.needed_bytes < nearest->memory.needed_bytes) nearest = std::move(found);
        }
        return nearest;
    }

    const RequestsFor& requests_;
    const std::int64_t devices_;
    models::ModelSpec model_;
    topologies::ClusterSpec cluster_;
    program::Training training_;
    std::int64_t tp_ = 1, pp_ = 1, cp_ = 1;  // to which the forks so far have led
    double fastest_s_ = std::numeric_limits<double>::infinity();
    PlanGuide guide_;
};

}  // namespace

PlanGuide decision_guide(const RequestsFor& requests, std::int64_t devices, const PlanResult* best) {
    return Guide(requests, devices).run(best);
}

}  // namespace orrery::sim
