#include "sim/sharing/tangents.h"

namespace orrery::sim {

void Tangents::set_now(const Moment& moment, std::span<const Term> later) {
    now_ = moment;
    for (const Term& term : later) {
        if (term.picoseconds == 0) continue;
        const auto cell = static_cast<std::size_t>(term.cell);
        now_[cell / kLanes][cell % kLanes] += term.picoseconds;
    }
}

void Tangents::start(std::int32_t activity, std::span<const Term> duration, std::int64_t now_ps) {
    began_ps_[static_cast<std::size_t>(activity)] = now_ps;
    Block* const since = &since_[first_block(activity)];
    Block* const left = &left_[first_block(activity)];
    for (std::size_t b = 0; b < blocks_; ++b) {
        since[b] = now_[b];
        left[b] = {};
    }
    for (const Term& term : duration) {
        const auto cell = static_cast<std::size_t>(term.cell);
        left[cell / kLanes][cell % kLanes] += term.picoseconds;
    }
}

void Tangents::work_off(std::int32_t activity, const Run& run) {
    if (proportional_) return;
    const double speed = static_cast<double>(run.level) / static_cast<double>(kFullRate);
    Block* const since = &since_[first_block(activity)];
    Block* const left = &left_[first_block(activity)];
    for (std::size_t b = 0; b < blocks_; ++b) {
        for (std::size_t lane = 0; lane < kLanes; ++lane) {
            left[b][lane] -= (now_[b][lane] - since[b][lane]) * speed;
            since[b][lane] = now_[b][lane];
        }
    }
    for (const Term& slope : run.slopes) {
        const auto cell = static_cast<std::size_t>(slope.cell);
        left[cell / kLanes][cell % kLanes] -= static_cast<double>(run.elapsed_ps) * slope.picoseconds;
    }
}

void Tangents::end_in_proportion(std::int32_t activity, std::int64_t now_ps) {
    const Block* const since = &since_[first_block(activity)];
    const Block* const left = &left_[first_block(activity)];
    double nominal = 0;
    for (std::size_t b = 0; b < blocks_; ++b) {
        for (const double lane : left[b]) nominal += lane;
    }
    const auto taken = static_cast<double>(now_ps - began_ps_[static_cast<std::size_t>(activity)]);
    const double factor = nominal > 0 ? taken / nominal : 0;
    for (std::size_t b = 0; b < blocks_; ++b) {
        for (std::size_t lane = 0; lane < kLanes; ++lane) now_[b][lane] = since[b][lane] + left[b][lane] * factor;
    }
}

void Tangents::end(std::int32_t activity, const Run& run, std::int64_t now_ps) {
    if (proportional_) {
        end_in_proportion(activity, now_ps);
        return;
    }
    const double slowness = static_cast<double>(kFullRate) / static_cast<double>(run.level);
    const Block* const since = &since_[first_block(activity)];
    const Block* const left = &left_[first_block(activity)];
    for (std::size_t b = 0; b < blocks_; ++b) {
        for (std::size_t lane = 0; lane < kLanes; ++lane) {
            now_[b][lane] = since[b][lane] + left[b][lane] * slowness;
        }
    }
    for (const Term& slope : run.slopes) {
        const auto cell = static_cast<std::size_t>(slope.cell);
        now_[cell / kLanes][cell % kLanes] -= static_cast<double>(run.elapsed_ps) * slope.picoseconds * slowness;
    }
}

void Tangents::stretch(std::int32_t activity, double factor) {
    if (proportional_) return;
    Block* const left = &left_[first_block(activity)];
    for (std::size_t b = 0; b < blocks_; ++b) {
        for (double& lane : left[b]) lane *= factor;
    }
}

}  // namespace orrery::sim
