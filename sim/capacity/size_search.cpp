#include "sim/capacity/size_search.h"

#include <algorithm>
#include <optional>

namespace orrery::sim {
namespace {

constexpr std::int64_t kParts = 4, kFinest = 32;
/// Twice the devices have to take at most this part of the time.
constexpr double kHelps = 0.95;

std::int64_t rounded_up(std::int64_t devices, std::int64_t grain) {
    return (devices + grain - 1) / grain * grain;
}

/// Whether the last size is hardly faster than one before it.
bool is_slower_than_before(const std::vector<program::CapacitySize>& sizes) {
    const program::CapacitySize& last = sizes.back();
    return std::any_of(sizes.begin(), sizes.end() - 1, [&last](const program::CapacitySize& size) {
        return size.is_found() && (!last.is_found() || last.days_needed > kHelps * size.days_needed);
    });
}

/// Of a goal that is not met: the fastest size, of equals the smallest; or else the largest without a plan.
const program::CapacitySize& nearest(const std::vector<program::CapacitySize>& sizes) {
    const program::CapacitySize* best = nullptr;
    for (const program::CapacitySize& size : sizes) {
        if (size.is_found() && (best == nullptr || size.days_needed < best->days_needed)) best = &size;
    }
    return best == nullptr ? sizes.back() : *best;
}

}  // namespace

void find_smallest(const SizeRange& range, const EvaluateSizes& evaluate, const MeetsGoal& meets,
                   program::CapacityAnswer& answer) {
    const std::int64_t most = range.most / range.grain * range.grain;
    // The largest number that is too small.
    std::int64_t low = std::min(rounded_up(range.least, range.grain), most) - range.grain;
    std::optional<program::CapacitySize> enough;
    bool low_has_plan = true;
    const auto look_at = [&](const std::vector<std::int64_t>& devices) {
        for (program::CapacitySize& size : evaluate(devices)) {
            const std::int64_t used = size.devices - size.spare_devices;
            answer.explored.push_back(size);
            if (enough && used > enough->devices - enough->spare_devices) continue;
            if (meets(size)) {
                enough = std::move(size);
            } else if (used > low) {
                low = used;
                low_has_plan = size.is_found();
            }
        }
    };
    std::int64_t next = range.grain;
    while (next < rounded_up(range.least, range.grain)) next *= 2;
    bool helps = true;  // the last doubling made the job faster
    for (; !enough && low < most && helps; next *= 2) {
        // Both are looked at together.
        std::vector<std::int64_t> both{std::min(next, most)};
        if (next < most) both.push_back(std::min(2 * next, most));
        next = both.back();
        look_at(both);
        helps = !is_slower_than_before(answer.explored);
    }
    while (enough) {
        const std::int64_t high = enough->devices - enough->spare_devices;
        const std::int64_t step = std::max(range.grain, rounded_up((high - low) / kParts, range.grain));
        if (high - low <= std::max(range.grain, high / kFinest)) break;
        std::vector<std::int64_t> between;
        for (std::int64_t devices = low + step; devices < high && std::ssize(between) + 1 < kParts; devices += step) {
            between.push_back(devices);
        }
        if (between.empty()) break;
        look_at(between);
    }
    std::sort(answer.explored.begin(), answer.explored.end(),
              [](const auto& a, const auto& b) { return a.devices < b.devices; });
    answer.meets = enough.has_value();
    if (enough) {
        answer.best = *enough;
        answer.limit = low_has_plan ? program::CapacityLimit::deadline : program::CapacityLimit::memory;
        return;
    }
    answer.best = nearest(answer.explored);
    answer.limit = !answer.best.is_found() ? program::CapacityLimit::none
                   : helps                 ? program::CapacityLimit::devices
                                           : program::CapacityLimit::scaling;
}

}  // namespace orrery::sim
