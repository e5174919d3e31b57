#include "sim/capacity/goodput.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/random.h"

namespace orrery::sim {
namespace {

/// The events of one run, in order of time.
class Run {
  public:
    Run(const FaultModel& faults, double work_s, std::uint64_t seed, std::uint64_t run)
        : faults_(faults),
          work_s_(work_s),
          random_(seed, "faults of run " + std::to_string(run)),
          scale_s_(faults.mean_between_s / std::tgamma(1 + 1 / faults.shape)) {}

    JobRun simulate() {
        while (work_until_failure()) {
            ++result_.interruptions;
            if (uniform() < faults_.replaced_share) replace_node();
            recover();
        }
        result_.elapsed_s = now_s_;
        return result_;
    }

  private:
    double uniform() { return random_.uniform(drawn_++); }

    /// Time to the next failure of a job that begins to run now.
    double draw_failure_s() {
        const double u = 1 - uniform();  // in (0, 1]
        return scale_s_ * std::pow(-std::log(u), 1 / faults_.shape);
    }

    /// Returns whether the job failed; otherwise its work is done.
    bool work_until_failure() {
        const double failure_s = draw_failure_s();
        const double segment_s = faults_.interval_s + faults_.checkpoint_s;
        const double left_s = work_s_ - saved_s_;
        // The last segment ends with the work, and its result is saved too.
        const double whole = std::max(0.0, std::ceil(left_s / faults_.interval_s) - 1);
        const double end_s = left_s + (whole + 1) * faults_.checkpoint_s;
        if (failure_s >= end_s) {
            now_s_ += end_s;
            result_.checkpoint_s += (whole + 1) * faults_.checkpoint_s;
            return false;
        }
        const double segments = std::min(whole, std::floor(failure_s / segment_s));
        saved_s_ += segments * faults_.interval_s;
        result_.checkpoint_s += segments * faults_.checkpoint_s;
        result_.lost_s += failure_s - segments * segment_s;
        now_s_ += failure_s;
        return true;
    }

    /// Takes a spare node, or waits for the one that is repaired first.
    void replace_node() {
        const auto is_back = [this](double back_s) { return back_s <= now_s_; };
        in_repair_.erase(in_repair_.begin(), std::find_if_not(in_repair_.begin(), in_repair_.end(), is_back));
        if (std::ssize(in_repair_) >= faults_.spare_nodes) {
            // All spares are in use. The failed node goes to repair, too, so that one is repaired in any case.
            in_repair_.push_back(now_s_ + faults_.repair_s);
            const double back_s = in_repair_.front();
            in_repair_.erase(in_repair_.begin());
            result_.waiting_s += back_s - now_s_;
            now_s_ = back_s;
            return;
        }
        in_repair_.push_back(now_s_ + faults_.repair_s);
    }

    /// A failure during recovery begins it anew.
    void recover() {
        for (;;) {
            const double failure_s = draw_failure_s();
            const double spent_s = std::min(failure_s, faults_.recovery_s);
            now_s_ += spent_s;
            result_.recovery_s += spent_s;
            if (failure_s >= faults_.recovery_s) return;
            ++result_.interruptions;
        }
    }

    const FaultModel& faults_;
    double work_s_;
    RandomStream random_;
    std::uint64_t drawn_ = 0;
    double scale_s_;  // of the Weibull distribution
    double now_s_ = 0, saved_s_ = 0;
    std::vector<double> in_repair_;  // when each node in repair is back, ascending
    JobRun result_;
};

}  // namespace

double exact_goodput(const FaultModel& faults) {
    const double mean = faults.mean_between_s;
    // expm1 keeps the digits of short intervals. A product that overflows is a job that never ends.
    const double elapsed =
        mean * std::exp(faults.recovery_s / mean) * std::expm1((faults.interval_s + faults.checkpoint_s) / mean);
    return faults.interval_s / elapsed;
}

double best_interval_s(double mean_between_s, double checkpoint_s) {
    // With x = interval / M and c = C / M: f(x) = 1 - x - e^(-x - c) falls from 1 - e^-c at 0 to -e^(-1 - c) at 1.
    const double c = checkpoint_s / mean_between_s;
    double low = 0, high = 1;
    constexpr int kHalvings = 60;
    for (int i = 0; i < kHalvings; ++i) {
        const double middle = (low + high) / 2;
        (1 - middle - std::exp(-middle - c) > 0 ? low : high) = middle;
    }
    return std::max(kLeastIntervalS, low * mean_between_s);
}

std::int64_t spares_for(const FaultModel& faults, double probability) {
    const double mean = faults.replaced_share * faults.repair_s / faults.mean_between_s;
    double term = std::exp(-mean), below = term;
    if (term == 0) {  // so many that the distribution is normal: mean + q sqrt(mean), with 4 sigma on the safe side
        return static_cast<std::int64_t>(std::ceil(mean + 4 * std::sqrt(mean)));
    }
    std::int64_t spares = 0;
    while (below < probability) {
        ++spares;
        term *= mean / static_cast<double>(spares);
        below += term;
        if (term<std::numeric_limits<double>::epsilon() * below&& static_cast<double>(spares)> mean) break;
    }
    return spares;
}

JobRun simulate_job(const FaultModel& faults, double work_s, std::uint64_t seed, std::uint64_t run) {
    ORRERY_CHECK(faults.mean_between_s > 0 && faults.interval_s > 0 && faults.shape > 0 && work_s > 0,
                 "a job without work, interval or failures");
    return Run(faults, work_s, seed, run).simulate();
}

}  // namespace orrery::sim
