// Interpolation over measured points.
#pragma once

#include <array>
#include <span>
#include <vector>

namespace orrery::sim {

struct CurvePoint {
    double x = 0;  // > 0
    double y = 0;  // > 0
};

/// Sorts by x and replaces points of equal x by their geometric mean.
[[nodiscard]] std::vector<CurvePoint> make_curve(std::vector<CurvePoint> points);

/// Linear in log-log space between the points; outside them the value of the nearest end. `curve` comes from make_curve
/// and is not empty.
[[nodiscard]] double interpolate_clamped(std::span<const CurvePoint> curve, double x);

/// Extrapolation uses two points whose x differ by at least this factor: between closer points the slope would be
/// measurement noise.
inline constexpr double kExtrapolationSpan = 2.0;

/// Like interpolate_clamped between the points. Outside, the straight line (in linear space) through the end point and
/// the nearest point at least kExtrapolationSpan away from it. Below the first point the result is at least
/// proportional to x and at most the first value. Above the last point, and without a second point, or with a falling
/// line, it is proportional to x, since work grows with x.
[[nodiscard]] double interpolate_growing(std::span<const CurvePoint> curve, double x);

struct ShapePoint {
    std::array<double, 3> log_shape{};
    double value = 0;
};
/// Number of neighbours in an inverse-distance mean.
inline constexpr std::size_t kNearestShapes = 4;

/// Mean of the nearest points' values, weighted by the inverse square of the distance in log-shape space (Shepard).
/// Exact at a point, and always between the smallest and the largest value of the neighbours.
[[nodiscard]] double interpolate_shapes(std::span<const ShapePoint> points, const std::array<double, 3>& log_shape);

}  // namespace orrery::sim
