#include "reports/kernel_rates.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "reports/table.h"

namespace orrery::reports {
namespace {

/// Memory traffic and arithmetic of one timed call.
struct TimedWork {
    double bytes = 0, flops = 0, seconds = 0;
};
using TimedKernels = std::map<std::pair<std::string, DType>, std::vector<TimedWork>>;

TimedKernels timed_kernels(const topologies::DeviceProfile& device) {
    TimedKernels kernels;
    for (const topologies::OperatorSample& one : device.operator_samples) {
        kernels[{one.op, one.dtype}].push_back({one.bytes, one.flops, one.seconds});
    }
    for (const topologies::MatmulSample& one : device.matmul_samples) {
        const auto m = static_cast<double>(one.m), n = static_cast<double>(one.n), k = static_cast<double>(one.k);
        kernels[{one.op, one.dtype}].push_back(
            {(m * k + k * n + m * n) * static_cast<double>(size_of(one.dtype)), 2 * m * n * k, one.seconds});
    }
    return kernels;
}

KernelRate rate_of(const topologies::DeviceProfile& device, const std::string& op, DType dtype,
                   const std::vector<TimedWork>& timed) {
    KernelRate rate{.op = op, .dtype = dtype, .samples = std::ssize(timed)};
    std::vector<double> shares;
    for (const TimedWork& one : timed) {
        const double by_memory_s = one.bytes / (device.memory_bandwidth_gb_per_s.value * 1e9);
        const double by_arithmetic_s = one.flops > 0 ? one.flops / device.peak_flops_per_s(dtype) : 0;
        const double attainable_s = std::max(by_memory_s, by_arithmetic_s);
        shares.push_back(attainable_s / one.seconds);
        if (attainable_s <= rate.attainable_s) continue;
        rate.seconds = one.seconds;
        rate.attainable_s = attainable_s;
        rate.is_bound_by_memory = by_memory_s >= by_arithmetic_s;
    }
    const auto middle = shares.begin() + std::ssize(shares) / 2;
    std::nth_element(shares.begin(), middle, shares.end());
    rate.median_share = *middle;
    return rate;
}

const char* bound_of(const KernelRate& rate) {
    return rate.is_bound_by_memory ? "memory" : "arithmetic";
}

}  // namespace

std::vector<KernelRate> kernel_rates(const topologies::DeviceProfile& device) {
    std::vector<KernelRate> rates;
    for (const auto& [kernel, timed] : timed_kernels(device)) {
        const KernelRate rate = rate_of(device, kernel.first, kernel.second, timed);
        if (rate.attainable_s > 0) rates.push_back(rate);
    }
    std::stable_sort(rates.begin(), rates.end(),
                     [](const KernelRate& a, const KernelRate& b) { return a.share() < b.share(); });
    return rates;
}

std::string kernel_rates_text(const topologies::DeviceProfile& device) {
    const std::vector<KernelRate> rates = kernel_rates(device);
    if (rates.empty()) return device.name + ": no operator was timed; orrery calibrate times those of a machine\n";
    Table table({{"operator", Align::left},
                 {"type", Align::left},
                 {"timed"},
                 {"largest"},
                 {"attainable"},
                 {"share"},
                 {"median share"},
                 {"bound by", Align::left}});
    for (const KernelRate& rate : rates) {
        table.add_row({rate.op, std::string(name_of(rate.dtype)), std::to_string(rate.samples),
                       format_seconds(rate.seconds), format_seconds(rate.attainable_s), format_percent(rate.share()),
                       format_percent(rate.median_share), bound_of(rate)});
    }
    return table.to_text() +
           "largest: time of the sample that must take the longest; attainable: what memory and arithmetic allow for "
           "it;\n"
           "median share: over all samples, of which small ones lie in caches or wait for launches\n";
}

std::string kernel_rates_json(const topologies::DeviceProfile& device) {
    nlohmann::ordered_json json{
        {"schema", "orrery.kernel_rates/1"}, {"device", device.name}, {"kernels", nlohmann::ordered_json::array()}};
    for (const KernelRate& rate : kernel_rates(device)) {
        json["kernels"].push_back({{"op", rate.op},
                                   {"dtype", name_of(rate.dtype)},
                                   {"samples", rate.samples},
                                   {"largest_s", rate.seconds},
                                   {"attainable_s", rate.attainable_s},
                                   {"median_share", rate.median_share},
                                   {"bound_by", bound_of(rate)}});
    }
    return json.dump(2) + "\n";
}

}  // namespace orrery::reports
