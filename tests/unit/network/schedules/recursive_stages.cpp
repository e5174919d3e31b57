// Stages of Bruck and PAT (parallel aggregated trees).
#include <algorithm>

#include "tests/unit/network/schedules/schedule.h"

namespace orrery::sim::algorithms {
namespace {

using program::CommKind;

/// PAT, chunk by chunk. In the step of a given distance a rank forwards the slices of the owners that are an even
/// multiple of the distance before it (all-gather), or the partial sums for owners an odd multiple before it
/// (reduce-scatter).
Stage pat_stage(const ChunkedTask& task, bool reduces) {
    const std::int64_t levels = log2_ceil(task.ranks());
    return {levels * task.chunks, [=](std::int64_t round, Party me, const Visit& visit) {
                const std::int64_t n = task.ranks();
                const std::int64_t step = round % levels;
                const std::int64_t distance = std::int64_t{1} << (reduces ? step : levels - 1 - step);
                for (std::int64_t away = reduces ? distance : 0; away + (reduces ? 0 : distance) < n;
                     away += 2 * distance) {
                    const std::int64_t owner = (me - away + n) % n;
                    const Party to = reduces ? (me - distance + n) % n : (me + distance) % n;
                    const Slice slice = part_of(part_of(task.message(), owner, n), round / levels, task.chunks);
                    visit({me, to, slice, reduces, 0});
                }
            }};
}

}  // namespace

Stages bruck_stages(const ChunkedTask& task) {
    const std::int64_t n = task.ranks();
    if (task.kind == CommKind::all_gather) {
        return {{log2_ceil(n), [=](std::int64_t step, Party me, const Visit& visit) {
                     const std::int64_t distance = std::int64_t{1} << step;
                     const std::int64_t last = me + std::min(distance, n - distance);
                     const Party to = (me - distance + n) % n;
                     visit({me, to, parts_of(task.message(), me, std::min(last, n), n), false, 0});
                     if (last > n) visit({me, to, parts_of(task.message(), 0, last - n, n), false, 0});
                 }}};
    }
    // A part that travels k ranks makes one hop for each bit set in k, the lowest first.
    return {{log2_ceil(n), [=](std::int64_t step, Party me, const Visit& visit) {
                 const std::int64_t distance = std::int64_t{1} << step;
                 for (std::int64_t away = distance; away < n; ++away) {
                     if ((away & distance) == 0) continue;
                     const std::int64_t owner = (me - away % distance + n) % n;
                     const Slice held{owner * task.bytes, task.bytes};
                     visit({me, (me + distance) % n, part_of(held, (owner + away) % n, n), false, 0});
                 }
             }}};
}

Stages pat_stages(const ChunkedTask& task) {
    return {pat_stage(task, task.kind == CommKind::reduce_scatter)};
}

}  // namespace orrery::sim::algorithms
