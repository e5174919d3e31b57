#include "sim/program/rate_check.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <optional>

namespace orrery::program {
namespace {

using topologies::Provenance;

/// The number of groups in a source such as "orrery calibrate --rows: 76 runs of 70 groups move it, of A paper".
std::optional<std::size_t> groups_in(const std::string& source) {
    constexpr std::string_view kBefore = " runs of ", kAfter = " groups move it, of ";
    const std::size_t before = source.find(kBefore), after = source.find(kAfter), begin = before + kBefore.size();
    if (before == std::string::npos || after == std::string::npos || begin >= after) return {};
    if (after + kAfter.size() == source.size()) return {};
    std::size_t groups = 0;
    const char* const end = source.data() + after;
    const auto [stop, error] = std::from_chars(source.data() + begin, end, groups);
    return stop == end && error == std::errc{} ? std::optional(groups) : std::nullopt;
}

void check_rate(const std::string& name, const Rate& rate, std::vector<std::string>& faults) {
    const auto fault = [&](const std::string& what) { faults.push_back(name + ": " + what); };
    const double widest = std::max(kWidestPrior, row_of_name(name).sd);
    if (rate.prior <= 0 || rate.sd <= 0) {
        fault("has no prior");
    } else if (rate.sd > widest) {
        fault(fmt::format("the prior's sd is {:.2f}; allowed: at most {:.2f}", rate.sd, widest));
    }
    if (rate.information < kLeastInformation) {
        fault(fmt::format("its information is {:.2f}; allowed: at least {:.2f}", rate.information, kLeastInformation));
    }
    const std::optional<std::size_t> groups = groups_in(rate.source);
    if (!groups) {
        fault("its source does not state the runs to which it was fitted");
    } else if (*groups < kFewestGroups) {
        fault(fmt::format("runs of {} groups move it; allowed: at least {}", *groups, kFewestGroups));
    }
}

}  // namespace

std::size_t fitted_rates(const RateCatalogue& catalogue) {
    return static_cast<std::size_t>(std::count_if(
        catalogue.begin(), catalogue.end(), [](const auto& entry) { return entry.second.kind == Provenance::fitted; }));
}

std::vector<std::string> rate_faults(const RateCatalogue& catalogue) {
    std::vector<std::string> faults;
    if (const std::size_t count = fitted_rates(catalogue); count > kMostFittedRates) {
        faults.push_back(fmt::format("{} fitted rates; allowed: at most {}", count, kMostFittedRates));
    }
    for (const auto& [name, rate] : catalogue) {
        if (rate.kind == Provenance::fitted) check_rate(name, rate, faults);
    }
    return faults;
}

}  // namespace orrery::program
