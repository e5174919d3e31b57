// Stages of chains, binary trees and double binary trees.
#include <bit>

#include "tests/unit/network/schedules/schedule.h"

namespace orrery::sim::algorithms {
namespace {

using program::CommKind;

std::int64_t heap_depth(std::int64_t label) {
    return static_cast<std::int64_t>(std::bit_width(static_cast<std::uint64_t>(label + 1))) - 1;
}

/// Chains inside the nodes, and two trees over the heads of the chains.
struct DoubleTree {
    ChunkedTask task;
    std::int64_t channels = 1;
    bool has_root = false;
    std::int64_t root_node = 0, root_member = 0;

    /// The member at which a channel's chains start; the chain visits the node's members from there on.
    [[nodiscard]] std::int64_t head(std::int64_t channel) const { return has_root ? root_member : channel; }
    [[nodiscard]] std::int64_t place_of(Party rank, std::int64_t channel) const {
        const std::int64_t node = task.group.node_of(rank);
        const std::int64_t m = task.group.members_of(node);
        return (rank - task.group.first_of(node) - head(channel) % m + m) % m;
    }
    [[nodiscard]] Party rank_at(std::int64_t node, std::int64_t place, std::int64_t channel) const {
        const std::int64_t m = task.group.members_of(node);
        return task.group.first_of(node) + (place + head(channel)) % m;
    }
    [[nodiscard]] std::int64_t depth() const { return log2_ceil(task.group.nodes()); }
    [[nodiscard]] TreePlace place_of_node(std::int64_t node, std::int64_t tree) const {
        return double_tree_place(node, task.group.nodes(), tree, has_root ? root_node : -1);
    }
    [[nodiscard]] std::int64_t chain() const { return task.group.most_members() - 1; }
    [[nodiscard]] Slice chunk(std::int64_t channel, std::int64_t tree, std::int64_t index) const {
        return part_of(part_of(part_of(task.message(), channel, channels), tree, 2), index, task.chunks);
    }
    [[nodiscard]] bool has_chunk(std::int64_t index) const { return index >= 0 && index < task.chunks; }

    void up(std::int64_t round, Party me, std::int64_t channel, std::int64_t tree, const Visit& visit) const {
        const std::int64_t node = task.group.node_of(me);
        const std::int64_t place = place_of(me, channel);
        const std::int64_t label = 2 * channel + tree;
        if (place > 0) {
            const std::int64_t index = round - (chain() - place);
            if (has_chunk(index)) {
                visit({me, rank_at(node, place - 1, channel), chunk(channel, tree, index), true, label});
            }
            return;
        }
        const TreePlace where = place_of_node(node, tree);
        const std::int64_t index = round - chain() - (depth() - where.depth);
        if (where.parent >= 0 && has_chunk(index)) {
            visit({me, rank_at(where.parent, 0, channel), chunk(channel, tree, index), true, label});
        }
    }

