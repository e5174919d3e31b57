#include "reports/technique_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/index.h"
#include "reports/plan_words.h"
#include "reports/scaling_report.h"
#include "reports/table.h"

namespace orrery::reports {
namespace {

using program::TechniqueCurve;
using program::TechniqueCurves;
using program::TechniquePoint;

/// Losses below this share of all losses, or of the step, are not named.
constexpr double kNamedLoss = 0.1, kNamedShare = 0.01;

std::string cell_of(const TechniquePoint& one) {
    if (!one.point.is_found()) return std::string(name_of(one.obstacle));
    return fmt::format("{} ({})", format_fixed(one.point.speed_up, 2), format_percent(one.point.efficiency, 0));
}

Table speed_up_table(const TechniqueCurves& curves) {
    std::vector<Column> columns{{"devices"}};
    const bool is_weak = curves.mode == program::ScalingMode::weak;
    if (is_weak) columns.push_back({"batch"});
    columns.push_back({"ideal"});
    for (const TechniqueCurve& curve : curves.techniques) columns.push_back({std::string(name_of(curve.technique))});
    Table table(columns);
    for (std::size_t i = 0; i < curves.techniques.front().points.size(); ++i) {
        const program::ScalingPoint& any = curves.techniques.front().points[i].point;
        std::vector<std::string> cells{format_integer(any.devices)};
        if (is_weak) cells.push_back(format_integer(any.global_batch_size));
        const auto ideal = static_cast<double>(any.devices) / static_cast<double>(curves.base_devices);
        cells.push_back(curves.base_devices == 0 ? "-" : format_fixed(ideal, 2));
        for (const TechniqueCurve& curve : curves.techniques) cells.push_back(cell_of(curve.points[i]));
        table.add_row(cells);
    }
    return table;
}

/// "at 16 devices 38% of the step is lost: tp communication between nodes 47%; saved: recomputation 8%".
std::string loss_words(const TechniquePoint& one) {
    const double lost = 1 - one.point.efficiency;
    const bool is_lost = lost >= kNamedShare;
    std::string text = fmt::format("at {} devices {} is lost", format_integer(one.point.devices),
                                   is_lost ? format_percent(lost, 0) + " of the step" : "nothing");
    std::vector<std::string> losses, savings;
    for (const program::LimitShare& loss : one.losses) {
        if (std::abs(loss.share) < std::max(kNamedShare, kNamedLoss * std::abs(lost))) continue;
        if (loss.share > 0) losses.push_back(share_words(loss));
        if (loss.share < 0) savings.insert(savings.begin(), share_words({loss.limit, -loss.share}));
    }
    if (!losses.empty() && is_lost) text += fmt::format(": {}", fmt::join(losses, ", "));
    if (!savings.empty()) text += fmt::format("; saved: {}", fmt::join(savings, ", "));
    return text;
}

std::string pays_text(const TechniqueCurve& curve) {
    const TechniquePoint *first = nullptr, *last = nullptr, *beyond = nullptr, *missing = nullptr;
    for (const TechniquePoint& one : curve.points) {
        if (!one.point.is_found()) {
            if (missing == nullptr || missing->point.devices <= curve.knee_devices) missing = &one;
            continue;
        }
        if (first == nullptr) first = &one;
        if (beyond == nullptr && one.point.devices > curve.knee_devices) beyond = &one;
        last = &one;
    }
    std::string text(name_of(curve.technique));
    if (first == nullptr) return fmt::format("{}: no plan ({})\n", text, name_of(missing->obstacle));
    text += curve.knee_devices == 0 ? ": does not pay"
                                    : fmt::format(": pays to {} device{}", format_integer(curve.knee_devices),
                                                  curve.knee_devices == 1 ? "" : "s");
    const bool pays_to_last = beyond == nullptr;
    if (pays_to_last && missing != nullptr && missing->point.devices > curve.knee_devices) {
        text += fmt::format(", and has no plan on {} ({})", format_integer(missing->point.devices),
                            name_of(missing->obstacle));
    } else if (pays_to_last) {
        text += ", the most asked for";
    }
    const TechniquePoint& shown = pays_to_last ? *last : *beyond;
    return text + (shown.point.devices == 1 ? "" : "; " + loss_words(shown)) + "\n";
}

/// A reason, and the cells that have it.
struct Missing {
    program::Obstacle obstacle{};
    std::string reason;
    std::vector<std::string> cells;  // "tp on 8, 16"
};

void add_missing(const TechniqueCurve& curve, program::Obstacle obstacle, std::vector<Missing>& all) {
    std::vector<std::string> devices;
    std::string reason;  // at the fewest devices
    for (const TechniquePoint& one : curve.points) {
        if (one.point.is_found() || one.obstacle != obstacle) continue;
        if (devices.empty()) reason = one.point.reason;
        devices.push_back(format_integer(one.point.devices));
    }
    if (devices.empty()) return;
    const auto is_same = [&](const Missing& one) { return one.obstacle == obstacle && one.reason == reason; };
    auto place = std::find_if(all.begin(), all.end(), is_same);
    if (place == all.end()) place = all.insert(all.end(), {obstacle, std::move(reason), {}});
    place->cells.push_back(fmt::format("{} on {}", name_of(curve.technique), fmt::join(devices, ", ")));
}

/// Each obstacle of the techniques, with the whole reason at the fewest devices.
std::string missing_text(const TechniqueCurves& curves) {
    std::vector<Missing> all;
    for (const auto obstacle : enum_values<program::Obstacle, program::kObstacleCount>()) {
        for (const TechniqueCurve& curve : curves.techniques) add_missing(curve, obstacle, all);
    }
    std::string text;
    for (const Missing& one : all) {
        text += fmt::format("{} ({}): {}\n", name_of(one.obstacle), fmt::join(one.cells, "; "), one.reason);
    }
    return text;
}

std::string base_text(const program::ScalingPoint& base) {
    return fmt::format("1.00: the fastest plan on {} device{}, {} ({}): {} a step, {} tokens/s\n",
                       format_integer(base.devices), base.devices == 1 ? "" : "s", plan_words(base.plan),
                       base.plan.implementation, format_seconds(base.step_time_s),
                       format_integer(std::llround(base.tokens_per_s)));
}

}  // namespace

std::string techniques_text(const TechniqueCurves& curves) {
    std::string text = speed_up_table(curves).to_text();
    for (const TechniqueCurve& curve : curves.techniques) text += pays_text(curve);
    if (const program::ScalingPoint* base = curves.base()) text += base_text(*base);
    text += "in brackets: efficiency, the speed-up over the ideal one\n";
    text += fmt::format(
        "pays: the devices added last bring at least {} of the tokens/s of as many devices of the plan of 1.00\n"
        "lost: the part of the step beyond an ideal one, by what takes longer for each token than in the plan of 1.00\n"
        "host: launches of kernels, work on the host, and copies to and from its memory\n",
        format_percent(program::kKneeEfficiency, 0));
    text +=
        "dp: torch DataParallel; zero3: FSDP; tp with or without sequence parallelism; micro-batch, recomputation, "
        "pipeline schedule and chunks are the best for each cell\n";
    return text + missing_text(curves);
}

std::string techniques_csv(const TechniqueCurves& curves) {
    std::string text = fmt::format("technique,{},obstacle\n", kScalingColumns);
    for (const TechniqueCurve& curve : curves.techniques) {
        for (const TechniquePoint& one : curve.points) {
            text += fmt::format("{},{},{}\n", name_of(curve.technique), scaling_csv_row(one.point),
                                one.point.is_found() ? "" : name_of(one.obstacle));
        }
    }
    return text;
}

}  // namespace orrery::reports
