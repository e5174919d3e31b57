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

/// Straight lines between the points in log-log space; the value of the nearest end outside of them.
/// `curve` comes from make_curve and is not empty.
[[nodiscard]] double interpolate_clamped(std::span<const CurvePoint> curve, double x);

/// A line is continued beyond the ends only through points this far apart: between neighbours that almost coincide the
/// noise of a timing would be the slope.
inline constexpr double kExtrapolationSpan = 2.0;

/// As above between the points. Outside, the straight line (in linear space) through the end and the nearest point at
/// least kExtrapolationSpan from it, but never less than what is proportional to x below the first point, nor a falling
/// line above the last one: work grows with x. Without such a point: proportional to x.
[[nodiscard]] double interpolate_growing(std::span<const CurvePoint> curve, double x);

struct ShapePoint {
    std::array<double, 3> log_shape{};
    double value = 0;
};
/// Neighbours that take part in an inverse-distance mean.
inline constexpr std::size_t kNearestShapes = 4;

/// Mean of the nearest points' values, weighted by the inverse square of the distance in log-shape space (Shepard). The
/// value of a point at that very point, and always between the smallest and the largest value of the neighbours.
[[nodiscard]] double interpolate_shapes(std::span<const ShapePoint> points, const std::array<double, 3>& log_shape);

}  // namespace orrery::sim
