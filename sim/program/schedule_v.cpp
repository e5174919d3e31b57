// Schedules in which every rank holds two chunks whose micro-batches go in opposite directions.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <deque>

#include "core/error.h"
#include "sim/program/schedule_orders.h"

namespace orrery::program {
namespace {

/// The task list of a rank with two chunks. Each chunk's micro-batches run in ascending order, with separate counters
/// for forwards and backwards.
class TwoChunks {
  public:
    /// Chunk c has the micro-batches first[c]..first[c]+count-1.
    TwoChunks(std::int64_t count, std::array<std::int64_t, 2> first) : count_(count), first_(first), list_(6 * count) {}

    void forward(std::size_t chunk) { list_.forward(next(forwards_, chunk), ChunkIndex::of(chunk)); }
    void backward(std::size_t chunk) { list_.backward(next(backwards_, chunk), ChunkIndex::of(chunk)); }
    void input(std::size_t chunk) {
        const std::int64_t micro_batch = next(backwards_, chunk);
        list_.input(micro_batch, ChunkIndex::of(chunk));
        pending_.push_back({chunk, micro_batch});
    }
    /// Adds the W of the chunk's oldest I that has none yet.
    void weight(std::size_t chunk) {
        const auto oldest = std::ranges::find(pending_, chunk, &Pending::chunk);
        ORRERY_CHECK(oldest != pending_.end(), "the schedule has a W before its I");
        list_.weight(oldest->micro_batch, ChunkIndex::of(chunk));
        pending_.erase(oldest);
    }
    /// The same for the oldest I of both chunks.
    void oldest_weight() { weight(pending_.empty() ? 0 : pending_.front().chunk); }
    void input_and_weight(std::size_t chunk) {
        input(chunk);
        weight(chunk);
    }
    void forward_and_backward(std::size_t forward_chunk, std::size_t backward_chunk, bool overlapped = true) {
        forward(forward_chunk);
        backward(backward_chunk);
        if (overlapped) list_.overlap_last();
    }
    [[nodiscard]] std::vector<ComputeTask> take() {
        ORRERY_CHECK(pending_.empty() && forwards_ == backwards_ && forwards_[0] == count_ && forwards_[1] == count_,
                     "the schedule leaves out tasks");
        return list_.take();
    }

