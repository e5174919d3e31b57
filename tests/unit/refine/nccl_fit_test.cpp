// Fits figures to collectives timed by the model itself and expects the figures that made the times.
#include "sim/refine/nccl_fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "sim/refine/least_squares.h"
#include "topologies/cluster.h"

namespace orrery::sim {
namespace {

using program::CommKind;
using topologies::ClusterSpec;

TEST(FitFigures, FindsAProductOfPowersAndKeepsBounds) {
    // Observation i is a * b^i, measured with a = 3 and b = 2; in the second fit b is at most 1.5.
    const LogErrors errors = [](std::span<const double> figures) {
        std::vector<double> result;
        for (int i = 0; i < 6; ++i) {
            result.push_back(std::log(figures[0] * std::pow(figures[1], i) / (3 * std::pow(2.0, i))));
        }
        return result;
    };
    constexpr double kNone = std::numeric_limits<double>::infinity();
    const FigureFit fit = fit_figures(std::vector{1.0, 1.0}, std::vector{kNone, kNone}, errors);
    EXPECT_NEAR(fit.figures[0], 3, 1e-6);
    EXPECT_NEAR(fit.figures[1], 2, 1e-6);
    EXPECT_EQ(fit.rows, (std::vector<std::size_t>{6, 5}));  // the first observation does not depend on b
    const FigureFit bounded = fit_figures(std::vector{1.0, 1.0}, std::vector{kNone, 1.5}, errors);
    EXPECT_DOUBLE_EQ(bounded.figures[1], 1.5);
    EXPECT_GT(bounded.figures[0], 3);
}

TEST(FitFigures, AnOutlierMovesLittle) {
    const LogErrors errors = [](std::span<const double> figures) {
        std::vector<double> result(9, std::log(figures[0] / 2));
        result.push_back(std::log(figures[0] / 20));
        return result;
    };
    const double fitted =
        fit_figures(std::vector{1.0}, std::vector{std::numeric_limits<double>::infinity()}, errors).figures[0];
    EXPECT_NEAR(fitted, 2, 0.05);
}

/// Collectives on 2 to 8 devices of an H200 node, timed by the model itself.
MeasuredCollectives made_by(const ClusterSpec& truth, std::int64_t last_bytes) {
    MeasuredCollectives made{.clusters = {truth}};
    const topologies::Cluster cluster(truth);
    for (const CommKind kind : {CommKind::all_reduce, CommKind::all_gather, CommKind::all_to_all}) {
        for (const std::int64_t ranks : {2, 4, 8}) {
            std::vector<std::int64_t> devices(static_cast<std::size_t>(ranks));
            std::iota(devices.begin(), devices.end(), std::int64_t{0});
            const GroupPlacement placement = place_group(cluster, devices);
            for (std::int64_t bytes = 1024; bytes <= last_bytes; bytes *= 4) {
                const double seconds = collective_cost(kind, bytes, placement, truth).seconds;
                made.rows.push_back({.kind = kind,
                                     .bytes = bytes,
                                     .placement = placement,
                                     .measured_s = seconds,
                                     .part = std::string(program::name_of(kind)) + std::to_string(ranks)});
            }
        }
    }
    return made;
}

double largest(const std::vector<double>& errors) {
    double most = 0;
    for (const double error : errors) most = std::max(most, std::abs(error));
    return most;
}

const FittedFigure& figure_named(const NcclFit& fit, const std::string& key) {
    const auto found =
        std::find_if(fit.figures.begin(), fit.figures.end(), [&](const FittedFigure& one) { return one.key == key; });
    if (found == fit.figures.end()) throw std::runtime_error("no figure " + key);
    return *found;
}

TEST(NcclFit, FindsTheFiguresThatMadeTheTimes) {
    const ClusterSpec truth = topologies::load_cluster("hgx-h200", 1);
    MeasuredCollectives made = made_by(truth, std::int64_t{1} << 32);
    topologies::NcclProfile& start = *made.clusters.front().device.nccl;
    start.ring.front().share_of_port.value *= 0.8;
    start.base_us.value *= 1.5;
    start.step_us.value *= 0.7;
    start.simple_step_us.value *= 1.3;
    start.grouped_share.value *= 0.8;
    start.nvls_share.value *= 1.2;
    const NcclFit fit = fit_nccl(std::move(made), FitTarget::device);
    EXPECT_GT(largest(fit.before), 0.1);
    EXPECT_LT(largest(fit.after), 0.01);
    EXPECT_LT(largest(fit.left_out), 0.1);  // one set of figures holds for all parts
    const topologies::NcclProfile& real = *truth.device.nccl;
    EXPECT_NEAR(figure_named(fit, "base_us").after, real.base_us.value, 0.01 * real.base_us.value);
    EXPECT_NEAR(figure_named(fit, "ring node").after, real.ring.front().share_of_port.value, 0.01);
    EXPECT_NEAR(figure_named(fit, "nvls_share").after, real.nvls_share.value, 0.01);
    EXPECT_FALSE(figure_named(fit, "nvls_share").held);
}

TEST(NcclFit, HoldsFiguresThatAffectTooFewRows) {
    const ClusterSpec truth = topologies::load_cluster("hgx-h200", 1);
    MeasuredCollectives made = made_by(truth, 32768);  // LL alone
    made.clusters.front().device.nccl->base_us.value *= 2;
    const NcclFit fit = fit_nccl(std::move(made), FitTarget::device);
    EXPECT_TRUE(figure_named(fit, "nvls_share").held);
    EXPECT_EQ(figure_named(fit, "nvls_share").rows, 0U);
    EXPECT_DOUBLE_EQ(figure_named(fit, "nvls_share").after, truth.device.nccl->nvls_share.value);
    EXPECT_NEAR(figure_named(fit, "base_us").after, truth.device.nccl->base_us.value, 0.02);
}

TEST(NcclFit, FitsANetworkToGroupsAcrossNodes) {
    ClusterSpec truth = topologies::load_cluster("dgx-h100", 16);
    MeasuredCollectives made{.clusters = {truth}};
    std::vector<std::int64_t> devices(16);
    std::iota(devices.begin(), devices.end(), std::int64_t{0});
    const GroupPlacement placement = place_group(topologies::Cluster(truth), devices);
    for (std::int64_t bytes = 1024; bytes <= (1 << 28); bytes *= 2) {
        made.rows.push_back({.kind = CommKind::all_reduce,
                             .bytes = bytes,
                             .placement = placement,
                             .measured_s = collective_cost(CommKind::all_reduce, bytes, placement, truth).seconds,
                             .part = "one system"});
    }
    made.clusters.front().nic.nccl->step_us.value *= 3;
    const NcclFit fit = fit_nccl(std::move(made), FitTarget::network);
    EXPECT_NEAR(figure_named(fit, "step_us").after, truth.nic.nccl->step_us.value,
                0.01 * truth.nic.nccl->step_us.value);
    EXPECT_TRUE(fit.left_out.empty());  // no other part to fit to
}

TEST(NcclFit, RefusesMissingFiguresOrRows) {
    const ClusterSpec v100 = topologies::load_cluster("dgx2-v100", 1);
    MeasuredCollectives made = made_by(topologies::load_cluster("hgx-h200", 1), 1 << 20);
    made.clusters.front() = v100;
    EXPECT_THROW((void)fit_nccl(made, FitTarget::device), InputError);
    EXPECT_THROW((void)fit_nccl({}, FitTarget::device), InputError);
}

}  // namespace
}  // namespace orrery::sim
