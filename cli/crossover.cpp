#include "cli/crossover.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "reports/plan_words.h"

namespace orrery::cli {
namespace {

/// Values that are tried first, in equal ratios.
constexpr int kFirstValues = 17;
/// Between two values at which the fastest plan differs, as a share.
constexpr double kAccuracy = 0.005;

/// The fastest plan at a value.
struct Fastest {
    std::string plan;
    std::size_t job = 0;
    program::ScalingPoint point;
    bool operator==(const Fastest& other) const { return plan == other.plan && job == other.job; }
};

class Crossing {
  public:
    Crossing(const std::vector<WhatIfJob>& jobs, const InputRange& range) : jobs_(jobs), path_(range.path) {
        std::vector<double> values;
        const double ratio = std::pow(range.high / range.low, 1.0 / (kFirstValues - 1));
        for (int i = 0; i < kFirstValues; ++i) {
            values.push_back(i + 1 == kFirstValues ? range.high : rounded(range.low * std::pow(ratio, i)));
        }
        try_values(values);
    }

    std::vector<program::CrossoverRange> ranges() {
        narrow();
        std::vector<program::CrossoverRange> all;
        const Fastest* before = nullptr;
        for (const auto& [value, fastest] : fastest_) {
            if (before == nullptr || !(*before == fastest)) {
                if (!all.empty()) all.back().high = value;
                all.push_back({.low = value, .high = value, .plan = fastest.plan, .at_low = fastest.point});
            }
            all.back().high = value;
            all.back().at_high = fastest.point;
            before = &fastest;
        }
        return all;
    }

  private:
    /// Six significant digits: values are shown, and put into files.
    static double rounded(double value) { return std::stod(fmt::format("{:.6g}", value)); }

    void try_values(const std::vector<double>& values) {
        std::vector<Fastest> found(values.size());
        for (std::size_t j = 0; j < jobs_.size(); ++j) {
            std::vector<Edit> edits;
            for (const double value : values) edits.push_back({{path_}, {fmt::format("{}", value)}});
            const std::optional<std::vector<program::SweepPoint>> points = predict_edits(jobs_[j], edits);
            ORRERY_CHECK(points.has_value(), "a crossover is not a shard");
            for (std::size_t i = 0; i < values.size(); ++i) consider((*points)[i], j, found[i]);
        }
        for (std::size_t i = 0; i < values.size(); ++i) fastest_[values[i]] = std::move(found[i]);
    }

    void consider(const program::SweepPoint& point, std::size_t job, Fastest& best) const {
        if (!point.point.is_found() || !point.fits) {
            const bool is_first = best.point.devices == 0;
            if (is_first) best.point = point.point.is_found() ? without_room(point.point) : point.point;
            return;
        }
        if (!best.plan.empty() && best.point.tokens_per_s >= point.point.tokens_per_s) return;
        const WhatIfJob& of = jobs_[job];
        best = {of.replans ? reports::plan_words(point.point.plan) : of.plan.name, job, point.point};
    }

    static program::ScalingPoint without_room(const program::ScalingPoint& point) {
        return {.devices = point.devices,
                .global_batch_size = point.global_batch_size,
                .reason = "does not fit in device memory"};
    }

    /// Halves the gaps across which the fastest plan changes, all at once, until they are small.
    void narrow() {
        while (true) {
            std::vector<double> middles;
            for (auto next = std::next(fastest_.begin()); next != fastest_.end(); ++next) {
                const auto& [low, at_low] = *std::prev(next);
                const auto& [high, at_high] = *next;
                const double middle = rounded(std::sqrt(low * high));
                const bool is_wide = high > (1 + kAccuracy) * low && low < middle && middle < high;
                if (!(at_low == at_high) && is_wide) middles.push_back(middle);
            }
            if (middles.empty()) return;
            try_values(middles);
        }
    }

    const std::vector<WhatIfJob>& jobs_;
    std::string path_;
    std::map<double, Fastest> fastest_;  // by value
};

std::optional<double> positive_number(std::string_view text) {
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size() || !(number > 0) || !std::isfinite(number)) return {};
    return number;
}

}  // namespace

InputRange input_range(const std::string& text) {
    const std::size_t equals = text.find('='), dots = text.find("..", equals == std::string::npos ? 0 : equals);
    if (equals != std::string::npos && equals > 0 && dots != std::string::npos) {
        const std::string_view view = text;
        const std::optional<double> low = positive_number(view.substr(equals + 1, dots - equals - 1)),
                                    high = positive_number(view.substr(dots + 2));
        if (low && high && *low < *high) return {text.substr(0, equals), *low, *high};
    }
    throw InputError("command line", "--crossover", text, "PATH=LOW..HIGH with 0 < LOW < HIGH");
}

program::Crossover crossover_of(const std::vector<WhatIfJob>& jobs, const InputRange& range) {
    const WhatIfJob& first = jobs.front();
    program::Crossover crossover{.model = first.plan.model.name,
                                 .cluster = first.plan.cluster.name,
                                 .path = range.path,
                                 .plans = {},
                                 .replans = first.replans,
                                 .ranges = {},
                                 .accuracy = kAccuracy};
    for (const WhatIfJob& job : jobs) {
        if (job.editable.numbers_below(range.path) != std::vector<std::string>{range.path}) {
            throw InputError("command line", "--crossover", range.path,
                             "a positive number of " + job.plan.name + " that need not be whole");
        }
        crossover.plans.push_back(job.plan.name);
    }
    crossover.ranges = Crossing(jobs, range).ranges();
    return crossover;
}

}  // namespace orrery::cli
