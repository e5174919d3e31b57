#include "sim/cost/interpolation.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"

namespace orrery::sim {

namespace {

double log_log_between(const CurvePoint& low, const CurvePoint& high, double x) {
    if (x == low.x) return low.y;
    if (x == high.x) return high.y;
    const double share = std::log(x / low.x) / std::log(high.x / low.x);
    return low.y * std::pow(high.y / low.y, share);
}

/// The first point with point.x >= x; the curve's end if there is none.
std::span<const CurvePoint>::iterator at_or_above(std::span<const CurvePoint> curve, double x) {
    return std::lower_bound(curve.begin(), curve.end(), x,
                            [](const CurvePoint& point, double value) { return point.x < value; });
}

}  // namespace

std::vector<CurvePoint> make_curve(std::vector<CurvePoint> points) {
    std::stable_sort(points.begin(), points.end(), [](const CurvePoint& a, const CurvePoint& b) { return a.x < b.x; });
    std::vector<CurvePoint> curve;
    for (std::size_t first = 0; first < points.size();) {
        std::size_t last = first;
        double log_sum = 0;
        while (last < points.size() && points[last].x == points[first].x) log_sum += std::log(points[last++].y);
        const bool alone = last == first + 1;
        curve.push_back(
            {points[first].x, alone ? points[first].y : std::exp(log_sum / static_cast<double>(last - first))});
        first = last;
    }
    return curve;
}

double interpolate_clamped(std::span<const CurvePoint> curve, double x) {
    ORRERY_CHECK(!curve.empty(), "no points to interpolate between");
    if (x <= curve.front().x) return curve.front().y;
    if (x >= curve.back().x) return curve.back().y;
    const auto high = at_or_above(curve, x);
    return log_log_between(*(high - 1), *high, x);
}

double interpolate_growing(std::span<const CurvePoint> curve, double x) {
    ORRERY_CHECK(!curve.empty(), "no points to interpolate between");
    const auto line_through = [x](const CurvePoint& a, const CurvePoint& b) {
        return a.y + (b.y - a.y) / (b.x - a.x) * (x - a.x);
    };
    const CurvePoint& first = curve.front();
    const CurvePoint& last = curve.back();
    if (x < first.x) {
        const double proportional = first.y * x / first.x;
        const auto partner = at_or_above(curve, first.x * kExtrapolationSpan);
        if (partner == curve.end()) return proportional;
        return std::clamp(line_through(first, *partner), proportional, first.y);
    }
    if (x > last.x) {
        const auto above = std::upper_bound(curve.begin(), curve.end(), last.x / kExtrapolationSpan,
                                            [](double value, const CurvePoint& point) { return value < point.x; });
        if (above == curve.begin() || last.y <= (above - 1)->y) return last.y * x / last.x;
        return line_through(*(above - 1), last);
    }
    const auto high = at_or_above(curve, x);
    return high->x == x ? high->y : log_log_between(*(high - 1), *high, x);
}

double interpolate_shapes(std::span<const ShapePoint> points, const std::array<double, 3>& log_shape) {
    ORRERY_CHECK(!points.empty(), "no shapes to interpolate between");
    struct Neighbour {
        double distance_squared = std::numeric_limits<double>::infinity();
        double value = 0;
    };
    std::array<Neighbour, kNearestShapes> nearest{};  // ascending by distance
    for (const ShapePoint& point : points) {
        double distance_squared = 0;
        for (std::size_t i = 0; i < 3; ++i) {
            const double difference = point.log_shape[i] - log_shape[i];
            distance_squared += difference * difference;
        }
        if (distance_squared == 0) return point.value;
        if (distance_squared >= nearest.back().distance_squared) continue;
        std::size_t place = kNearestShapes - 1;
        while (place > 0 && nearest[place - 1].distance_squared > distance_squared) {
            nearest[place] = nearest[place - 1];
            --place;
        }
        nearest[place] = {distance_squared, point.value};
    }
    double weight_sum = 0;
    double value_sum = 0;
    double low = nearest.front().value;
    double high = low;
    for (const Neighbour& neighbour : nearest) {
        if (!std::isfinite(neighbour.distance_squared)) break;
        const double weight = 1.0 / neighbour.distance_squared;
        weight_sum += weight;
        value_sum += weight * neighbour.value;
        low = std::min(low, neighbour.value);
        high = std::max(high, neighbour.value);
    }
    return std::clamp(value_sum / weight_sum, low, high);
}

}  // namespace orrery::sim
