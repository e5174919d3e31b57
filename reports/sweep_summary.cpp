#include "reports/sweep_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "reports/error_summary.h"

namespace orrery::reports {
namespace {

/// `values` must not be empty.
double quantile_of(std::vector<double> values, double share) {
    std::sort(values.begin(), values.end());
    return quantile(values, share);
}

/// Equal values get the mean of their ranks.
std::vector<double> ranks_of(const std::vector<double>& values) {
    std::vector<std::size_t> order(values.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
    std::vector<double> ranks(values.size());
    for (std::size_t first = 0; first < order.size();) {
        std::size_t last = first;
        while (last + 1 < order.size() && values[order[last + 1]] == values[order[first]]) ++last;
        for (std::size_t i = first; i <= last; ++i) ranks[order[i]] = static_cast<double>(first + last) / 2;
        first = last + 1;
    }
    return ranks;
}

/// 0 if either does not vary.
double correlation(const std::vector<double>& a, const std::vector<double>& b) {
    const auto n = static_cast<double>(a.size());
    const double mean_a = std::accumulate(a.begin(), a.end(), 0.0) / n;
    const double mean_b = std::accumulate(b.begin(), b.end(), 0.0) / n;
    double ab = 0, aa = 0, bb = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        ab += (a[i] - mean_a) * (b[i] - mean_b);
        aa += (a[i] - mean_a) * (a[i] - mean_a);
        bb += (b[i] - mean_b) * (b[i] - mean_b);
    }
    return aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : 0;
}

/// The shortest measured time among the `count` runs with the shortest predicted times.
double fastest_of_first(const std::vector<double>& predicted, const std::vector<double>& measured, std::size_t count) {
    std::vector<std::size_t> order(predicted.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return predicted[a] < predicted[b]; });
    double fastest = measured[order.front()];
    for (std::size_t i = 1; i < std::min(count, order.size()); ++i) fastest = std::min(fastest, measured[order[i]]);
    return fastest;
}

}  // namespace

SweepSummary sweep_summary(const std::vector<SweepRun>& runs) {
    struct Sweep {
        std::vector<double> predicted, measured;
    };
    std::map<std::string, Sweep> sweeps;
    for (const SweepRun& run : runs) {
        sweeps[run.sweep].predicted.push_back(run.predicted_s);
        sweeps[run.sweep].measured.push_back(run.measured_s);
    }
    std::vector<double> regrets, measured_regrets, spearmans, counts;
    for (const auto& [name, sweep] : sweeps) {
        if (sweep.predicted.size() < kFewestSweepRuns) continue;
        const double best = *std::min_element(sweep.measured.begin(), sweep.measured.end());
        regrets.push_back(fastest_of_first(sweep.predicted, sweep.measured, 1) / best - 1);
        measured_regrets.push_back(fastest_of_first(sweep.predicted, sweep.measured, kMeasuredFirst) / best - 1);
        counts.push_back(static_cast<double>(sweep.predicted.size()));
        spearmans.push_back(correlation(ranks_of(sweep.predicted), ranks_of(sweep.measured)));
    }
    if (regrets.empty()) return {};
    return {.sweeps = regrets.size(),
            .regret_median = quantile_of(regrets, 0.5),
            .regret_p90 = quantile_of(regrets, 0.9),
            .regret_most = quantile_of(regrets, 1),
            .measured_regret_median = quantile_of(measured_regrets, 0.5),
            .measured_regret_p90 = quantile_of(measured_regrets, 0.9),
            .measured_regret_most = quantile_of(measured_regrets, 1),
            .runs_median = quantile_of(counts, 0.5),
            .spearman_median = quantile_of(spearmans, 0.5)};
}

std::string sweep_text(const SweepSummary& summary) {
    return fmt::format(
        "{} sweeps of {} runs and more: regret of the first choice median {:.1f}%, p90 {:.1f}%; "
        "Spearman median {:.2f}\n",
        summary.sweeps, kFewestSweepRuns, 100 * summary.regret_median, 100 * summary.regret_p90,
        summary.spearman_median);
}

std::string measured_regret_text(const SweepSummary& summary) {
    return fmt::format(
        "Measuring the predicted top {} of each sweep ({:.0f} runs, median): regret median {:.1f}%, p90 {:.1f}%, at "
        "most "
        "{:.1f}% instead of {:.1f}%\n",
        kMeasuredFirst, summary.runs_median, 100 * summary.measured_regret_median, 100 * summary.measured_regret_p90,
        100 * summary.measured_regret_most, 100 * summary.regret_most);
}

}  // namespace orrery::reports
