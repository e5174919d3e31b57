// What the timed operators of a device achieve of what its memory and arithmetic allow.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topologies/profile.h"

namespace orrery::reports {

/// The samples of one operator in one type.
struct KernelRate {
    std::string op;
    DType dtype = DType::fp32;
    std::int64_t samples = 0;
    /// Of the sample that must take the longest: launches and caches count less there than in small ones.
    double seconds = 0;
    double attainable_s = 0;  // the larger of bytes / memory bandwidth and FLOPs / peak, as measured or stated
    bool is_bound_by_memory = false;
    double median_share = 0;  // of attainable_s in seconds, over all samples
    [[nodiscard]] double share() const { return attainable_s / seconds; }
};

/// Bytes are those that an operator states to read and write, those of a product its operands and result once. The
/// least share first. Empty if nothing was timed on the device.
[[nodiscard]] std::vector<KernelRate> kernel_rates(const topologies::DeviceProfile& device);

[[nodiscard]] std::string kernel_rates_text(const topologies::DeviceProfile& device);
/// `orrery.kernel_rates/1`. Ends in a newline.
[[nodiscard]] std::string kernel_rates_json(const topologies::DeviceProfile& device);

}  // namespace orrery::reports
