// Stages of direct, pairwise, and the algorithms that reduce in switches (NVLS, CollNet).
#include <memory>

#include "core/error.h"
#include "core/units.h"
#include "tests/unit/network/schedules/schedule.h"

namespace orrery::sim::algorithms {
namespace {

using program::CommKind;

/// The part of rank i's data that belongs to rank j in an all-to-all.
class Parts {
  public:
    explicit Parts(const ChunkedTask& task) : n_(task.ranks()), bytes_(task.bytes) {
        if (task.pair_bytes.empty()) return;
        ORRERY_CHECK(static_cast<std::int64_t>(task.pair_bytes.size()) == checked_product(n_, n_),
                     "an all_to_all with " + std::to_string(task.pair_bytes.size()) + " parts");
        auto starts = std::make_shared<std::vector<std::int64_t>>(1, 0);
        for (const std::int64_t bytes : task.pair_bytes) starts->push_back(starts->back() + bytes);
        starts_ = std::move(starts);
    }
    [[nodiscard]] Slice of(std::int64_t from, std::int64_t to) const {
        if (starts_ == nullptr) return part_of({from * bytes_, bytes_}, to, n_);
        const auto index = static_cast<std::size_t>(from * n_ + to);
        return {(*starts_)[index], (*starts_)[index + 1] - (*starts_)[index]};
    }

  private:
    std::int64_t n_ = 0, bytes_ = 0;
    std::shared_ptr<const std::vector<std::int64_t>> starts_;  // null: equal parts
};

/// One round in which every rank sends every other rank the slice slice_of(from, to).
template <typename SliceOf>
Stage all_pairs(std::int64_t n, bool reduces, SliceOf slice_of) {
    return {1, [=](std::int64_t, Party me, const Visit& visit) {
                for (std::int64_t away = 1; away < n; ++away) {
                    const Party to = (me + away) % n;
                    visit({me, to, slice_of(me, to), reduces, 0});
                }
            }};
}

Stage from_root(const ChunkedTask& task, bool scatters) {
    return {1, [=](std::int64_t, Party me, const Visit& visit) {
                if (me != task.root) return;
                for (Party to = 0; to < task.ranks(); ++to) {
                    if (to == me) continue;
                    visit({me, to, scatters ? part_of(task.message(), to, task.ranks()) : task.message(), false, 0});
                }
            }};
}

Stage to_root(const ChunkedTask& task, bool gathers) {
    return {1, [=](std::int64_t, Party me, const Visit& visit) {
                if (me == task.root) return;
                const Slice slice = gathers ? part_of(task.message(), me, task.ranks()) : task.message();
                visit({me, task.root, slice, !gathers, 0});
            }};
}

/// One round among the members of each node: each sends every other member that member's slice (if it reduces) or its
/// own slice.
Stage inside_nodes(std::int64_t members, std::int64_t ranks, Slice message, bool reduces) {
    return {1, [=](std::int64_t, Party me, const Visit& visit) {
                if (me >= ranks) return;
                const std::int64_t j = me % members;
                for (std::int64_t other = 0; other < members; ++other) {
                    if (other == j) continue;
                    visit({me, me - j + other, part_of(message, reduces ? other : j, members), reduces, 0});
                }
            }};
}

}  // namespace

Stages direct_stages(const ChunkedTask& task) {
    const std::int64_t n = task.ranks();
    const Slice message = task.message();
    const auto own = [=](Party from, Party) { return part_of(message, from, n); };
    const auto others = [=](Party, Party to) { return part_of(message, to, n); };
    const std::int64_t bytes = message.bytes;
    switch (task.kind) {
        case CommKind::all_reduce:
            return {all_pairs(n, true, others), all_pairs(n, false, own)};
        case CommKind::all_gather:
            return {all_pairs(n, false, own)};
        case CommKind::reduce_scatter:
            return {all_pairs(n, true, others)};
        case CommKind::all_to_all:
            return {all_pairs(n, false, [parts = Parts(task)](Party from, Party to) { return parts.of(from, to); })};
        case CommKind::broadcast:
            return {from_root(task, false)};
        case CommKind::scatter:
            return {from_root(task, true)};
        case CommKind::reduce:
            return {to_root(task, false)};
        case CommKind::gather:
            return {to_root(task, true)};
        case CommKind::exchange:
            return {{1, [=](std::int64_t, Party me, const Visit& visit) {
                         visit({me, (me + 1) % n, {me * bytes, bytes}, false, 0});
                     }}};
        case CommKind::send:
        case CommKind::recv:
            break;
    }
    return {{1, [=](std::int64_t, Party me, const Visit& visit) {
                 if (me == 0) visit({0, 1, message, false, 0});
             }}};
}

Stages pairwise_stages(const ChunkedTask& task) {
    const std::int64_t n = task.ranks();
    const bool reduces = task.kind == CommKind::reduce_scatter;
    return {{n - 1, [=, parts = Parts(task)](std::int64_t step, Party me, const Visit& visit) {
                 const Party to = (me + step + 1) % n;
                 visit({me, to, reduces ? part_of(task.message(), to, n) : parts.of(me, to), reduces, 0});
             }}};
}

Stages nvls_stages(const ChunkedTask& task) {
    const CommKind kind = task.kind;
    const std::int64_t n = task.ranks();
    const std::int64_t m = task.group.most_members();
    const Slice message = task.message();
    Stages stages;
    if (kind != CommKind::all_gather) {
        stages.push_back({1, [=](std::int64_t, Party me, const Visit& visit) {
                              if (me < n) visit({me, n + me / m, message, true, 0});
                          }});
        stages.push_back({1, [=](std::int64_t, Party me, const Visit& visit) {
                              for (std::int64_t j = 0; me >= n && j < m; ++j) {
                                  visit({me, (me - n) * m + j, part_of(message, j, m), false, 0});
                              }
                          }});
    }
    if (task.group.nodes() > 1) stages.push_back(rail_tree_stage(task.group, message, task.chunks));
    if (kind != CommKind::reduce_scatter) {
        stages.push_back({1, [=](std::int64_t, Party me, const Visit& visit) {
                              if (me < n) visit({me, n + me / m, part_of(message, me % m, m), false, 0});
                          }});
        stages.push_back({1, [=](std::int64_t, Party me, const Visit& visit) {
                              for (std::int64_t j = 0; me >= n && j < m; ++j) {
                                  visit({me, (me - n) * m + j, message, false, 0});
                              }
                          }});
    }
    return stages;
}

Stages collnet_stages(const ChunkedTask& task) {
    const std::int64_t n = task.ranks();
    const std::int64_t m = task.group.most_members();
    const std::int64_t k = task.group.nodes();
    const Slice message = task.message();
    Stages stages;
    if (m > 1) stages.push_back(inside_nodes(m, n, message, true));
    stages.push_back({1, [=](std::int64_t, Party me, const Visit& visit) {
                          if (me < n) visit({me, n + me % m, part_of(message, me % m, m), true, 0});
                      }});
    stages.push_back({1, [=](std::int64_t, Party me, const Visit& visit) {
                          for (std::int64_t node = 0; me >= n && node < k; ++node) {
                              visit({me, node * m + me - n, part_of(message, me - n, m), false, 0});
                          }
                      }});
    if (m > 1) stages.push_back(inside_nodes(m, n, message, false));
    return stages;
}

}  // namespace orrery::sim::algorithms
