#include "sim/refine/least_squares.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace orrery::sim {
namespace {

constexpr int kMostSteps = 300;
constexpr double kSettled = 1e-10;    // of the loss, from step to step
constexpr double kDifference = 1e-4;  // of a logarithm, for derivatives
constexpr double kResponds = 0.02;    // a derivative: the figure is a fiftieth of the prediction or more
constexpr double kLargestMove = 0.5;  // of a logarithm, in one step
constexpr double kMostDamping = 1e10;

using Matrix = std::vector<std::vector<double>>;

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

/// By figure, what each error gains while the figure's logarithm gains 1. Taken below, where bounds cannot be met.
Matrix derivatives(std::span<const double> logs, std::span<const double> at, const LogErrors& errors) {
    Matrix result;
    for (std::size_t k = 0; k < logs.size(); ++k) {
        std::vector<double> below(logs.begin(), logs.end());
        below[k] -= kDifference;
        std::vector<double> column = errors(exponentials(below));
        for (std::size_t i = 0; i < column.size(); ++i) column[i] = (at[i] - column[i]) / kDifference;
        result.push_back(std::move(column));
    }
    return result;
}

/// Gauss's elimination of a positive definite system.
std::vector<double> solved(Matrix matrix, std::vector<double> right) {
    const std::size_t n = right.size();
    for (std::size_t k = 0; k < n; ++k) {
        for (std::size_t i = k + 1; i < n; ++i) {
            const double factor = matrix[i][k] / matrix[k][k];
            for (std::size_t j = k; j < n; ++j) matrix[i][j] -= factor * matrix[k][j];
            right[i] -= factor * right[k];
        }
    }
    for (std::size_t k = n; k-- > 0;) {
        for (std::size_t j = k + 1; j < n; ++j) right[k] -= matrix[k][j] * right[j];
        right[k] /= matrix[k][k];
    }
    return right;
}

/// The damped normal equations' step; a figure that is held has an equation of its own.
std::vector<double> step_of(const Matrix& slopes, std::span<const double> errors, const std::vector<bool>& held,
                            double damping) {
    const std::size_t n = slopes.size();
    Matrix matrix(n, std::vector<double>(n));
    std::vector<double> right(n);
    for (std::size_t k = 0; k < n; ++k) {
        if (held[k]) {
            matrix[k][k] = 1;
            continue;
        }
        for (std::size_t i = 0; i < errors.size(); ++i) {
            const double weight = 1 / std::sqrt(1 + (errors[i] / kSoftError) * (errors[i] / kSoftError));
            right[k] -= weight * slopes[k][i] * errors[i];
            for (std::size_t l = 0; l < n; ++l) {
                if (!held[l]) matrix[k][l] += weight * slopes[k][i] * slopes[l][i];
            }
        }
        matrix[k][k] *= 1 + damping;
        matrix[k][k] += 1e-12;
    }
    return solved(std::move(matrix), std::move(right));
}

std::vector<std::size_t> responding(const Matrix& slopes) {
    std::vector<std::size_t> rows;
    for (const std::vector<double>& column : slopes) {
        rows.push_back(static_cast<std::size_t>(
            std::count_if(column.begin(), column.end(), [](double slope) { return std::abs(slope) >= kResponds; })));
    }
    return rows;
}

}  // namespace

FigureFit fit_figures(std::span<const double> start, std::span<const double> most, const LogErrors& errors) {
    std::vector<double> logs;
    for (const double value : start) {
        ORRERY_CHECK(value > 0, "a figure to be fitted that is not positive");
        logs.push_back(std::log(value));
    }
    std::vector<double> at = errors(start);
    Matrix slopes = derivatives(logs, at, errors);
    const std::vector<std::size_t> rows = responding(slopes);
    std::vector<bool> held(rows.size());
    std::transform(rows.begin(), rows.end(), held.begin(), [](std::size_t count) { return count < kFewestRows; });
    double loss = loss_of(at), damping = 1e-3;
    for (int step = 0; step < kMostSteps && damping < kMostDamping; ++step) {
        const std::vector<double> move = step_of(slopes, at, held, damping);
        std::vector<double> next = logs;
        for (std::size_t k = 0; k < logs.size(); ++k) {
            next[k] += std::clamp(move[k], -kLargestMove, kLargestMove);
            if (!held[k]) next[k] = std::min(next[k], std::log(most[k]));
        }
        std::vector<double> there = errors(exponentials(next));
        const double reached = loss_of(there);
        if (!(reached < loss)) {
            damping *= 4;
            continue;
        }
        const bool settled = loss - reached < kSettled * loss;
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
