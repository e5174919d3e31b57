// Derivatives carried along with simulated time: for each cell, by how many picoseconds a moment moves when the cell's
// work takes longer (forward mode). A moment has the tangent of the event that brought it; work that starts then and is
// slowed down meanwhile hands it on. Where two events fall together the later one in the queue counts.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/sharing/max_min.h"

namespace orrery::sim {

class Tangents {
  public:
    /// A part of a duration: so many picoseconds of a cell.
    struct Term {
        std::int32_t cell = 0;
        double picoseconds = 0;  // of a slope: a share of kFullRate
    };

    /// Where much is shared for long, derivatives may grow without bounds, true as they are: moving one start by a
    /// little moves all that comes after. `proportional`: slowed work is taken to be slowed in proportion whatever
    /// moves, so that the cells always add up to the moment with none below 0.
    explicit Tangents(std::size_t cells, bool proportional = false)
        : blocks_((cells + kLanes - 1) / kLanes), proportional_(proportional), now_(blocks_) {}
    void set_activities(std::size_t count) {
        since_.resize(count * blocks_);
        left_.resize(count * blocks_);
        began_ps_.resize(count);
    }

    /// A moment's tangent, kept.
    using Moment = std::vector<std::array<double, 8>>;
    [[nodiscard]] Moment no_moment() const { return Moment(blocks_); }
    [[nodiscard]] const Moment& now() const { return now_; }
    /// The next event is at `moment`, and so many picoseconds later.
    void set_now(const Moment& moment, std::span<const Term> later);

    void start(std::int32_t activity, std::span<const Term> duration, std::int64_t now_ps);
    /// How an activity ran since it started or was last asked.
    struct Run {
        std::int64_t level = 0;       // of kFullRate
        std::int64_t elapsed_ps = 0;  // at this level
        /// By cell: d level / d log(time of its work), of kFullRate, where its work shares what slows the activity.
        std::span<const Term> slopes;
    };
    /// Its level changes now.
    void work_off(std::int32_t activity, const Run& run);
    /// It ends now.
    void end(std::int32_t activity, const Run& run, std::int64_t now_ps);
    /// What is left of the activity takes `factor` times as long.
    void stretch(std::int32_t activity, double factor);

    [[nodiscard]] static double value(const Moment& moment, std::size_t cell) {
        return moment[cell / kLanes][cell % kLanes];
    }

  private:
    void end_in_proportion(std::int32_t activity, std::int64_t now_ps);

    static constexpr std::size_t kLanes = 8;
    using Block = std::array<double, kLanes>;
    [[nodiscard]] std::size_t first_block(std::int32_t activity) const {
        return static_cast<std::size_t>(activity) * blocks_;
    }

    std::size_t blocks_;
    bool proportional_;
    Moment now_;
    std::vector<Block> since_;  // by activity: of the moment from which `left_` counts
    std::vector<Block> left_;   //   of what was left then, at full speed
    std::vector<std::int64_t> began_ps_;
};

}  // namespace orrery::sim
