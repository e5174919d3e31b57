#include "reports/search_text.h"

#include <fmt/format.h>

#include <cmath>

#include "reports/scaling_report.h"
#include "reports/table.h"

namespace orrery::reports {
namespace {

using program::PlanResult;

std::string ranks_words(const program::SearchSummary& search) {
    return search.proven_ranks == 1 ? "rank 1 is" : fmt::format("ranks 1 to {} are", search.proven_ranks);
}

/// Which ranks of a table by step time are proven, or how far from it.
std::string time_proof(const program::SearchSummary& search) {
    if (search.proven_gap > 0) {
        return fmt::format("not proven: some plan that was not simulated may be up to {} faster than rank 1\n",
                           format_percent(search.proven_gap));
    }
    return fmt::format("{} proven: no other plan considered is faster by more than {}\n", ranks_words(search),
                       format_percent(search.tolerance));
}

std::string memory_proof(std::span<const PlanResult> results, const program::SearchSummary& search) {
    const double least_gib = (1 - search.proven_gap) * results.front().peak_memory_gib;
    if (std::isinf(search.step_limit_s)) {
        return fmt::format(
            "rank 1 is proven: no plan considered needs less than {} GiB, and none within that is faster by more than "
            "{}\n",
            format_fixed(least_gib, 2), format_percent(search.tolerance));
    }
    return fmt::format("rank 1 is proven: no plan considered with a step of at most {} needs less than {} GiB\n",
                       format_seconds(search.step_limit_s), format_fixed(least_gib, 2));
}

std::string cost_proof(const program::SearchSummary& search) {
    const bool is_energy = search.objective == program::Objective::energy;
    const char* const better = is_energy ? "need less energy" : "be cheaper";
    if (search.proven_gap > 0) {
        return fmt::format("not proven: some plan that was not simulated may {} than rank 1, by up to {}\n", better,
                           format_percent(search.proven_gap));
    }
    const std::string limit = std::isinf(search.step_limit_s)
                                  ? ""
                                  : fmt::format(" with a step of at most {}", format_seconds(search.step_limit_s));
    return fmt::format("{} proven: no other plan considered{} {} by more than {}\n", ranks_words(search), limit,
                       is_energy ? "needs less energy" : "is cheaper", format_percent(search.tolerance));
}

std::string front_proof(const program::SearchSummary& search) {
    if (search.proven_gap > 0) {
        return fmt::format("not proven: within some limit a plan that was not simulated may be up to {} faster\n",
                           format_percent(search.proven_gap));
    }
    return fmt::format(
        "each row is proven: no plan considered is faster by more than {} with a limit on the memory in the row's "
        "range; between two ranges lie limits that were not examined\n",
        format_percent(search.tolerance));
}

}  // namespace

std::string search_counts_text(const program::SearchCounts& counts) {
    const auto number = [](std::int64_t count) { return format_integer(count); };
    std::string text = fmt::format("{} plans considered", number(counts.considered));
    if (counts.searches > 1) text += fmt::format(", in {} searches", number(counts.searches));
    text += fmt::format("; {} bounded one by one, {} of which do not fit", number(counts.bounded),
                        number(counts.too_large));
    return text + fmt::format("; {} sketched by short lowerings, {} simulated", number(counts.sketched),
                              number(counts.simulated));
}

std::string proof_text(std::span<const PlanResult> results, const program::SearchSummary& search) {
    std::string text;
    switch (search.objective) {
        case program::Objective::time:
            text = time_proof(search);
            break;
        case program::Objective::memory:
            text = memory_proof(results, search);
            break;
        case program::Objective::pareto:
            text = front_proof(search);
            break;
        case program::Objective::cost:
        case program::Objective::energy:
            text = cost_proof(search) + cost_figures_text(search.figures);
            break;
    }
    for (const program::SearchSpace& space : search.spaces) {
        std::string searched;
        for (const auto& [name, values] : space.searched) {
            searched += fmt::format("{}{} {}", searched.empty() ? "" : "; ", name, values);
        }
        text += fmt::format("searched ({}): {}\n", space.implementation, searched);
        text += fmt::format("outside ({}): {}\n", space.implementation, fmt::join(space.outside, "; "));
    }
    return text;
}

}  // namespace orrery::reports
