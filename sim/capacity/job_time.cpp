#include "sim/capacity/job_time.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/units.h"
#include "sim/capacity/goodput.h"
#include "sim/program/rate_spread.h"
#include "sim/program/run_record.h"

namespace orrery::sim {
namespace {

constexpr double kSecondsPerHour = 3600, kSecondsPerDay = 24 * kSecondsPerHour;

/// log(step time / predicted) at a probability: a Student distribution with 4 degrees of freedom.
double log_step_ratio(const program::ScalingPoint& point, double probability) {
    if (point.step_time_high_s <= 0) return 0;
    const double sd = std::log(point.step_time_high_s / point.step_time_s) / program::kStudentQuantile90;
    constexpr double kFarthest = 50;
    double low = -kFarthest, high = kFarthest;
    constexpr int kHalvings = 60;
    for (int i = 0; i < kHalvings; ++i) {
        const double middle = (low + high) / 2;
        (program::student4_below(middle) < probability ? low : high) = middle;
    }
    return sd * low;
}

FaultModel faults_of(const JobTerms& terms, std::int64_t devices_used) {
    const program::FaultFigures& figures = terms.faults;
    return {.mean_between_s =
                figures.device_hours_per_interruption->value * kSecondsPerHour / static_cast<double>(devices_used),
            .shape = terms.weibull_shape,
            .replaced_share = figures.replaced_share->value,
            .repair_s = figures.repair_hours->value * kSecondsPerHour};
}

double nodes_of(const JobTerms& terms, std::int64_t devices) {
    return std::ceil(static_cast<double>(devices) / static_cast<double>(terms.devices_per_node));
}

}  // namespace

double checkpoint_bytes_per_parameter(const program::Training& training) {
    const program::Precision& precision = training.precision;
    const std::int64_t weights = size_of(precision.parameter) + (precision.master_weights ? size_of(DType::fp32) : 0);
    return static_cast<double>(weights + training.optimizer.states() * size_of(precision.moments));
}

std::int64_t spare_devices(const JobTerms& terms, std::int64_t devices, std::int64_t devices_used) {
    const std::int64_t nodes = spares_for(faults_of(terms, devices_used), kSparesSuffice);
    const std::int64_t idle_nodes = (devices - devices_used) / terms.devices_per_node;
    const std::int64_t allowed_nodes = std::max<std::int64_t>(0, terms.most_devices - devices) / terms.devices_per_node;
    return std::clamp<std::int64_t>(nodes - idle_nodes, 0, allowed_nodes) * terms.devices_per_node;
}

program::CapacitySize job_time_with_spares(const JobTerms& terms, const program::ScalingPoint& point,
                                           double bytes_per_parameter) {
    constexpr std::int64_t kTried = 16;
    const std::int64_t most = spare_devices(terms, point.devices, point.devices_used) / terms.devices_per_node;
    const std::int64_t stride = std::max<std::int64_t>(1, most / kTried);
    const auto device_days = [](const program::CapacitySize& size) {
        return static_cast<double>(size.devices) * size.days_p50;
    };
    program::CapacitySize best = job_time(terms, point, most * terms.devices_per_node, bytes_per_parameter);
    if (best.days_needed > terms.goal.days) return best;
    for (std::int64_t nodes = most - stride; nodes >= 0; nodes -= stride) {
        program::CapacitySize size = job_time(terms, point, nodes * terms.devices_per_node, bytes_per_parameter);
        if (size.days_needed > terms.goal.days) break;
        if (device_days(size) < device_days(best)) best = std::move(size);
    }
    return best;
}

program::CapacitySize job_time(const JobTerms& terms, const program::ScalingPoint& point, std::int64_t spare_devices,
                               double bytes_per_parameter) {
    const program::CapacityGoal& goal = terms.goal;
    program::CapacitySize size{
        .devices = point.devices + spare_devices, .spare_devices = spare_devices, .point = point};
    const double rate_gb_per_s = terms.checkpoint_gb_per_s > 0 ? terms.checkpoint_gb_per_s
                                                               : terms.faults.checkpoint_gb_per_s_per_node->value *
                                                                     nodes_of(terms, point.devices_used);
    FaultModel faults = faults_of(terms, point.devices_used);
    size.checkpoint_gb = bytes_per_parameter * terms.parameters / kGigabyte;
    size.checkpoint_s = faults.checkpoint_s = size.checkpoint_gb / rate_gb_per_s;
    size.recovery_s = faults.recovery_s =
        terms.faults.detection_s->value + terms.faults.restart_s->value + size.checkpoint_s;
    size.checkpoint_interval_s = faults.interval_s = terms.checkpoint_interval_s > 0
                                                         ? terms.checkpoint_interval_s
                                                         : best_interval_s(faults.mean_between_s, faults.checkpoint_s);
    faults.spare_nodes = (point.devices - point.devices_used + spare_devices) / terms.devices_per_node;
    size.hours_between_interruptions = faults.mean_between_s / kSecondsPerHour;

    const double tokens_of_step =
        static_cast<double>(goal.global_batch_size) * static_cast<double>(goal.sequence_length);
    const double work_s = std::ceil(goal.tokens / tokens_of_step) * point.step_time_s;
    size.days_ideal = work_s / kSecondsPerDay;
    std::vector<double> days;
    double work_sum = 0, elapsed_sum = 0;
    for (std::int64_t run = 0; run < kJobRuns; ++run) {
        const double probability = (static_cast<double>(run) + 0.5) / static_cast<double>(kJobRuns);
        const double work = work_s * std::exp(log_step_ratio(point, probability));
        const JobRun one = simulate_job(faults, work, terms.seed, static_cast<std::uint64_t>(run));
        work_sum += work;
        elapsed_sum += one.elapsed_s;
        days.push_back(one.elapsed_s / kSecondsPerDay);
    }
    size.goodput = work_sum / elapsed_sum;
    size.days_p10 = program::percentile(days, 0.1);
    size.days_p50 = program::percentile(days, 0.5);
    size.days_p90 = program::percentile(days, 0.9);
    size.days_needed = program::percentile(days, goal.probability);
    const double hours = size.days_p50 * 24;
    if (const auto usd = terms.costs.usd_per_hour(size.devices)) size.usd = *usd * hours;
    if (const auto kilowatts = terms.costs.kilowatts(size.devices, terms.devices_per_node)) {
        size.megawatts = *kilowatts / 1000;
        size.megawatt_hours = *size.megawatts * hours;
    }
    return size;
}

}  // namespace orrery::sim
