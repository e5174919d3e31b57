#include "cli/plan_at_most.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/error.h"
#include "reports/table.h"
#include "sim/planner/at_most.h"

namespace orrery::cli {

void refuse_count(const std::vector<sim::PlanRequest>& requests, std::int64_t devices,
                  const std::exception_ptr& problem) {
    constexpr std::int64_t kNearest = 64;  // numbers that are tried for the message
    std::optional<std::int64_t> below, above;
    for (const sim::PlanRequest& request : requests) {
        if (sim::on_devices(request, devices)) std::rethrow_exception(problem);
        below = std::max(below, sim::usable_at_most(request, devices, kNearest));
        const std::optional<std::int64_t> more = sim::usable_at_least(request, devices, kNearest);
        if (more && (!above || *more < *above)) above = more;
    }
    if (!below && !above) std::rethrow_exception(problem);
    std::vector<std::string> counts;
    for (const auto& count : {below, above}) {
        if (count) counts.push_back(reports::format_integer(*count));
    }
    const std::string hint = fmt::format(
        "; the nearest numbers of devices with a plan: {}; --gpus-at-most {} finds the best plan on at most as many, "
        "and "
        "leaves the others idle",
        fmt::join(counts, " and "), devices);
    try {
        std::rethrow_exception(problem);
    } catch (const InputError& error) {
        throw InputError(error.what() + hint);
    }
}

std::string spares_text(const sim::PlanSearch& search, std::int64_t devices) {
    const std::int64_t spares = search.results.front().spare_devices;
    std::vector<std::string> counts;
    for (const std::int64_t count : search.device_counts) counts.push_back(reports::format_integer(count));
    return fmt::format("rank 1: {} devices = {} used + {} spare; searched: {}\n", reports::format_integer(devices),
                       reports::format_integer(devices - spares), reports::format_integer(spares),
                       fmt::join(counts, ", "));
}

}  // namespace orrery::cli
