#include "reports/plan_answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>
#include <vector>

#include "core/units.h"
#include "reports/summary.h"
#include "reports/table.h"

namespace orrery::reports {
namespace {

using program::GuideFork;
using program::GuideOption;
using program::MemoryNeed;
using program::PlanAdvice;
using program::PlanResult;
using program::WhatIf;

constexpr std::size_t kMostChanges = 3;
constexpr std::size_t kMostKinds = 3;  // of computation, in one line
constexpr double kLeastShare = 5e-4;   // of the step; smaller parts would read 0.0%

std::string gib(std::int64_t bytes) {
    return format_fixed(to_gib(Bytes(bytes)), 1);
}

/// "6.5 of 78.6 GiB on stage 0: states 2.2, activations 1.1, other 3.2".
std::string memory_text(const MemoryNeed& memory) {
    return fmt::format("{} of {} GiB on {}: states {}, activations {}, other {}", gib(memory.needed_bytes),
                       gib(memory.allowed_bytes), memory.where, gib(memory.states_bytes), gib(memory.activation_bytes),
                       gib(memory.other_bytes()));
}

std::string fit_text(const MemoryNeed& memory) {
    if (memory.fits()) return "";
    return fmt::format("over by {} GiB on {}", gib(memory.over_bytes()), memory.where);
}

std::string fix_text(const program::Remedy& fix) {
    return fmt::format("{} ({} GiB, step {})", fmt::join(fix.changes, "; "), format_fixed(fix.peak_memory_gib, 1),
                       format_seconds(fix.step_time_s));
}

std::string best_text(const PlanResult& best) {
    return fmt::format("{}, {}: step {}, {} tokens/s/device", best.plan.implementation.name, strategy_of(best.plan),
                       format_seconds(best.step_time_s),
                       format_integer(static_cast<std::int64_t>(best.tokens_per_s_per_device)));
}

std::string limits_text(const PlanAdvice& advice, const StepBreakdown& time, std::int64_t simulated) {
    const PartTimes& parts = time.mean.parts;
    const auto step = static_cast<double>(time.mean.step_ps());
    const auto share = [&](std::int64_t part) { return format_percent(static_cast<double>(part) / step); };
    std::int64_t computation = 0;
    std::vector<std::pair<std::int64_t, TimePart>> kinds;
    Table table({{"part", Align::left}, {"of step"}, {"of which", Align::left}});
    for (const TimePart part : kTimeParts) {
        if (!is_compute(part) || part == TimePart::optimizer || parts[part] == 0) continue;
        computation += parts[part];
        kinds.emplace_back(parts[part], part);
    }
    std::stable_sort(kinds.begin(), kinds.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    std::string largest;
    for (std::size_t i = 0; i < std::min(kinds.size(), kMostKinds); ++i) {
        largest += fmt::format("{}{} {}", i > 0 ? ", " : "", label_of(kinds[i].second), share(kinds[i].first));
    }
    table.add_row({"computation", share(computation), largest});
    for (const TimePart part : kTimeParts) {
        if (is_compute(part) && part != TimePart::optimizer) continue;
        if (static_cast<double>(parts[part]) < kLeastShare * step) continue;
        table.add_row(
            {(is_communication(part) ? "exposed " : "") + label_of(part), share(parts[part]),
             time.mean.waiting[part] > 0 ? "waiting for late members " + share(time.mean.waiting[part]) : ""});
    }
    std::string text = fmt::format("\nWhat limits rank 1 ({})\n{}  memory: {}\n", best_text(advice.best),
                                   table.to_text(2), memory_text(advice.memory));
    if (simulated < advice.best.plan.micro_batches()) {
        text += fmt::format("  shares of a step of {} of its {} micro-batches\n", format_integer(simulated),
                            format_integer(advice.best.plan.micro_batches()));
    }
    return text;
}

/// At most `most` rows; "" without changes.
std::string changes_text(const std::vector<const WhatIf*>& changes, const PlanAdvice& advice, std::size_t most) {
    Table table({{"change", Align::left},
                 {"step"},
                 {"tokens/s/device"},
                 {"against rank 1"},
                 {"peak GiB"},
                 {"memory", Align::left}});
    for (std::size_t i = 0; i < std::min(changes.size(), most); ++i) {
        const WhatIf& change = *changes[i];
        table.add_row({change.change, format_seconds(change.step_time_s),
                       format_integer(static_cast<std::int64_t>(change.tokens_per_s_per_device)),
                       format_signed_percent(change.tokens_per_s_per_device / advice.best.tokens_per_s_per_device - 1),
                       gib(change.memory.needed_bytes), change.memory.fits() ? "fits" : fit_text(change.memory)});
    }
    return table.row_count() == 0 ? "" : table.to_text(2);
}

std::vector<const WhatIf*> chosen(const std::vector<WhatIf>& changes, bool fits, double least_tokens_per_s) {
    std::vector<const WhatIf*> found;
    for (const WhatIf& change : changes) {
        if (change.memory.fits() == fits && change.tokens_per_s_per_device > least_tokens_per_s) {
            found.push_back(&change);
        }
    }
    return found;
}

std::string plan_changes_text(const PlanAdvice& advice) {
    const double best = advice.best.tokens_per_s_per_device;
    const auto fitting = chosen(advice.plan_changes, true, 0), too_large = chosen(advice.plan_changes, false, best);
    const auto faster = std::count_if(fitting.begin(), fitting.end(),
                                      [&](const WhatIf* change) { return change->tokens_per_s_per_device > best; });
    std::string text =
        fmt::format("\nSingle changes of the plan: {} of the {} simulated fit, {}; those that cost least\n",
                    fitting.size(), advice.plan_changes.size(),
                    faster == 0 ? "none of them is faster"
                                : fmt::format("{} faster", faster == 1 ? "1 is" : fmt::format("{} are", faster)));
    if (fitting.empty()) text = "\nSingle changes of the plan: none that fits\n";
    text += changes_text(fitting, advice, kMostChanges);
    if (too_large.empty()) return text + "  memory is not the limit: no single change that does not fit is faster\n";
    return text +
           fmt::format("Memory is a limit: {} that would be faster {}\n", too_large.size(),
                       too_large.size() == 1 ? "does not fit" : "do not fit") +
           changes_text(too_large, advice, kMostChanges);
}

std::string input_changes_text(const PlanAdvice& advice) {
    const double best = advice.best.tokens_per_s_per_device;
    const auto helping = chosen(advice.input_changes, true, best),
               too_large = chosen(advice.input_changes, false, best);
    // Of each thing that could change, what helps most.
    std::vector<const WhatIf*> best_of_each;
    std::set<std::string> known;
    for (const WhatIf* change : helping) {
        if (known.insert(change->of).second) best_of_each.push_back(change);
    }
    std::string text =
        fmt::format("\nChanges of the inputs, with this plan: {} of the {} simulated help; the best of each kind\n",
                    helping.size(), advice.input_changes.size());
    text += changes_text(best_of_each, advice, kMostChanges);
    if (!too_large.empty()) {
        text += fmt::format("  {} more would help but {} not fit with this plan\n", too_large.size(),
                            too_large.size() == 1 ? "does" : "do");
    }
    return text;
}

std::string meshes_text(const PlanAdvice& advice) {
    if (advice.meshes.empty()) return "";
    std::string text =
        fmt::format("\nMeshes on which nothing fits, {}: what the leanest plan lacks, and its smallest fix\n",
                    advice.meshes_left_out == 0 ? fmt::format("all {}", advice.meshes.size())
                                                : fmt::format("the {} nearest to fitting of {}", advice.meshes.size(),
                                                              advice.meshes.size() + advice.meshes_left_out));
    for (const program::MeshMisfit& mesh : advice.meshes) {
        text += fmt::format("  {}, {}: {} ({})\n    {}\n", mesh.plan.implementation.name, strategy_of(mesh.plan),
                            mesh.memory.fits() ? "fits" : fit_text(mesh.memory), memory_text(mesh.memory),
                            mesh.fix ? "with " + fix_text(*mesh.fix) : "no three changes are enough");
    }
    return text;
}

std::string fork_text(const GuideFork& fork, std::size_t number) {
    std::string text = fmt::format("\n{}. {}\n   Rule: {}.\n", number, fork.question, fork.rule);
    Table table({{"plans", Align::left},
                 {"stack", Align::left},
                 {"best of them", Align::left},
                 {"peak GiB"},
                 {"states"},
                 {"activations"},
                 {"step"},
                 {"exposed comm."},
                 {"bubble"},
                 {"fits", Align::left}});
    for (const GuideOption& option : fork.options) {
        if (!option.result) {
            table.add_row({option.name, "-", "-", "-", "-", "-", "-", "-", "-", "does not divide"});
            continue;
        }
        const PlanResult& result = *option.result;
        const bool fits = result.feasible;
        table.add_row({option.name, result.plan.implementation.name, strategy_of(result.plan),
                       gib(option.memory.needed_bytes), gib(option.memory.states_bytes),
                       gib(option.memory.activation_bytes), fits ? format_seconds(result.step_time_s) : "-",
                       fits ? format_percent(result.exposed_communication_s / result.step_time_s) : "-",
                       fits ? format_percent(result.bubble_fraction) : "-", fits ? "yes" : fit_text(option.memory)});
    }
    return text + table.to_text(3) + fmt::format("   Here: {}.\n", fork.answer);
}

/// In what two plans differ: "tp 4 instead of 8, interleaved-1f1b instead of 1f1b".
std::string differences_text(const program::Plan& best, const program::Plan& rule) {
    const program::Parallelism &p = best.parallelism, &q = rule.parallelism;
    std::vector<std::string> found;
    const auto differ = [&](const std::string& name, const std::string& a, const std::string& b) {
        if (a != b) found.push_back(fmt::format("{}{} instead of {}", name, a, b));
    };
    differ("", best.implementation.name, rule.implementation.name);
    const std::array<std::pair<const char*, std::int64_t program::Parallelism::*>, 5> degrees{
        {{"dp ", &program::Parallelism::dp},
         {"tp ", &program::Parallelism::tp},
         {"pp ", &program::Parallelism::pp},
         {"cp ", &program::Parallelism::cp},
         {"ep ", &program::Parallelism::ep}}};
    for (const auto& [name, degree] : degrees) differ(name, std::to_string(p.*degree), std::to_string(q.*degree));
    differ("", name_of(p.data_parallel), name_of(q.data_parallel));
    if (p.pp > 1 && q.pp > 1) differ("", name_of(p.schedule), name_of(q.schedule));
    differ("recomputation ", name_of(best.training.memory.recompute), name_of(rule.training.memory.recompute));
    differ("micro-batch ", std::to_string(best.training.micro_batch_size),
           std::to_string(rule.training.micro_batch_size));
    return found.empty() ? "the same degrees, sharding and recomputation" : fmt::format("{}", fmt::join(found, ", "));
}

}  // namespace

std::string plan_advice_text(const PlanAdvice& advice, const StepBreakdown& time,
                             std::int64_t simulated_micro_batches) {
    return limits_text(advice, time, simulated_micro_batches) + plan_changes_text(advice) + input_changes_text(advice) +
           meshes_text(advice);
}

std::string plan_guide_text(const program::PlanGuide& guide) {
    std::string text = "\nThe decision guide with this job's figures: each row is the best plan of its kind\n";
    std::size_t number = 0;
    for (const GuideFork& fork : guide.forks) text += fork_text(fork, ++number);
    text += "\nRecommended\n";
    if (guide.by_rule) {
        text += fmt::format("  by the rules of thumb, the first that fits: {}\n", best_text(*guide.by_rule));
    } else {
        text += "  the rules of thumb lead to no plan that fits\n";
    }
    if (!guide.best) return text + "  nothing fits: no plan is recommended\n";
    text += fmt::format("  rank 1 of the search: {}\n", best_text(*guide.best));
    if (!guide.by_rule) return text;
    return text + fmt::format("  against the rules: {}; {} faster\n",
                              differences_text(guide.best->plan, guide.by_rule->plan),
                              format_percent(guide.by_rule->step_time_s / guide.best->step_time_s - 1));
}

std::string nearest_plan_text(const program::NearestPlan& nearest) {
    const MemoryNeed& memory = nearest.memory;
    std::string text =
        fmt::format("the nearest, {} ({}, {}), is {}: it needs {}", nearest.plan.name, nearest.plan.implementation.name,
                    strategy_of(nearest.plan), fit_text(memory), memory_text(memory));
    text += nearest.fix ? "; it fits with " + fix_text(*nearest.fix) : "; no three changes make it fit";
    if (nearest.cluster) {
        const PlanResult& best = nearest.cluster->best;
        return text +
               fmt::format("; the smallest cluster found on which a plan fits has {} devices (on {} none does): {}",
                           format_integer(nearest.cluster->devices),
                           format_integer(nearest.cluster->largest_without_fit), best_text(best));
    }
    if (nearest.most_devices_tried == 0) return text;
    return text + fmt::format("; nothing fits on larger clusters either, up to {} devices",
                              format_integer(nearest.most_devices_tried));
}

}  // namespace orrery::reports
