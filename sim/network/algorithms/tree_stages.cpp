// Binomial and k-nomial trees.
#include <algorithm>

#include "sim/network/algorithms/stages.h"

namespace orrery::sim::algorithms {
namespace {

using program::CommKind;

/// An edge of a k-nomial tree over labels: in a broadcast or scatter `from` sends to `to`; in a reduce or gather `to`
/// sends to `from`, in the opposite order of steps. The subtree of `to` is the labels [to, to + width).
struct KnomialEdge {
    std::int64_t from = 0, to = 0, width = 0;
};
template <typename Visit>
void knomial_children(std::int64_t label, std::int64_t level, std::int64_t levels, std::int64_t radix, std::int64_t n,
                      Visit visit) {
    std::int64_t width = 1;
    for (std::int64_t i = level + 1; i < levels; ++i) width *= radix;
    if (label % (width * radix) != 0) return;
    for (std::int64_t j = 1; j < radix && label + j * width < n; ++j)
        visit(KnomialEdge{label, label + j * width, width});
}
std::int64_t knomial_levels(std::int64_t n, std::int64_t radix) {
    std::int64_t levels = 0;
    for (std::int64_t width = 1; width < n; width *= radix) ++levels;
    return levels;
}

/// Visits the slices of the ranks with labels in [first, last). They are contiguous except for the wrap at rank n.
template <typename Visit>
void slices_of_labels(const Task& task, std::int64_t first, std::int64_t last, Visit visit) {
    const std::int64_t n = task.ranks();
    const std::int64_t from = first + task.root;
    const std::int64_t to = last + task.root;
    if (from < n) visit(parts_of(task.message(), from, std::min(to, n), n));
    if (to > n) visit(parts_of(task.message(), std::max(from, n) - n, to - n, n));
}

/// Downward from label 0: sends the whole message or, in a scatter, the slices of the receiver's subtree.
Stage knomial_down(const Task& task, std::int64_t radix, bool scatters) {
    const std::int64_t levels = knomial_levels(task.ranks(), radix);
    return {levels, [=](std::int64_t round, Party me, const Visit& visit) {
                const std::int64_t n = task.ranks();
                knomial_children(task.label_of(me), round, levels, radix, n, [&](const KnomialEdge& edge) {
                    const Party to = task.rank_of(edge.to);
                    if (!scatters) {
                        visit({me, to, task.message(), false, 0});
                        return;
                    }
                    slices_of_labels(task, edge.to, std::min(edge.to + edge.width, n), [&](Slice slice) {
                        visit({me, to, slice, false, 0});
                    });
                });
            }};
}

/// Upward to label 0: reduces the whole message or gathers the slices of subtrees.
Stage knomial_up(const Task& task, std::int64_t radix, bool gathers) {
    const std::int64_t levels = knomial_levels(task.ranks(), radix);
    return {levels, [=](std::int64_t round, Party me, const Visit& visit) {
                const std::int64_t n = task.ranks();
                std::int64_t width = 1;
                for (std::int64_t i = 0; i < round; ++i) width *= radix;
                const std::int64_t label = task.label_of(me);
                const std::int64_t above = label % (width * radix);
                if (above == 0 || label % width != 0) return;
                const Party to = task.rank_of(label - above);
                if (!gathers) {
                    visit({me, to, task.message(), true, 0});
                    return;
                }
                slices_of_labels(task, label, std::min(label + width, n), [&](Slice slice) {
                    visit({me, to, slice, false, 0});
                });
            }};
}

/// Radix 2 is the binomial tree.
Stages knomial_stages(const Task& task, std::int64_t radix) {
    switch (task.kind) {
        case CommKind::reduce:
            return {knomial_up(task, radix, false)};
        case CommKind::gather:
            return {knomial_up(task, radix, true)};
        case CommKind::scatter:
            return {knomial_down(task, radix, true)};
        case CommKind::all_reduce:
            return {knomial_up(task, radix, false), knomial_down(task, radix, false)};
        case CommKind::reduce_scatter:
            return {knomial_up(task, radix, false), knomial_down(task, radix, true)};
        case CommKind::broadcast:
        case CommKind::all_gather:
        case CommKind::all_to_all:
        case CommKind::exchange:
        case CommKind::send:
        case CommKind::recv:
            break;
    }
    return {knomial_down(task, radix, false)};
}

}  // namespace

Stages binomial_tree_stages(const Task& task) {
    return knomial_stages(task, 2);
}

Stages knomial_tree_stages(const Task& task) {
    return knomial_stages(task, 4);
}

}  // namespace orrery::sim::algorithms
