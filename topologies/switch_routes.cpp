#include "topologies/switch_routes.h"

#include <algorithm>
#include <limits>
#include <span>

#include "core/error.h"
#include "core/index.h"

namespace orrery::topologies {
namespace {

constexpr std::uint16_t kFar = std::numeric_limits<std::uint16_t>::max();

}  // namespace

SwitchRoutes::SwitchRoutes(const Graph& graph) {
    std::vector<VertexId> switches;
    for (VertexId v = 0; v < graph.vertex_count(); ++v) {
        if (is_fabric_switch(graph.vertex(v).kind)) switches.push_back(v);
    }
    if (switches.empty()) return;
    first_ = switches.front();
    index_.assign(at(graph.vertex_count() - first_), -1);
    for (std::size_t i = 0; i < switches.size(); ++i) index_[at(switches[i] - first_)] = static_cast<std::int32_t>(i);
    columns_ = std::vector<std::atomic<const Hops*>>(switches.size());
    first_in_.assign(switches.size() + 1, 0);
    for (const VertexId v : switches) {
        first_out_.push_back(static_cast<std::int32_t>(out_.size()));
        const std::size_t own = out_.size();
        LinkId id = graph.first_link(v);
        for (const Link& link : graph.links_from(v)) {
            const std::int32_t to = link.to >= first_ ? index_[at(link.to - first_)] : -1;
            if (to >= 0 && !link.failed) {
                if (out_.size() > own && out_.back().to + out_.back().count == to &&
                    out_.back().link + out_.back().count == id) {
                    ++out_.back().count;
                } else {
                    out_.push_back({to, 1, id});
                }
                ++first_in_[at(to) + 1];
            }
            ++id;
        }
    }
    first_out_.push_back(static_cast<std::int32_t>(out_.size()));
    for (std::size_t i = 1; i < first_in_.size(); ++i) first_in_[i] += first_in_[i - 1];
    in_.resize(at(first_in_.back()));
    std::vector<std::int32_t> next = first_in_;
    for (std::size_t from = 0; from < switches.size(); ++from) {
        for (auto i = first_out_[from]; i < first_out_[from + 1]; ++i) {
            const Run& run = out_[at(i)];
            for (auto to = run.to; to < run.to + run.count; ++to)
                in_[at(next[at(to)]++)] = static_cast<std::int32_t>(from);
        }
    }
}

SwitchRoutes::~SwitchRoutes() {
    for (std::atomic<const Hops*>& column : columns_) delete[] column.load();
}

std::size_t SwitchRoutes::index_of(VertexId vertex) const {
    const std::int64_t offset = std::int64_t{vertex} - first_;
    ORRERY_CHECK(offset >= 0 && at(offset) < index_.size() && index_[at(offset)] >= 0,
                 "vertex " + std::to_string(vertex) + " is not a fabric switch");
    return at(index_[at(offset)]);
}

std::unique_ptr<SwitchRoutes::Hops[]> SwitchRoutes::search(std::size_t to) const {
    const std::size_t count = columns_.size();
    auto hops = std::make_unique<Hops[]>(count);
    std::fill(hops.get(), hops.get() + count, kFar);
    std::vector<std::int32_t> queue{static_cast<std::int32_t>(to)};
    queue.reserve(count);
    hops[to] = 0;
    for (std::size_t head = 0; head < queue.size(); ++head) {
        const std::size_t v = at(queue[head]);
        ORRERY_CHECK(hops[v] + 1 < kFar, "a route of more than 65,534 switches");
        for (auto i = first_in_[v]; i < first_in_[v + 1]; ++i) {
            Hops& next = hops[at(in_[at(i)])];
            if (next != kFar) continue;
            next = static_cast<Hops>(hops[v] + 1);
            queue.push_back(in_[at(i)]);
        }
    }
    return hops;
}

const SwitchRoutes::Hops* SwitchRoutes::column(std::size_t to) const {
    std::atomic<const Hops*>& slot = columns_[to];
    if (const Hops* known = slot.load(std::memory_order_acquire)) return known;
    std::unique_ptr<Hops[]> found = search(to);
    const Hops* expected = nullptr;
    // Two threads may compute the same column; the first to finish publishes it, the other discards its copy.
    if (slot.compare_exchange_strong(expected, found.get(), std::memory_order_acq_rel)) return found.release();
    return expected;
}

std::int64_t SwitchRoutes::distance(VertexId from, VertexId to) const {
    const Hops hops = column(index_of(to))[index_of(from)];
    return hops == kFar ? -1 : hops;
}

void SwitchRoutes::append_route(VertexId from, VertexId to, std::uint64_t choice, std::vector<LinkId>& links) const {
    const std::size_t end = index_of(to);
    const Hops* const hops = column(end);
    std::size_t here = index_of(from);
    ORRERY_CHECK(hops[here] != kFar, "no route from vertex " + std::to_string(from) + " to " + std::to_string(to));
    while (here != end) {
        const std::span<const Run> runs(out_.data() + first_out_[here], out_.data() + first_out_[here + 1]);
        const auto nearer = static_cast<Hops>(hops[here] - 1);
        const auto leading_on = [&](const Run& run) {
            return std::count(hops + run.to, hops + run.to + run.count, nearer);
        };
        std::int64_t count = 0;
        for (const Run& run : runs) count += leading_on(run);
        auto skip = static_cast<std::int64_t>(choice % static_cast<std::uint64_t>(count));
        choice /= static_cast<std::uint64_t>(count);
        std::size_t i = 0;
        for (std::int64_t here_on = leading_on(runs[i]); here_on <= skip; here_on = leading_on(runs[++i]))
            skip -= here_on;
        std::int32_t offset = 0;
        while (hops[runs[i].to + offset] != nearer || skip-- > 0) ++offset;
        links.push_back(runs[i].link + offset);
        here = at(runs[i].to + offset);
    }
}

std::int64_t SwitchRoutes::bytes() const {
    std::size_t columns = 0;
    for (const std::atomic<const Hops*>& column : columns_) columns += column.load() != nullptr ? 1 : 0;
    return static_cast<std::int64_t>(
        columns * columns_.size() * sizeof(Hops) + out_.size() * sizeof(Run) + columns_.size() * sizeof(void*) +
        (in_.size() + index_.size() + first_out_.size() + first_in_.size()) * sizeof(std::int32_t));
}

}  // namespace orrery::topologies
