// Rings over all ranks in rotated orders, neighbour exchange, and hierarchical rings inside and between nodes.
#include <algorithm>
#include <memory>

#include "core/error.h"
#include "tests/unit/network/schedules/schedule.h"

namespace orrery::sim::algorithms {
namespace {

using program::CommKind;

std::int64_t modulo(std::int64_t a, std::int64_t n) {
    return (a % n + n) % n;
}
/// The part that a member of a ring of n sends in step `step`: of a reduce-scatter in which position p ends with part
/// p, and of an all-gather in which position p starts with part p.
std::int64_t scattered_part(std::int64_t position, std::int64_t step, std::int64_t n) {
    return modulo(position - 1 - step, n);
}
std::int64_t gathered_part(std::int64_t position, std::int64_t step, std::int64_t n) {
    return modulo(position - step, n);
}

/// All ring orders of a group, and each rank's position in them.
struct Rings {
    std::vector<std::vector<std::int64_t>> order, position;
    explicit Rings(const Group& group) {
        for (std::int64_t channel = 0; channel < ring_channels(group); ++channel) {
            order.push_back(ring_order(group, channel));
            std::vector<std::int64_t>& where = position.emplace_back(order.back().size());
            for (std::size_t p = 0; p < where.size(); ++p) {
                where[static_cast<std::size_t>(order.back()[p])] = static_cast<std::int64_t>(p);
            }
        }
    }
    [[nodiscard]] std::int64_t channels() const { return static_cast<std::int64_t>(order.size()); }
};

Stage ring_stage(const std::shared_ptr<const Rings>& rings, Slice message, std::int64_t n, bool reduces) {
    return {n - 1, [=](std::int64_t step, Party me, const Visit& visit) {
                for (std::int64_t channel = 0; channel < rings->channels(); ++channel) {
                    const auto c = static_cast<std::size_t>(channel);
                    const auto& order = rings->order[c];
                    const std::int64_t p = rings->position[c][static_cast<std::size_t>(me)];
                    const std::int64_t part = reduces ? scattered_part(p, step, n) : gathered_part(p, step, n);
                    const Slice slice = part_of(message, order[static_cast<std::size_t>(part)], n);
                    visit({me, order[static_cast<std::size_t>((p + 1) % n)], part_of(slice, channel, rings->channels()),
                           reduces, channel});
                }
            }};
}

/// The message as nodes * members slices, one for each rank (i, j). In an all-reduce the slices of member j of all
/// nodes are contiguous; in the other collectives slice r belongs to rank r.
struct Grid {
    std::int64_t nodes = 0, members = 0;
    Slice message;
    bool member_first = false;

