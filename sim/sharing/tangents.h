// Derivatives of simulated time (forward mode): for each cell, by how many picoseconds a moment moves if the cell's
// work takes longer. A moment has the tangent of the event that happens then; work that starts then passes it on to its
// end. If two events coincide, the later one in the queue counts.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/sharing/max_min.h"

namespace orrery::sim {

class Tangents {
  public:
    /// The part of a duration that belongs to a cell.
    struct Term {
        std::int32_t cell = 0;
        double picoseconds = 0;  // in Run::slopes: a share of kFullRate
    };

    /// With much sharing over a long time, exact derivatives may grow without bounds, because moving one start a little
    /// moves everything after it. `proportional`: slowed work counts as slowed by a constant factor, so that the cells
    /// of a moment are never negative and add up to its time.
    explicit Tangents(std::size_t cells, bool proportional = false)
        : blocks_((cells + kLanes - 1) / kLanes), proportional_(proportional), now_(blocks_) {}
    void set_activities(std::size_t count) {
        since_.resize(count * blocks_);
        left_.resize(count * blocks_);
        began_ps_.resize(count);
    }

    /// The tangent of a moment.
    using Moment = std::vector<std::array<double, 8>>;
    [[nodiscard]] Moment no_moment() const { return Moment(blocks_); }
    [[nodiscard]] const Moment& now() const { return now_; }
    /// Sets the tangent of the current event: `moment` plus `later`.
    void set_now(const Moment& moment, std::span<const Term> later);

    void start(std::int32_t activity, std::span<const Term> duration, std::int64_t now_ps);
    /// How an activity has run since its start or since the last work_off().
    struct Run {
        std::int64_t level = 0;       // full speed is kFullRate
        std::int64_t elapsed_ps = 0;  // at this level
        /// By cell whose work holds units of the resource that slows the activity: d level / d log(time of the work),
        /// as a share of kFullRate.
        std::span<const Term> slopes;
    };
    /// The activity's level changes now.
    void work_off(std::int32_t activity, const Run& run);
    /// The activity ends now.
    void end(std::int32_t activity, const Run& run, std::int64_t now_ps);
    /// The rest of the activity takes `factor` times as long.
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
    std::vector<Block> since_;  // by activity: tangent of its start or last work_off()
    std::vector<Block> left_;   // by activity: tangent of the remaining duration at full speed since then
    std::vector<std::int64_t> began_ps_;
};

}  // namespace orrery::sim
