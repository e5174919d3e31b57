#include "cli/tornado.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.h"
#include "sim/planner/elasticities.h"

namespace orrery::cli {
namespace {

/// By which an input is moved for its derivative. Durations are whole picoseconds, so it is not smaller.
constexpr double kSmallStep = 0.005;

std::string factor_text(double factor) {
    return fmt::format("{}x", factor);
}

/// With the plan's own value where the moved one breaks a rule.
std::optional<sim::MovedInput> moved(const WhatIfJob& job, const std::string& path) {
    const auto with = [&](double factor) -> std::optional<program::Plan> {
        try {
            return job.editable.with({path}, {factor_text(factor)});
        } catch (const InputError&) {
            return {};
        }
    };
    std::optional<program::Plan> less = with(1 - kSmallStep), more = with(1 + kSmallStep);
    if (!less && !more) return {};
    const double log_ratio = (more ? std::log1p(kSmallStep) : 0) - (less ? std::log1p(-kSmallStep) : 0);
    return sim::MovedInput{less ? std::move(*less) : job.plan, more ? std::move(*more) : job.plan, log_ratio};
}

void set_derivatives(const WhatIfJob& job, program::Tornado& tornado) {
    std::vector<sim::MovedInput> inputs;
    std::vector<program::TornadoBar*> bars;
    for (program::TornadoBar& bar : tornado.bars) {
        if (std::optional<sim::MovedInput> input = moved(job, bar.path)) {
            inputs.push_back(std::move(*input));
            bars.push_back(&bar);
        }
    }
    const std::vector<std::optional<double>> elasticities = sim::elasticities(job.plan, inputs);
    for (std::size_t i = 0; i < bars.size(); ++i) bars[i]->elasticity = elasticities[i];
}

void set_differences(program::Tornado& tornado) {
    for (program::TornadoBar& bar : tornado.bars) {
        const program::ScalingPoint &less = bar.less.point, &more = bar.more.point;
        if (!less.is_found() || !more.is_found()) continue;
        bar.elasticity =
            std::log(more.step_time_s / less.step_time_s) / std::log((1 + tornado.change) / (1 - tornado.change));
    }
}

}  // namespace

std::optional<program::Tornado> tornado_of(const WhatIfJob& job, const std::vector<std::string>& paths, double change) {
    program::Tornado tornado{.model = job.plan.model.name,
                             .cluster = job.plan.cluster.name,
                             .plan = job.plan.name,
                             .replans = job.replans,
                             .change = change};
    std::vector<Edit> edits(1);
    for (const std::string& above : paths.empty() ? std::vector<std::string>{"cluster"} : paths) {
        const std::vector<std::string> numbers = job.editable.numbers_below(above);
        if (numbers.empty()) {
            throw InputError("command line", "--below", above, "a path with a positive number that need not be whole");
        }
        for (const std::string& path : numbers) {
            const bool is_known = std::any_of(tornado.bars.begin(), tornado.bars.end(),
                                              [&](const program::TornadoBar& bar) { return bar.path == path; });
            if (is_known) continue;
            program::TornadoBar& bar = tornado.bars.emplace_back();
            bar.path = path;
            bar.value = job.editable.value(path, {});
            for (const double factor : {1 - change, 1 + change}) edits.push_back({{path}, {factor_text(factor)}});
        }
    }
    std::optional<std::vector<program::SweepPoint>> points = predict_edits(job, edits);
    if (!points) return {};
    tornado.base = std::move(points->front());
    for (std::size_t i = 0; i < tornado.bars.size(); ++i) {
        tornado.bars[i].less = std::move((*points)[2 * i + 1]);
        tornado.bars[i].more = std::move((*points)[2 * i + 2]);
    }
    if (!tornado.base.point.is_found()) throw InfeasibleError(tornado.base.point.reason);
    job.replans ? set_differences(tornado) : set_derivatives(job, tornado);
    rank(tornado);
    return tornado;
}

}  // namespace orrery::cli
