#include "sim/refine/least_squares.h"

#include <Eigen/Cholesky>
#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace orrery::sim {
namespace {

constexpr int kMostSteps = 300;
constexpr double kSettledDecrease = 1e-10;  // relative decrease of the loss per step
constexpr double kDifference = 1e-4;        // in a logarithm, for finite differences
constexpr double kResponds = 0.02;    // least derivative: the figure contributes at least a fiftieth of the prediction
constexpr double kLargestMove = 0.5;  // of a logarithm in one step
constexpr double kMostDamping = 1e10;
constexpr double kSmallestCurvature = 1e-12;  // keeps the equations solvable if a figure has no effect

double loss_of(std::span<const double> errors) {
    double sum = 0;
    for (const double error : errors) {
        const double ratio = error / kSoftError;
        sum += 2 * kSoftError * kSoftError * (std::sqrt(1 + ratio * ratio) - 1);
    }
    return sum;
}

std::vector<double> exponentials(std::span<const double> logs) {
    std::vector<double> values(logs.size());
    std::transform(logs.begin(), logs.end(), values.begin(), [](double log) { return std::exp(log); });
    return values;
}

Eigen::Map<const Eigen::VectorXd> vector_of(std::span<const double> values) {
    return {values.data(), static_cast<Eigen::Index>(values.size())};
}

/// Derivatives of the errors (rows) by the figures' logarithms (columns). Backward differences, which stay within upper
/// bounds.
Eigen::MatrixXd derivatives(std::span<const double> logs, std::span<const double> at, const LogErrors& errors) {
    Eigen::MatrixXd slopes(static_cast<Eigen::Index>(at.size()), static_cast<Eigen::Index>(logs.size()));
    for (std::size_t k = 0; k < logs.size(); ++k) {
        std::vector<double> below(logs.begin(), logs.end());
        below[k] -= kDifference;
        const std::vector<double> there = errors(exponentials(below));
        slopes.col(static_cast<Eigen::Index>(k)) = (vector_of(at) - vector_of(there)) / kDifference;
    }
    return slopes;
}

/// Step of the damped normal equations; held figures do not move.
Eigen::VectorXd step_of(Eigen::MatrixXd slopes, std::span<const double> errors, const std::vector<bool>& held,
                        double damping) {
    for (std::size_t k = 0; k < held.size(); ++k) {
        if (held[k]) slopes.col(static_cast<Eigen::Index>(k)).setZero();
    }
    const auto observed = vector_of(errors);
    const Eigen::VectorXd weights = (1 + (observed.array() / kSoftError).square()).rsqrt().matrix();
    const Eigen::MatrixXd weighted = weights.asDiagonal() * slopes;
    Eigen::MatrixXd normal = slopes.transpose() * weighted;
    normal.diagonal() = (normal.diagonal() * (1 + damping)).array() + kSmallestCurvature;
    return normal.ldlt().solve(-weighted.transpose() * observed);
}

/// By figure, the number of errors that it affects.
std::vector<std::size_t> responding(const Eigen::MatrixXd& slopes) {
    std::vector<std::size_t> rows;
    for (const auto column : slopes.colwise()) {
        rows.push_back(static_cast<std::size_t>((column.array().abs() >= kResponds).count()));
    }
    return rows;
}

}  // namespace

FigureFit fit_figures(std::span<const double> start, std::span<const double> most, const LogErrors& errors) {
    std::vector<double> logs;
    for (const double value : start) {
        ORRERY_CHECK(value > 0, "figures to be fitted must be positive");
        logs.push_back(std::log(value));
    }
    std::vector<double> at = errors(start);
    Eigen::MatrixXd slopes = derivatives(logs, at, errors);
    const std::vector<std::size_t> rows = responding(slopes);
    std::vector<bool> held(rows.size());
    std::transform(rows.begin(), rows.end(), held.begin(), [](std::size_t count) { return count < kFewestRows; });
    double loss = loss_of(at), damping = 1e-3;
    for (int step = 0; step < kMostSteps && damping < kMostDamping; ++step) {
        const Eigen::VectorXd move = step_of(slopes, at, held, damping);
        std::vector<double> next = logs;
        for (std::size_t k = 0; k < logs.size(); ++k) {
            next[k] += std::clamp(move[static_cast<Eigen::Index>(k)], -kLargestMove, kLargestMove);
            if (!held[k]) next[k] = std::min(next[k], std::log(most[k]));
        }
        std::vector<double> there = errors(exponentials(next));
        const double reached = loss_of(there);
        if (!(reached < loss)) {
            damping *= 4;
            continue;
        }
        const bool settled = loss - reached < kSettledDecrease * loss;
        logs = std::move(next);
        at = std::move(there);
        loss = reached;
        damping = std::max(damping / 5, 1e-9);
        if (settled) break;
        slopes = derivatives(logs, at, errors);
    }
    return {exponentials(logs), rows};
}

}  // namespace orrery::sim
