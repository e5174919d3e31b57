#include "cli/plan_audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <string>

#include "cli/commands.h"
#include "cli/parallel.h"
#include "core/error.h"
#include "reports/table.h"
#include "sim/planner/audit.h"

namespace orrery::cli {
namespace {

std::string audit_text(const sim::Audit& audit) {
    using reports::Align;
    using reports::format_integer;
    reports::Table table({{"excluded by", Align::left},
                          {"candidates"},
                          {"sampled"},
                          {"do not fit"},
                          {"simulated"},
                          {"shortest step"},
                          {"faster than rank 1"},
                          {"faster than its bound"}});
    for (const sim::AuditStratum& one : audit.strata) {
        table.add_row({one.excluded_by, format_integer(one.candidates), format_integer(one.sampled),
                       format_integer(one.too_large), format_integer(one.simulated),
                       one.simulated == 0 ? "-" : fmt::format("{:.3f} of rank 1", one.least_ratio),
                       format_integer(std::ssize(one.faster)), format_integer(std::ssize(one.below_bound))});
    }
    std::string text = table.to_text();
    for (const sim::AuditStratum& one : audit.strata) {
        for (const std::string& name : one.faster) text += "faster than rank 1: " + name + "\n";
        for (const std::string& name : one.below_bound) text += "faster than its bound: " + name + "\n";
    }
    return text;
}

}  // namespace

int audit_plans(const std::vector<sim::PlanRequest>& requests, const topologies::Cluster& cluster, std::size_t top,
                std::size_t samples, std::uint64_t seed) {
    std::exception_ptr problem;
    bool found = false, holds = true;
    for (const sim::PlanRequest& request : requests) {
        try {
            const sim::Audit audit =
                sim::audit_search(request, cluster, top, samples, seed,
                                  [](std::size_t count, const auto& work) { in_parallel("simulating", count, work); });
            const program::PlanResult& best = audit.search.results.front();
            print(fmt::format("{}: rank 1 is {}, {}\n", request.implementation.name, best.plan.name,
                              reports::format_seconds(best.step_time_s)));
            print(audit_text(audit));
            found = true;
            holds &= std::all_of(audit.strata.begin(), audit.strata.end(), [](const sim::AuditStratum& one) {
                return one.faster.empty() && one.below_bound.empty();
            });
        } catch (const InfeasibleError& error) {
            if (!problem) problem = std::current_exception();
            print("without " + request.implementation.name + ": " + error.what() + "\n");
        } catch (const InputError& error) {
            if (!problem) problem = std::current_exception();
            print("without " + request.implementation.name + ": " + error.what() + "\n");
        }
    }
    if (!found) std::rethrow_exception(problem);
    return holds ? kExitDone : kExitJobFailed;
}

}  // namespace orrery::cli
