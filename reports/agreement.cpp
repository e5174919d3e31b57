// Summary of many comparisons.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "reports/comparison.h"

namespace orrery::reports {
namespace {

std::optional<double> median_of(const std::vector<double>& values) {
    return values.empty() ? std::nullopt : std::optional(program::percentile(values, 0.5));
}

std::optional<double> largest_of(const std::vector<double>& values) {
    return values.empty() ? std::nullopt : std::optional(*std::max_element(values.begin(), values.end()));
}

/// The rank of each value, from 0; equal values share the mean of their ranks.
std::vector<double> places_of(const std::vector<double>& values) {
    std::vector<double> places;
    places.reserve(values.size());
    for (const double value : values) {
        const auto below = std::count_if(values.begin(), values.end(), [&](double other) { return other < value; });
        const auto equal = std::count(values.begin(), values.end(), value);
        places.push_back(static_cast<double>(below) + static_cast<double>(equal - 1) / 2);
    }
    return places;
}

std::optional<double> rank_correlation(const std::vector<double>& left, const std::vector<double>& right) {
    const std::vector<double> x = places_of(left), y = places_of(right);
    const double mean = (static_cast<double>(x.size()) - 1) / 2;  // of the ranks
    double xx = 0, yy = 0, xy = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
        xx += (x[i] - mean) * (x[i] - mean);
        yy += (y[i] - mean) * (y[i] - mean);
        xy += (x[i] - mean) * (y[i] - mean);
    }
    return xx > 0 && yy > 0 ? std::optional(xy / std::sqrt(xx * yy)) : std::nullopt;
}

bool moved_equal_bytes(const Comparison& comparison) {
    return std::all_of(comparison.rows.begin(), comparison.rows.end(), [](const ComparisonRow& row) {
        return row.quantity != Quantity::bytes_sent || row.predicted == row.measured;
    });
}

std::optional<double> memory_error(const Comparison& comparison) {
    const auto row = std::find_if(comparison.rows.begin(), comparison.rows.end(), [](const ComparisonRow& one) {
        return one.quantity == Quantity::peak_memory_bytes && one.scope == kAllRanks;
    });
    return row == comparison.rows.end() ? std::nullopt : row->error;
}

}  // namespace

Agreement agreement_of(std::span<const Comparison> comparisons) {
    Agreement result;
    std::vector<double> predicted, measured, errors, not_judged, memory;
    for (const Comparison& comparison : comparisons) {
        ++result.plans;
        result.equal_bytes += moved_equal_bytes(comparison) ? 1 : 0;
        const ComparisonRow& step = comparison.step_time();
        if (!step.error.has_value()) continue;
        if (!comparison.judged) {
            not_judged.push_back(std::abs(*step.error));
            continue;
        }
        ++result.judged;
        errors.push_back(std::abs(*step.error));
        predicted.push_back(step.predicted);
        measured.push_back(step.measured);
        if (const std::optional<double> error = memory_error(comparison)) memory.push_back(std::abs(*error));
    }
    result.median_step_time_error = median_of(errors);
    result.worst_step_time_error = largest_of(errors);
    result.rank_correlation = rank_correlation(predicted, measured);
    result.median_memory_error = median_of(memory);
    result.worst_memory_error = largest_of(memory);
    result.median_error_not_judged = median_of(not_judged);
    return result;
}

}  // namespace orrery::reports
