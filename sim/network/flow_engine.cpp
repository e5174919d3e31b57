#include "sim/network/flow_engine.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/error.h"
#include "core/units.h"

namespace orrery::sim {

namespace {

constexpr double kLevelsPerByte = 65'536;  // one level is 2^-16 bytes per second
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

FlowEngine::FlowEngine(std::vector<FlowLink> links)
    : work_([this](std::int32_t flow, std::int64_t rate) {
          throw InputError(name_of(flows_[at(flow)]) + " would take more than 106 days at its rate of " +
                           std::to_string(static_cast<double>(rate) / kLevelsPerByte) + " bytes/s");
      }) {
    work_.reserve_resources(links.size());
    link_names_.reserve(links.size());
    for (FlowLink& link : links) {
        if (!(link.bytes_per_s > 0 && link.bytes_per_s <= kMostLinkBytesPerSecond)) {
            refuse("link " + link.name, "bytes_per_s", std::to_string(link.bytes_per_s), "above 0, at most 1e14");
        }
        work_.add_resource(capacity_of(link.bytes_per_s));
        link_names_.push_back(std::move(link.name));
    }
    flows_.resize(at(work_.add_activities(1)) + 1);  // kChangeSlot
}

std::int32_t FlowEngine::add_path(std::span<const PathLink> links) {
    const std::string where = "path " + std::to_string(paths_.size());
    const auto number = static_cast<std::int32_t>(paths_.size());
    path_.clear();
    for (const PathLink& link : links) {
        if (link.link < 0 || at(link.link) >= link_names_.size()) {
            refuse(where, "link", std::to_string(link.link), "0 to " + std::to_string(link_names_.size()) + " - 1");
        }
        if (!(link.coefficient > 0 && link.coefficient <= kMostCoefficient)) {
            refuse(where + " over link " + link_name(link.link), "coefficient", std::to_string(link.coefficient),
                   "above 0, at most 1e6");
        }
        const auto units = static_cast<std::int64_t>(std::llround(link.coefficient * static_cast<double>(kUnit)));
        path_.push_back({link.link, std::max<std::int64_t>(units, 1)});
    }
    paths_.push_back(work_.add_draws(path_));
    return number;
}

/// Throws InputError if a field or `at_ps` is out of range.
void FlowEngine::check(const Flow& flow, std::int64_t at_ps) const {
    const auto check_that = [&](bool allowed, const char* key, const auto& value, const char* what) {
        if (!allowed) [[unlikely]]
            refuse("flow " + std::to_string(flow.tag), key, std::to_string(value), what);
    };
    check_that(flow.path >= 0 && at(flow.path) < paths_.size(), "path", flow.path, "an index from add_path");
    check_that(flow.bytes >= 0, "bytes", flow.bytes, "0 or more");
    check_that(flow.latency_ps >= 0, "latency_ps", flow.latency_ps, "0 or more");
    check_that(flow.most_bytes_per_s > 0, "most_bytes_per_s", flow.most_bytes_per_s, "above 0");
    check_that(flow.weight >= 1 && flow.weight <= kMostWeight, "weight", flow.weight, "1 to 1000");
    check_that(at_ps >= now_ps(), "at_ps", at_ps, "now or later");
    check_that(flow.latency_ps <= std::numeric_limits<std::int64_t>::max() - at_ps, "latency_ps", flow.latency_ps,
               "an end within 106 days");
}

void FlowEngine::start(const Flow& flow, std::int64_t at_ps) {
    check(flow, at_ps);
    std::int32_t place = 0;
    if (free_.empty()) {
        place = work_.add_activities(1);
        flows_.emplace_back();
    } else {
        place = free_.back();
        free_.pop_back();
    }
    State& state = flows_[at(place)];
    const double cap = flow.most_bytes_per_s * kLevelsPerByte;
    const auto most = cap < static_cast<double>(kUnlimited) ? static_cast<std::int64_t>(cap) : kUnlimited;
    const SharedWork::Draws path = paths_[at(flow.path)];
    state.bytes = flow.bytes;
    state.cap = std::max<std::int64_t>(most / flow.weight, 1);
    state.weight = flow.weight;
    state.sequence = next_sequence_++;
    state.tag = flow.tag;
    state.start_ps = at_ps;
    state.path = flow.path;
    state.sharing = false;
    // Without cap and links the bytes take no time.
    if (most == kUnlimited && path.first == path.last) state.bytes = 0;
    ++in_flight_;
    work_.queue().schedule(place, at_ps + flow.latency_ps, kJoinOrder | state.sequence);
}

void FlowEngine::set_bandwidth(std::int32_t link, double bytes_per_s, std::int64_t at_ps) {
    if (link < 0 || at(link) >= link_names_.size()) {
        refuse("a change of bandwidth", "link", std::to_string(link),
               "0 to " + std::to_string(link_names_.size()) + " - 1");
    }
    if (!(bytes_per_s >= 0 && bytes_per_s <= kMostLinkBytesPerSecond)) {
        refuse("link " + link_name(link), "bytes_per_s", std::to_string(bytes_per_s), "0 to 1e14");
    }
    if (at_ps < now_ps()) refuse("link " + link_name(link), "at_ps", std::to_string(at_ps), "now or later");
    const auto place =
        std::upper_bound(changes_.begin() + static_cast<std::ptrdiff_t>(next_change_), changes_.end(), at_ps,
                         [](std::int64_t time, const auto& change) { return time < change.time_ps; });
    changes_.insert(place, {at_ps, link, bytes_per_s});
    schedule_change();
}

void FlowEngine::run(const EndHandler& on_end) {
    // Changes of links after the end of the last flow are ignored.
    while (work_.settle_moment() && in_flight_ > 0) {
        const std::int32_t slot = work_.queue().pop().slot;
        if (slot == kChangeSlot) {
            apply_changes();
        } else if (!flows_[at(slot)].sharing && flows_[at(slot)].bytes > 0) {
            join(slot);
        } else {
            finish(slot, on_end);
        }
    }
    check_none_stuck();
}

void FlowEngine::schedule_change() {
    if (next_change_ == changes_.size()) return;
    work_.queue().schedule(kChangeSlot, changes_[next_change_].time_ps, kChangeOrder);
}

void FlowEngine::apply_changes() {
    for (; next_change_ < changes_.size() && changes_[next_change_].time_ps == now_ps(); ++next_change_) {
        const BandwidthChange& change = changes_[next_change_];
        work_.set_capacity(change.link, capacity_of(change.bytes_per_s));
    }
    schedule_change();
}

/// The flow's latency has passed, and it shares links from now on.
void FlowEngine::join(std::int32_t activity) {
    State& flow = flows_[at(activity)];
    flow.sharing = true;
    const SharedWork::Draws path = paths_[at(flow.path)];
    for (const SharedWork::Draw& use : work_.list(path)) {
        if (use.units * flow.weight <= std::numeric_limits<std::int64_t>::max() - work_.units(use.resource)) continue;
        throw InputError(name_of(flow) + ": the sum of coefficient * weight over the flows on link " +
                         link_name(use.resource) + " would be more than 9.2e9");
    }
    work_.may_draw(activity, path);
    work_.start(
        activity, path,
        {.left = static_cast<Wide>(flow.bytes) * static_cast<std::int64_t>(kLevelsPerByte) * kPicosecondsInSecond,
         .cap = flow.cap,
         .weight = flow.weight,
         .order = flow.sequence});
}

void FlowEngine::finish(std::int32_t activity, const EndHandler& on_end) {
    State& flow = flows_[at(activity)];
    if (flow.sharing) {
        work_.finish(activity);
        work_.may_draw_no_more(activity);
    }
    const FlowEnd end{flow.tag, flow.start_ps, now_ps()};
    flow.sharing = false;
    free_.push_back(activity);
    --in_flight_;
    if (on_end) on_end(end);
}

void FlowEngine::check_none_stuck() const {
    if (in_flight_ == 0) return;
    const State* stuck = nullptr;
    for (const State& flow : flows_) {
        if (flow.sharing && (stuck == nullptr || flow.sequence < stuck->sequence)) stuck = &flow;
    }
    ORRERY_CHECK(stuck != nullptr, "no flow shares links although some are in flight");
    const std::int64_t since_ps = work_.since_ps(static_cast<std::int32_t>(stuck - flows_.data()));
    for (const SharedWork::Draw& use : work_.list(paths_[at(stuck->path)])) {
        if (work_.capacity(use.resource) > 0) continue;
        throw InputError(name_of(*stuck) + " stands still from " + std::to_string(since_ps) + " ps on: link " +
                         link_name(use.resource) + " has failed and is not restored");
    }
    throw InputError(name_of(*stuck) + " stands still: too many flows share its links to give it a rate above 0");
}

}  // namespace orrery::sim
