// The positions of consecutive rows, as an argument of kernels.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/floats.h"
#include "kernels/views.h"

namespace orrery::kernels::cuda {

/// Runs of positions in a size that does not depend on their number, so that kernels take them as an argument whatever
/// the degree of context parallelism. The runs of even index are equally long and equally far apart, and so are those
/// of odd index: rank r has the chunks r and 2c-1-r of 2c, and the keys of all ranks are these pairs for every r.
class PositionRuns {
  public:
    PositionRuns() = default;
    /// Throws BugError if the runs are not of this form.
    explicit PositionRuns(std::span<const PositionRun> runs);

    [[nodiscard]] ORRERY_HOST_AND_DEVICE std::int64_t count() const { return count_; }
    [[nodiscard]] ORRERY_HOST_AND_DEVICE PositionRun operator[](std::int64_t run) const {
        if (run % 2 == 0) return {even_.first + run / 2 * even_step_, even_.count};
        return {odd_.first + run / 2 * odd_step_, odd_.count};
    }
    /// Of all runs.
    [[nodiscard]] ORRERY_HOST_AND_DEVICE std::int64_t positions() const {
        return (count_ + 1) / 2 * even_.count + count_ / 2 * odd_.count;
    }
    /// The part of a run that begins at this index among all positions.
    [[nodiscard]] ORRERY_HOST_AND_DEVICE PositionRun rest_of_run(std::int64_t index) const {
        const std::int64_t pair = count_ > 2 ? index / (even_.count + odd_.count) : 0;
        const std::int64_t rest = index - pair * (even_.count + odd_.count);
        if (rest < even_.count) return {even_.first + pair * even_step_ + rest, even_.count - rest};
        return {odd_.first + pair * odd_step_ + rest - even_.count, odd_.count + even_.count - rest};
    }
    /// The position with this index among all of them.
    [[nodiscard]] ORRERY_HOST_AND_DEVICE std::int64_t position(std::int64_t index) const {
        return rest_of_run(index).first;
    }

  private:
    std::int64_t count_ = 0;
    PositionRun even_, odd_;  // the first two
    std::int64_t even_step_ = 0, odd_step_ = 0;
};

}  // namespace orrery::kernels::cuda
