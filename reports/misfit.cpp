#include "reports/misfit.h"

#include <fmt/format.h>

#include "core/units.h"
#include "reports/table.h"
#include "sim/program/rate_spread.h"

namespace orrery::reports {
namespace {

std::string probability_text(const program::Plan& plan, const program::MemoryFit& fit) {
    if (plan.cluster.device.host_runs_compute) return "";  // allocations on a CPU are known exactly
    const program::MemoryOutlook outlook = program::memory_outlook(to_gib(Bytes(fit.needed_bytes)), plan);
    return "; P(fits) " + format_percent(outlook.fit_probability);
}

}  // namespace

std::string misfit_text(const program::Plan& plan, const program::MemoryFit& fit,
                        std::span<const program::Remedy> remedies) {
    std::string text =
        fmt::format("{} does not fit: {} needs {} of a device's memory and may take {}: {} too much{}\n", plan.name,
                    fit.where, format_memory(fit.needed_bytes), format_memory(fit.allowed_bytes),
                    format_memory(fit.needed_bytes - fit.allowed_bytes), probability_text(plan, fit));
    if (remedies.empty()) return text;
    Table table({{"it would with", Align::left}, {"needs"}, {"step time"}});
    for (const program::Remedy& remedy : remedies) {
        table.add_row({fmt::format("{}", fmt::join(remedy.changes, "; ")),
                       format_fixed(remedy.peak_memory_gib, 1) + " GiB", format_seconds(remedy.step_time_s)});
    }
    return text + table.to_text(2);
}

}  // namespace orrery::reports