  private:
    struct Pending {
        std::size_t chunk;
        std::int64_t micro_batch;
    };
    std::int64_t next(std::array<std::int64_t, 2>& counters, std::size_t chunk) {
        ORRERY_CHECK(counters[chunk] < count_, "the schedule has too many tasks");
        return first_[chunk] + counters[chunk]++;
    }
    std::int64_t count_;
    std::array<std::int64_t, 2> first_;
    std::array<std::int64_t, 2> forwards_{}, backwards_{};
    std::deque<Pending> pending_;
    TaskList list_;
};

/// The eight phases of DualPipe and DualPipeV. `near` is the chunk whose micro-batches enter the pipeline on this
/// rank's side. `position` is the rank's distance from that side; at position `depth`-1 the pipeline turns.
std::vector<ComputeTask> eight_phases(TwoChunks chunks, std::size_t near, std::int64_t position, std::int64_t depth,
                                      std::int64_t count) {
    const std::size_t far = 1 - near;
    const bool at_turn = position == depth - 1;
    const auto repeat = [](std::int64_t times, const auto& body) {
        for (std::int64_t i = 0; i < times; ++i) body(i);
    };
    repeat(2 * (depth - position - 1), [&](std::int64_t) { chunks.forward(near); });
    repeat(position + 1, [&](std::int64_t) {
        chunks.forward(near);
        chunks.forward(far);
    });
    repeat(depth - position - 1, [&](std::int64_t) {
        chunks.input_and_weight(far);
        chunks.forward(far);
    });
    repeat(count - 2 * depth + position + 1, [&](std::int64_t i) {
        // At the turn the first pair is not overlapped, so that the output of F does not wait for B: a smaller bubble.
        chunks.forward_and_backward(near, far, !(at_turn && i == 0));
        chunks.forward_and_backward(far, near);
    });
    repeat(depth - position - 1, [&](std::int64_t) {
        chunks.backward(far);
        chunks.forward_and_backward(far, near);
    });
    // These are 2(position+1) backwards. All but the first position+1 leave their W for the end, where ranks would
    // otherwise be idle.
    repeat(2 * (position + 1), [&](std::int64_t i) {
        const std::size_t chunk = i % 2 == 0 ? far : near;
        if (i < position + 1) {
            chunks.backward(chunk);
        } else {
            chunks.input(chunk);
        }
    });
    repeat(depth - position - 1, [&](std::int64_t) {
        chunks.oldest_weight();
        chunks.input(near);
    });
    repeat(position + 1, [&](std::int64_t) { chunks.oldest_weight(); });
    return chunks.take();
}

}  // namespace

std::vector<ComputeTask> zb_v_order(const ScheduleShape& shape, std::int64_t rank) {
    const std::int64_t p = shape.ranks, m = shape.micro_batches;
    // The order is built for at least 2p-1 micro-batches, the depth of the warm-up. Tasks of micro-batches beyond m are
    // left out at the end.
    const std::int64_t n = std::max(2 * p - 1, m), warm_up = 2 * p - 1 - rank;  // of chunk 0
    TwoChunks chunks(n, {0, 0});
    for (std::int64_t i = 0; i < warm_up - rank; ++i) chunks.forward(0);
    for (std::int64_t i = 0; i < rank; ++i) {
        chunks.forward(1);
        chunks.forward(0);
    }
    for (std::int64_t i = rank; i < p; ++i) {
        chunks.forward(1);
        chunks.input_and_weight(1);
    }
    for (std::int64_t i = p; i < n; ++i) {
        if (warm_up + i - p < n) chunks.forward(0);
        chunks.input_and_weight(0);
        chunks.forward(1);
        chunks.input_and_weight(1);
    }
    for (std::int64_t i = 0; i < rank; ++i) {
        chunks.input(0);
        chunks.input(1);
    }
    for (std::int64_t i = rank; i < p; ++i) chunks.input_and_weight(0);
    for (std::int64_t i = 0; i < rank; ++i) chunks.weight(1);
    for (std::int64_t i = 0; i < rank; ++i) chunks.weight(0);
    std::vector<ComputeTask> order = chunks.take();
    std::erase_if(order, [&](const ComputeTask& task) { return task.micro_batch >= m; });
    return order;
}

std::string dualpipe_v_problem(const ScheduleShape& shape) {
    if (shape.micro_batches >= 2 * shape.ranks) return "";
    return fmt::format("{} needs at least 2*pp = {} micro-batches, got {}", name_of(shape.schedule), 2 * shape.ranks,
                       shape.micro_batches);
}

std::string dualpipe_problem(const ScheduleShape& shape) {
    const bool odd_ranks = shape.ranks % 2 != 0;
    if (!odd_ranks && shape.micro_batches % 2 == 0) return dualpipe_v_problem(shape);
    return fmt::format("{} needs an even {}, got {}", name_of(shape.schedule),
                       odd_ranks ? "pp" : "number of micro-batches", odd_ranks ? shape.ranks : shape.micro_batches);
}

std::vector<ComputeTask> dualpipe_order(const ScheduleShape& shape, std::int64_t rank) {
    const std::int64_t half = shape.micro_batches / 2;
    const bool second_half = rank >= shape.ranks / 2;
    return eight_phases(TwoChunks(half, {0, half}), second_half ? 1 : 0, std::min(rank, shape.ranks - 1 - rank),
                        shape.ranks / 2, half);
}

std::vector<ComputeTask> dualpipe_v_order(const ScheduleShape& shape, std::int64_t rank) {
    return eight_phases(TwoChunks(shape.micro_batches, {0, 0}), 0, rank, shape.ranks, shape.micro_batches);
}

}  // namespace orrery::program