    [[nodiscard]] Slice slice(std::int64_t node, std::int64_t member) const {
        if (member_first) return part_of(part_of(message, member, members), node, nodes);
        return part_of(message, node * members + member, nodes * members);
    }
    /// Visits a member's slices of all nodes, as one slice if they are contiguous.
    template <typename Visit>
    void for_each_of(std::int64_t member, Visit visit) const {
        if (member_first) {
            visit(part_of(message, member, members));
        } else {
            for (std::int64_t node = 0; node < nodes; ++node) visit(slice(node, member));
        }
    }
};

Stage inside_nodes(const Grid& grid, bool reduces) {
    return {grid.members - 1, [=](std::int64_t step, Party me, const Visit& visit) {
                const std::int64_t m = grid.members;
                const std::int64_t j = me % m;
                const Party next = me - j + (j + 1) % m;
                const std::int64_t member = reduces ? scattered_part(j, step, m) : gathered_part(j, step, m);
                grid.for_each_of(member, [&](Slice slice) { visit({me, next, slice, reduces, 0}); });
            }};
}

Stage between_nodes(const Grid& grid, bool reduces) {
    return {grid.nodes - 1, [=](std::int64_t step, Party me, const Visit& visit) {
                const std::int64_t k = grid.nodes;
                const std::int64_t i = me / grid.members;
                const std::int64_t j = me % grid.members;
                const std::int64_t node = reduces ? scattered_part(i, step, k) : gathered_part(i, step, k);
                visit({me, (i + 1) % k * grid.members + j, grid.slice(node, j), reduces, 0});
            }};
}

}  // namespace

std::vector<std::int64_t> ring_order(const Group& group, std::int64_t channel) {
    const std::vector<std::int64_t> entries = ring_entries(group, channel);
    std::vector<std::int64_t> order;
    order.reserve(static_cast<std::size_t>(group.ranks()));
    for (std::int64_t node = 0; node < group.nodes(); ++node) {
        const std::int64_t m = group.members_of(node);
        for (std::int64_t x = 0; x < m; ++x) {
            const std::int64_t j = entries[static_cast<std::size_t>(node)] + ring_direction(node) * x;
            order.push_back(group.first_of(node) + modulo(j, m));
        }
    }
    return order;
}

Stages ring_stages(const ChunkedTask& task) {
    const auto rings = std::make_shared<const Rings>(task.group);
    Stages stages;
    if (task.kind != CommKind::all_gather) {
        stages.push_back(ring_stage(rings, task.message(), task.ranks(), true));
    }
    if (task.kind != CommKind::reduce_scatter) {
        stages.push_back(ring_stage(rings, task.message(), task.ranks(), false));
    }
    return stages;
}

/// Pairs (2q, 2q + 1) first exchange their own slices. Then every rank forwards the pair of slices that it received
/// last, alternating between its two neighbours and starting with the other one.
Stages neighbor_exchange_stages(const ChunkedTask& task) {
    const std::int64_t n = task.ranks();
    const Slice message = task.message();
    return {{n / 2, [=](std::int64_t step, Party me, const Visit& visit) {
                 const bool is_even = me % 2 == 0;
                 const Party peer = modulo(me + (is_even == (step % 2 == 0) ? 1 : -1), n);
                 if (step == 0) {
                     visit({me, peer, part_of(message, me, n), false, 0});
                     return;
                 }
                 // In step t a rank receives the pair at distance (t + 1) / 2, on alternating sides.
                 const std::int64_t before = step - 1;
                 const std::int64_t side = is_even == (before % 2 == 0) ? 1 : -1;
                 const std::int64_t pair = modulo(me / 2 + side * ((before + 1) / 2), n / 2);
                 visit({me, peer, parts_of(message, 2 * pair, 2 * pair + 2, n), false, 0});
             }}};
}

Stages hierarchical_all_to_all(const ChunkedTask& task) {
    const std::int64_t k = task.group.nodes(), m = task.group.most_members(), n = task.ranks(), bytes = task.bytes;
    // What rank `from` has for the members of a node.
    const auto for_node = [=](Party from, std::int64_t node) {
        return parts_of({from * bytes, bytes}, node * m, (node + 1) * m, n);
    };
    Stages stages;
    if (k > 1) {
        stages.push_back({1, [=](std::int64_t, Party me, const Visit& visit) {
                              for (std::int64_t node = 0; node < k; ++node) {
                                  const Party to = node * m + me % m;
                                  if (to != me) visit({me, to, for_node(me, node), false, 0});
                              }
                          }});
    }
    if (m == 1) return stages;
    stages.push_back({1, [=](std::int64_t, Party me, const Visit& visit) {
                          for (Party to = me - me % m; to < me - me % m + m; ++to) {
                              if (to == me) continue;
                              for (Party from = me % m; from < n; from += m) {
                                  visit({me, to, part_of({from * bytes, bytes}, to, n), false, 0});
                              }
                          }
                      }});
    return stages;
}

Stages hierarchical_stages(const ChunkedTask& task) {
    const CommKind kind = task.kind;
    if (kind == CommKind::all_to_all) return hierarchical_all_to_all(task);
    const Grid grid{task.group.nodes(), task.group.most_members(), task.message(), kind == CommKind::all_reduce};
    Stages stages;
    if (kind != CommKind::all_gather) {
        stages.push_back(inside_nodes(grid, true));
        stages.push_back(between_nodes(grid, true));
    }
    if (kind != CommKind::reduce_scatter) {
        stages.push_back(between_nodes(grid, false));
        stages.push_back(inside_nodes(grid, false));
    }
    return stages;
}

}  // namespace orrery::sim::algorithms
