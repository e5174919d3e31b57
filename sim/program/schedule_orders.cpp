#include "sim/program/schedule_orders.h"

#include <algorithm>
#include <string>

namespace orrery::program {

namespace {

/// forward(0)..forward(warm_up - 1), or all; then forward(warm_up + k), backward(k) in turn; then the remaining
/// backwards. `paired`: called after each pair.
template <typename Forward, typename Backward, typename Paired>
void alternate(std::int64_t total, std::int64_t warm_up, const Forward& forward, const Backward& backward,
               const Paired& paired) {
    for (std::int64_t k = 0; k < std::min(warm_up, total); ++k) forward(k);
    for (std::int64_t k = 0; k < total; ++k) {
        const bool is_pair = warm_up + k < total;
        if (is_pair) forward(warm_up + k);
        backward(k);
        if (is_pair) paired();
    }
}

/// `pairs_passes`: as in ScheduleShape.
std::vector<ComputeTask> whole_backward_order(std::int64_t micro_batches, std::int64_t warm_up,
                                              bool pairs_passes = false) {
    TaskList list(2 * micro_batches);
    alternate(
        micro_batches, warm_up + (pairs_passes ? 1 : 0), [&](std::int64_t i) { list.forward(i); },
        [&](std::int64_t i) { list.backward(i); },
        [&] {
            if (pairs_passes) list.overlap_last();
        });
    return list.take();
}

}  // namespace

std::vector<ComputeTask> naive_order(const ScheduleShape& shape, std::int64_t) {
    return whole_backward_order(shape.micro_batches, 0);
}

std::vector<ComputeTask> gpipe_order(const ScheduleShape& shape, std::int64_t) {
    return whole_backward_order(shape.micro_batches, shape.micro_batches);
}

std::vector<ComputeTask> one_f_one_b_order(const ScheduleShape& shape, std::int64_t rank) {
    return whole_backward_order(shape.micro_batches, shape.ranks - 1 - rank, shape.pairs_passes);
}

/// Megatron-LM's rules: a group, including the last one, has at least p micro-batches. Otherwise the last stage would
/// not have returned the group's first micro-batch by the time the next chunk begins.
std::string interleaved_problem(const ScheduleShape& shape) {
    const std::string name = name_of(shape.schedule);
    const std::int64_t p = shape.ranks, m = shape.micro_batches, group = shape.group == 0 ? p : shape.group;
    const std::string depth = "pp = " + std::to_string(p);
    if (p < 2) return name + " needs pp > 1";
    if (m < p) return name + " needs at least " + depth + " micro-batches, got " + std::to_string(m);
    if (group < p || group > m) {
        return name + " needs a group of at least " + depth + " and at most " + std::to_string(m) +
               " micro-batches, got " + std::to_string(group);
    }
    if (m % group != 0 && m % group < p) {
        return name + " needs a last group of at least " + depth + " micro-batches, got " + std::to_string(m % group) +
               " (" + std::to_string(m) + " micro-batches in groups of " + std::to_string(group) + ")";
    }
    return "";
}

std::vector<ComputeTask> interleaved_order(const ScheduleShape& shape, std::int64_t rank) {
    const std::int64_t m = shape.micro_batches, p = shape.ranks, v = shape.chunks;
    const std::int64_t group = shape.group == 0 ? p : shape.group;
    struct Entry {
        std::int64_t micro_batch, chunk;
    };
    std::vector<Entry> table;
    table.reserve(static_cast<std::size_t>(m * v));
    for (std::int64_t begin = 0; begin < m; begin += group) {
        const std::int64_t end = std::min(begin + group, m);
        for (std::int64_t chunk = 0; chunk < v; ++chunk) {
            for (std::int64_t i = begin; i < end; ++i) table.push_back({i, chunk});
        }
    }
    const auto total = static_cast<std::int64_t>(table.size());
    TaskList list(2 * total);
    const auto forward = [&](std::int64_t k) {
        const Entry& entry = table[static_cast<std::size_t>(k)];
        list.forward(entry.micro_batch, ChunkIndex::of(entry.chunk));
    };
    const auto backward = [&](std::int64_t k) {
        const Entry& entry = table[static_cast<std::size_t>(k)];
        list.backward(entry.micro_batch, ChunkIndex::of(v - 1 - entry.chunk));
    };
    // One more forward, so that the last stage's backward does not need the forward beside it.
    const std::int64_t warm_up = 2 * (p - rank - 1) + (v - 1) * group + (shape.pairs_passes ? 1 : 0);
    alternate(total, warm_up, forward, backward, [&] {
        if (shape.pairs_passes) list.overlap_last();
    });
    return list.take();
}

std::vector<ComputeTask> zero_bubble_order(std::int64_t micro_batches, std::int64_t warm_up,
                                           std::int64_t first_weight) {
    TaskList list(3 * micro_batches);
    std::int64_t weights = 0;
    const auto backward = [&](std::int64_t i) {
        list.input(i);
        if (i >= first_weight) list.weight(weights++);
    };
    alternate(
        micro_batches, warm_up, [&](std::int64_t i) { list.forward(i); }, backward, [] {});
    while (weights < micro_batches) list.weight(weights++);
    return list.take();
}

std::vector<ComputeTask> zb_h1_order(const ScheduleShape& shape, std::int64_t rank) {
    return zero_bubble_order(shape.micro_batches, shape.ranks - 1 - rank, rank);
}

std::vector<ComputeTask> zb_h2_order(const ScheduleShape& shape, std::int64_t rank) {
    return zero_bubble_order(shape.micro_batches, 2 * (shape.ranks - 1 - rank), 2 * rank);
}

}  // namespace orrery::program