    void down(std::int64_t round, Party me, std::int64_t channel, std::int64_t tree, const Visit& visit) const {
        const std::int64_t node = task.group.node_of(me);
        const std::int64_t place = place_of(me, channel);
        const std::int64_t label = 2 * channel + tree;
        const std::int64_t along_chain = round - depth() - place;
        if (place + 1 < task.group.members_of(node) && has_chunk(along_chain)) {
            visit({me, rank_at(node, place + 1, channel), chunk(channel, tree, along_chain), false, label});
        }
        if (place > 0) return;
        const TreePlace where = place_of_node(node, tree);
        const std::int64_t index = round - where.depth;
        for (const std::int64_t child : where.children) {
            if (child >= 0 && has_chunk(index)) {
                visit({me, rank_at(child, 0, channel), chunk(channel, tree, index), false, label});
            }
        }
    }
};

}  // namespace

TreePlace tree_place(std::int64_t label, std::int64_t count) {
    TreePlace place;
    const std::int64_t low = label == 0 ? std::int64_t{1} << log2_ceil(count) : label & -label;
    if (label != 0) {
        const std::int64_t up = (label ^ low) | (low << 1);
        place.parent = up < count ? up : label ^ low;
        place.depth = tree_place(place.parent, count).depth + 1;
        if (low > 1) place.children[0] = label - low / 2;
    }
    for (std::int64_t step = low / 2; step > 0; step /= 2) {
        if (label + step < count) {
            place.children[1] = label + step;
            break;
        }
    }
    return place;
}

TreePlace double_tree_place(std::int64_t node, std::int64_t count, std::int64_t tree, std::int64_t root) {
    // The second tree permutes the labels of the first so that inner nodes become leaves (except label 0, which has a
    // single child); with a root, label 0 stays. Mirroring turns odd labels into even ones if the number of labels is
    // even; otherwise a shift by one does.
    const bool has_root = root >= 0;
    const std::int64_t fixed = has_root ? 1 : 0;
    const std::int64_t moving = count - fixed;
    const bool mirrors = has_root ? count % 2 != 0 : count % 2 == 0;
    const auto swap = [&](std::int64_t label) {
        if (tree == 0 || label < fixed || moving == 0) return label;
        if (mirrors) return fixed + moving - 1 - (label - fixed);
        return fixed + (label - fixed + moving - 1) % moving;
    };
    const auto back = [&](std::int64_t label) {
        if (tree == 0 || label < fixed || moving == 0) return label;
        if (mirrors) return fixed + moving - 1 - (label - fixed);
        return fixed + (label - fixed + 1) % moving;
    };
    const std::int64_t first = has_root ? root : 0;
    TreePlace place = tree_place(swap((node - first + count) % count), count);
    const auto node_of = [&](std::int64_t label) { return label < 0 ? label : (back(label) + first) % count; };
    place.parent = node_of(place.parent);
    for (std::int64_t& child : place.children) child = node_of(child);
    return place;
}

Stages chain_stages(const ChunkedTask& task) {
    const bool reduces = task.kind == CommKind::reduce;
    const std::int64_t n = task.ranks();
    return {{n - 2 + task.chunks, [=](std::int64_t round, Party me, const Visit& visit) {
                 const std::int64_t label = task.label_of(me);
                 if (label == (reduces ? 0 : n - 1)) return;
                 const std::int64_t chunk = round - (reduces ? n - 1 - label : label);
                 if (chunk < 0 || chunk >= task.chunks) return;
                 visit({me, task.rank_of(reduces ? label - 1 : label + 1), part_of(task.message(), chunk, task.chunks),
                        reduces, 0});
             }}};
}

Stages binary_tree_stages(const ChunkedTask& task) {
    const bool reduces = task.kind == CommKind::reduce;
    const std::int64_t n = task.ranks();
    const std::int64_t depth = heap_depth(n - 1);
    return {{depth - 1 + task.chunks, [=](std::int64_t round, Party me, const Visit& visit) {
                 const std::int64_t label = task.label_of(me);
                 const std::int64_t level = heap_depth(label);
                 const std::int64_t chunk = round - (reduces ? depth - level : level);
                 if (chunk < 0 || chunk >= task.chunks) return;
                 const Slice slice = part_of(task.message(), chunk, task.chunks);
                 if (reduces) {
                     if (label > 0) visit({me, task.rank_of((label - 1) / 2), slice, true, 0});
                     return;
                 }
                 for (const std::int64_t child : {2 * label + 1, 2 * label + 2}) {
                     if (child < n) visit({me, task.rank_of(child), slice, false, 0});
                 }
             }}};
}

Stages double_binary_tree_stages(const ChunkedTask& task) {
    const CommKind kind = task.kind;
    const bool has_root = kind != CommKind::all_reduce;
    const std::int64_t root_node = task.group.node_of(task.root);
    const DoubleTree trees{task, has_root ? 1 : task.group.fewest_members(), has_root, root_node,
                           task.root - task.group.first_of(root_node)};
    const std::int64_t one_way = trees.chain() + trees.depth();
    const std::int64_t turn = kind == CommKind::all_reduce ? one_way : 0;
    // Up and down overlap: the root sends a chunk down while it waits for the next one.
    return {{turn + one_way - 1 + task.chunks, [=](std::int64_t round, Party me, const Visit& visit) {
                 for (std::int64_t channel = 0; channel < trees.channels; ++channel) {
                     for (const std::int64_t tree : {0, 1}) {
                         if (kind != CommKind::broadcast) trees.up(round, me, channel, tree, visit);
                         if (kind != CommKind::reduce) trees.down(round - turn, me, channel, tree, visit);
                     }
                 }
             }}};
}

Stage rail_tree_stage(const Group& group, Slice whole, std::int64_t chunks) {
    const std::int64_t k = group.nodes();
    const std::int64_t m = group.most_members();
    const std::int64_t depth = log2_ceil(k);
    return {2 * depth - 1 + chunks, [=](std::int64_t round, Party me, const Visit& visit) {
                if (me >= k * m) return;  // a switch
                const std::int64_t node = me / m;
                const std::int64_t j = me % m;
                for (const std::int64_t tree : {0, 1}) {
                    const TreePlace place = double_tree_place(node, k, tree, -1);
                    const auto slice = [&](std::int64_t chunk) {
                        return part_of(part_of(part_of(whole, j, m), tree, 2), chunk, chunks);
                    };
                    const std::int64_t up = round - (depth - place.depth);
                    if (place.parent >= 0 && up >= 0 && up < chunks) {
                        visit({me, place.parent * m + j, slice(up), true, 0});
                    }
                    const std::int64_t down = round - depth - place.depth;
                    if (down < 0 || down >= chunks) continue;
                    for (const std::int64_t child : place.children) {
                        if (child >= 0) visit({me, child * m + j, slice(down), false, 0});
                    }
                }
            }};
}

}  // namespace orrery::sim::algorithms
