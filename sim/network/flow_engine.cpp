#include "sim/network/flow_engine.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.h"
#include "core/units.h"

namespace orrery::sim {

namespace {

constexpr double kLevelsPerByte = 65'536;  // a level of one: 2^-16 bytes a second
constexpr std::int64_t kPicosecondsInSecond = 1'000'000'000'000;

Wide capacity_of(double bytes_per_s) {
    const auto levels = static_cast<std::int64_t>(std::llround(bytes_per_s * kLevelsPerByte));
    return static_cast<Wide>(bytes_per_s > 0 ? std::max<std::int64_t>(levels, 1) : 0) * kUnit;
}

[[noreturn]] void refuse(const std::string& where, const std::string& key, const std::string& value,
                         const std::string& allowed) {
    throw InputError(where, key, value, allowed);
}

}  // namespace

FlowEngine::FlowEngine(std::vector<FlowLink> links, FlowEngineOptions options)
    : options_(options), sharing_(std::vector<Wide>(links.size())) {
    for (std::size_t i = 0; i < links.size(); ++i) {
        FlowLink& link = links[i];
        if (!(link.bytes_per_s > 0 && link.bytes_per_s <= kMostLinkBytesPerSecond)) {
            refuse("link " + link.name, "bytes_per_s", std::to_string(link.bytes_per_s), "above 0, at most 1e14");
        }
        capacities_.push_back(capacity_of(link.bytes_per_s));
        sharing_.set_capacity(static_cast<std::int32_t>(i), capacities_.back());
        link_names_.push_back(std::move(link.name));
    }
}

std::int32_t FlowEngine::add_path(std::span<const PathLink> links) {
    const std::string where = "path " + std::to_string(paths_.size());
    const std::size_t first = path_uses_.size();
    for (const PathLink& link : links) {
        if (link.link < 0 || at(link.link) >= link_names_.size()) {
            refuse(where, "link", std::to_string(link.link), "0 to " + std::to_string(link_names_.size()) + " - 1");
        }
        if (!(link.coefficient > 0 && link.coefficient <= kMostCoefficient)) {
            refuse(where + " over link " + link_name(link.link), "coefficient", std::to_string(link.coefficient),
                   "above 0, at most 1e6");
        }
        const auto units = static_cast<std::int64_t>(std::llround(link.coefficient * static_cast<double>(kUnit)));
        path_uses_.push_back({link.link, std::max<std::int64_t>(units, 1)});
    }
    paths_.push_back({static_cast<std::int64_t>(first), static_cast<std::int32_t>(links.size())});
    return static_cast<std::int32_t>(paths_.size() - 1);
}

void FlowEngine::start(const Flow& flow, std::int64_t at_ps) {
    const auto refuse_unless = [&](bool allowed, const char* key, const std::string& value, const char* what) {
        if (!allowed) refuse("flow " + std::to_string(flow.tag), key, value, what);
    };
    if (flow.path < 0 || at(flow.path) >= paths_.size() || flow.bytes < 0 || flow.latency_ps < 0 ||
        !(flow.most_bytes_per_s > 0) || flow.weight < 1 || flow.weight > kMostWeight || at_ps < now_) [[unlikely]] {
        refuse_unless(flow.path >= 0 && at(flow.path) < paths_.size(), "path", std::to_string(flow.path),
                      "a path of add_path");
        refuse_unless(flow.bytes >= 0, "bytes", std::to_string(flow.bytes), "0 or more");
        refuse_unless(flow.latency_ps >= 0, "latency_ps", std::to_string(flow.latency_ps), "0 or more");
        refuse_unless(flow.most_bytes_per_s > 0, "most_bytes_per_s", std::to_string(flow.most_bytes_per_s), "above 0");
        refuse_unless(flow.weight >= 1 && flow.weight <= kMostWeight, "weight", std::to_string(flow.weight),
                      "1 to 1000");
        refuse_unless(at_ps >= now_, "at_ps", std::to_string(at_ps), "now or later");
    }
    std::int64_t joins_ps = 0;
    if (__builtin_add_overflow(at_ps, flow.latency_ps, &joins_ps)) {
        refuse_unless(false, "latency_ps", std::to_string(flow.latency_ps), "an end within 106 days");
    }
    std::int32_t slot = 0;
    if (free_slots_.empty()) {
        slot = static_cast<std::int32_t>(flows_.size());
        flows_.emplace_back();
    } else {
        slot = free_slots_.back();
        free_slots_.pop_back();
    }
    State& state = flows_[at(slot)];
    const double cap = flow.most_bytes_per_s * kLevelsPerByte;
    const auto most = cap < static_cast<double>(kUnlimited) ? static_cast<std::int64_t>(cap) : kUnlimited;
    state.left = static_cast<Wide>(flow.bytes) * static_cast<std::int64_t>(kLevelsPerByte) * kPicosecondsInSecond;
    state.level = 0;
    state.cap = std::max<std::int64_t>(most / flow.weight, 1);
    state.weight = flow.weight;
    state.sequence = next_sequence_++;
    state.tag = flow.tag;
    state.start_ps = at_ps;
    state.path = flow.path;
    state.sharing = false;
    // Nothing holds it up, so it has moved its bytes as soon as it may.
    if (most == kUnlimited && paths_[at(flow.path)].count == 0) state.left = 0;
    schedule(slot, Phase::join, joins_ps);
}

void FlowEngine::set_bandwidth(std::int32_t link, double bytes_per_s, std::int64_t at_ps) {
    if (link < 0 || at(link) >= link_names_.size()) {
        refuse("a change of bandwidth", "link", std::to_string(link),
               "0 to " + std::to_string(link_names_.size()) + " - 1");
    }
    if (!(bytes_per_s >= 0 && bytes_per_s <= kMostLinkBytesPerSecond)) {
        refuse("link " + link_name(link), "bytes_per_s", std::to_string(bytes_per_s), "0 to 1e14");
    }
    if (at_ps < now_) refuse("link " + link_name(link), "at_ps", std::to_string(at_ps), "now or later");
    const auto place =
        std::upper_bound(changes_.begin() + static_cast<std::ptrdiff_t>(next_change_), changes_.end(), at_ps,
                         [](std::int64_t time, const auto& change) { return time < change.time_ps; });
    changes_.insert(place, {at_ps, link, bytes_per_s});
}

void FlowEngine::run(const EndHandler& on_end) {
    constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
    while (true) {
        const std::int64_t change_ps = next_change_ < changes_.size() ? changes_[next_change_].time_ps : kNever;
        const std::int64_t event_ps = queue_.empty() ? kNever : queue_.front().time_ps;
        const std::int64_t next_ps = std::min(change_ps, event_ps);
        if (unsettled_ && next_ps > now_) {
            settle();
            continue;
        }
        // Links that change after the last flow has ended concern nobody.
        if (queue_.empty() && (next_ps == kNever || sharing_count_ == 0)) break;
        now_ = next_ps;
        if (change_ps == now_) {
            apply_changes();
        } else {
            handle(queue_.pop().slot, on_end);
        }
    }
    check_none_stuck();
}

std::string FlowEngine::name_of(const State& flow) const {
    return "flow " + std::to_string(flow.tag);
}

std::span<const IncrementalMaxMin::Use> FlowEngine::uses_of(std::int32_t path) const {
    const Path& found = paths_[at(path)];
    return {path_uses_.data() + found.first, at(found.count)};
}

void FlowEngine::schedule(std::int32_t slot, Phase phase, std::int64_t time_ps) {
    State& flow = flows_[at(slot)];
    flow.phase = phase;
    queue_.schedule(
        {time_ps, static_cast<std::uint64_t>(phase) << 63U | static_cast<std::uint64_t>(flow.sequence), slot});
}

void FlowEngine::apply_changes() {
    for (; next_change_ < changes_.size() && changes_[next_change_].time_ps == now_; ++next_change_) {
        const BandwidthChange& change = changes_[next_change_];
        capacities_[at(change.link)] = capacity_of(change.bytes_per_s);
        sharing_.set_capacity(change.link, capacities_[at(change.link)]);
    }
    unsettled_ = true;
}

void FlowEngine::handle(std::int32_t slot, const EndHandler& on_end) {
    const State& flow = flows_[at(slot)];
    if (flow.phase == Phase::join && flow.left > 0) {
        join(slot);
    } else {
        finish(slot, on_end);
    }
}

/// It has waited for its latency, and shares links from now on.
void FlowEngine::join(std::int32_t slot) {
    State& flow = flows_[at(slot)];
    flow.since_ps = now_;
    flow.sharing = true;
    ++sharing_count_;
    unsettled_ = true;
    if (options_.full) return;
    std::span<const IncrementalMaxMin::Use> uses = uses_of(flow.path);
    if (flow.weight != 1) {
        weighted_uses_.assign(uses.begin(), uses.end());
        for (IncrementalMaxMin::Use& use : weighted_uses_) use.units *= flow.weight;
        uses = weighted_uses_;
    }
    for (const IncrementalMaxMin::Use& use : uses) {
        if (use.units <= std::numeric_limits<std::int64_t>::max() - sharing_.units(use.resource)) continue;
        throw InputError(name_of(flow) + ": with it, coefficients times weights on link " + link_name(use.resource) +
                         " sum to more than 9.2e9");
    }
    flow.activity = sharing_.add(uses, flow.cap);
    if (slot_of_activity_.size() <= at(flow.activity)) slot_of_activity_.resize(at(flow.activity) + 1);
    slot_of_activity_[at(flow.activity)] = slot;
}

void FlowEngine::finish(std::int32_t slot, const EndHandler& on_end) {
    State& flow = flows_[at(slot)];
    if (flow.sharing) {
        flow.sharing = false;
        --sharing_count_;
        unsettled_ = true;
        if (!options_.full) sharing_.remove(flow.activity);
    }
    const FlowEnd end{flow.tag, flow.start_ps, now_};
    free_slots_.push_back(slot);
    if (on_end) on_end(end);
}

void FlowEngine::settle() {
    unsettled_ = false;
    if (options_.full) {
        settle_full();
        return;
    }
    for (const std::int32_t activity : sharing_.settle()) {
        set_level(slot_of_activity_[at(activity)], sharing_.level(activity));
    }
}

void FlowEngine::settle_full() {
    std::vector<std::int32_t> slots;
    std::vector<std::int64_t> caps;
    std::vector<Demand> demands;
    for (std::size_t slot = 0; slot < flows_.size(); ++slot) {
        const State& flow = flows_[slot];
        if (!flow.sharing) continue;
        for (const IncrementalMaxMin::Use& use : uses_of(flow.path)) {
            demands.push_back({static_cast<std::int32_t>(slots.size()), use.resource, use.units * flow.weight});
        }
        slots.push_back(static_cast<std::int32_t>(slot));
        caps.push_back(flow.cap);
    }
    const std::vector<std::int64_t>& levels = full_solver_.levels(capacities_, caps, demands);
    for (std::size_t i = 0; i < slots.size(); ++i) set_level(slots[i], levels[i]);
}

void FlowEngine::set_level(std::int32_t slot, std::int64_t level) {
    State& flow = flows_[at(slot)];
    if (flow.level == level) return;
    const std::int64_t rate_before = flow.level * flow.weight;
    flow.left -= static_cast<Wide>(now_ - flow.since_ps) * rate_before;
    flow.since_ps = now_;
    flow.level = level;
    if (level == 0) {
        queue_.cancel(slot);
        return;
    }
    // The one place where an end is rounded: up to the next picosecond.
    const std::int64_t rate = level * flow.weight;
    const Wide duration = (flow.left + rate - 1) / rate;
    if (duration > std::numeric_limits<std::int64_t>::max() - now_) {
        throw InputError(name_of(flow) + " would take more than 106 days at its rate of " +
                         std::to_string(static_cast<double>(rate) / kLevelsPerByte) + " bytes/s");
    }
    schedule(slot, Phase::end, now_ + static_cast<std::int64_t>(duration));
}

void FlowEngine::check_none_stuck() const {
    if (sharing_count_ == 0) return;
    const State* stuck = nullptr;
    for (const State& flow : flows_) {
        if (flow.sharing && (stuck == nullptr || flow.sequence < stuck->sequence)) stuck = &flow;
    }
    ORRERY_CHECK(stuck != nullptr, "the count of flows is wrong");
    for (const IncrementalMaxMin::Use& use : uses_of(stuck->path)) {
        if (capacities_[at(use.resource)] > 0) continue;
        throw InputError(name_of(*stuck) + " stands still from " + std::to_string(stuck->since_ps) + " ps on: link " +
                         link_name(use.resource) + " has failed and is not restored");
    }
    throw InputError(name_of(*stuck) + " stands still: its links are shared by more than they can divide");
}

}  // namespace orrery::sim
