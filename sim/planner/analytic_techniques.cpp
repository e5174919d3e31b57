// What AnalyticBounder knows of offloaded activations and of a vocabulary that is sharded over the stages.
#include <algorithm>
#include <limits>

#include "sim/planner/analytic_bounds.h"
#include "sim/program/vocabulary.h"

namespace orrery::sim {

namespace {

using program::ComputeTask;

/// From this many micro-batches per pipeline rank on, another one changes neither the number in flight nor the passes
/// at both ends of the order: at most 1.5 per rank are in flight.
constexpr std::int64_t kSettledDepths = 4;

std::size_t at(std::int64_t index) {
    return static_cast<std::size_t>(index);
}

}  // namespace

/// Offloaded blocks take turns in a window of two places. The third block's forward waits until the first block is
/// copied, so that all copies but the last two lie between the first and the last of these forwards; and likewise in
/// the backward. What a block keeps beside its activations, its input and the gradient of its output, is not copied.
void AnalyticBounder::offload_activations(const Choice& choice, const Pipeline& pipeline, std::size_t stage,
                                          const std::vector<LayerCost>& sums) {
    const std::size_t begin = at(pipeline.first_block[stage] + 1);
    const std::size_t blocks = at(pipeline.first_block[stage + 1] + 1) - begin;
    const std::size_t count = choice.offload_layers < 0 ? blocks : std::min(blocks, at(choice.offload_layers));
    if (count == 0) return;
    ChunkSum& chunk = chunk_sums_[stage];
    const auto saved = [&](std::size_t from, std::size_t to) { return sums[to].saved_bytes - sums[from].saved_bytes; };
    const std::int64_t kept = 2 * sharding_.hidden_bytes(choice);
    const auto copied = [&](std::size_t from, std::size_t to) {
        return std::max<std::int64_t>(0, saved(from, to) - static_cast<std::int64_t>(to - from) * kept);
    };
    chunk.saved_bytes -= saved(begin, begin + count);
    chunk.window_bytes = static_cast<std::int64_t>(std::min<std::size_t>(2, count)) * copied(begin, begin + 1);
    if (request_.cluster.device.host_runs_compute) return;
    const auto copies_s = [&](std::size_t from, std::size_t to) { return sharding_.copy_s(copied(from, to)); };
    chunk.offloaded = static_cast<std::int64_t>(count);
    chunk.last_copy_s = copies_s(begin + count - 1, begin + count);
    // The copies of a pass beside what is computed after the first block's forward or before its backward.
    const LayerCost before = pipeline.has_embedding(stage) ? sums[1] : LayerCost{};
    const LayerCost &first = sums[begin], &second = sums[begin + 1];
    const double all = copies_s(begin, begin + count);
    // Backward of the layers that are not offloaded, which come first in it.
    const double rest_s = chunk.backward_s - before.backward_s - (sums[begin + count].backward_s - first.backward_s);
    chunk.excess_forward_s = all - (chunk.forward_s - before.forward_s - (second.forward_s - first.forward_s));
    chunk.excess_backward_s = all - (chunk.backward_s - before.backward_s - (second.backward_s - first.backward_s));
    if (count >= 3) {
        const double copies = copies_s(begin, begin + count - 2);
        const LayerCost& last = sums[begin + count - 1];
        const double forward_wait = std::max(0.0, copies - (last.forward_s - second.forward_s));
        const double backward_wait = std::max(0.0, copies - (last.backward_s - second.backward_s));
        chunk.forward_s += forward_wait;
        chunk.backward_s += backward_wait;
        chunk.excess_forward_s -= forward_wait;
        chunk.excess_backward_s -= backward_wait;
    }
    chunk.excess_backward_s = std::max(chunk.excess_backward_s, chunk.last_copy_s - rest_s);
}

/// Where a backward follows a forward, the blocks of both share the window: the first copy back, into the place of the
/// last block copied out, waits for that. So between the first block's forward and its backward lie the copies of both
/// passes, and also the forward's copies, one copy back, and the backward of the other offloaded blocks. If one pass
/// has an odd and the other an even number of blocks, and thus other places, one of these copies may lie before, or two
/// if the forward has a single block. A backward follows each forward but those that come first; the wait for the first
/// gradient may hide the first turn.
double AnalyticBounder::turning_s(const Choice& choice, const std::vector<std::size_t>& stages,
                                  const OrderFacts& facts) const {
    if (choice.offload_layers == 0 || choice.spreads_vocabulary() || !row_of(choice.schedule).has_rounds) return 0;
    const std::int64_t micro_batches = micro_batches_of(request_, choice);
    std::int64_t ahead = 0, odd = 0, even = 0, none = 0;  // passes
    for (const std::int64_t passes : facts.forwards_ahead) ahead += passes;
    const std::int64_t turns = micro_batches * choice.chunks - ahead;
    if (turns <= 0) return 0;
    constexpr double kNever = -std::numeric_limits<double>::infinity();
    bool has_single = false;
    double sum = 0, most_forward_s = kNever, most_backward_s = kNever, copy_s = 0;
    for (const std::size_t stage : stages) {
        const ChunkSum& chunk = chunk_sums_[stage];
        (chunk.offloaded == 0 ? none : chunk.offloaded % 2 == 0 ? even : odd) += micro_batches;
        if (chunk.offloaded == 0) continue;
        has_single |= chunk.offloaded == 1;
        sum += static_cast<double>(micro_batches) * (chunk.excess_forward_s + chunk.excess_backward_s);
        most_forward_s = std::max(most_forward_s, chunk.excess_forward_s);
        most_backward_s = std::max(most_backward_s, chunk.excess_backward_s);
        copy_s = std::max(copy_s, chunk.last_copy_s);
    }
    const double most_s = most_forward_s + most_backward_s;
    if (odd + even == 0 || most_s <= 0) return 0;
    const std::int64_t mixed = (has_single ? 2 : 1) * std::min(turns, 2 * std::min(odd, even));
    // Passes that offload nothing count so that no turn with one of them counts more than 0.
    const std::int64_t uncounted = none + ahead;
    return std::max(0.0, sum - static_cast<double>(uncounted) * most_s - static_cast<double>(mixed) * copy_s);
}

const std::vector<AnalyticBounder::OrderFacts>& AnalyticBounder::vocabulary_order_facts(const Choice& choice,
                                                                                        std::int64_t micro_batches) {
    const std::int64_t few = std::min(micro_batches, kSettledDepths * choice.pp);
    const auto [entry, fresh] = vocabulary_orders_.try_emplace({choice.vocabulary, choice.pp, few});
    if (!fresh) return entry->second;
    for (const auto& order : program::vocabulary_orders(choice.vocabulary, choice.pp, few)) {
        // Of the head's passes S and T, those before the first forward of the blocks, before their first backward, and
        // after their last backward.
        struct Passes {
            std::int64_t scores = 0, gradients = 0;
            [[nodiscard]] std::int64_t most() const { return std::max(scores, gradients); }
        } before, ahead, after;
        std::int64_t forwards = 0, backwards = 0, alive = 0, most_alive = 0, forwards_ahead = 0;
        for (const ComputeTask& task : order) {
            const bool is_forward = task.kind == ComputeTask::Kind::forward;
            if (task.chunk == program::kOutputChunk) {
                const auto count = [&](Passes& passes) { ++(is_forward ? passes.scores : passes.gradients); };
                if (forwards == 0) count(before);
                if (backwards == 0) count(ahead);
                if (backwards == few) count(after);
            } else if (task.chunk == program::ChunkIndex(0)) {
                ++(is_forward ? forwards : backwards);
                alive += is_forward ? 1 : -1;
                most_alive = std::max(most_alive, alive);
                if (backwards == 0) forwards_ahead = forwards;
            }
        }
        OrderFacts& facts = entry->second.emplace_back();
        facts.alive = {{most_alive, 0}};
        facts.forwards_ahead = {forwards_ahead};
        facts.vocabulary_ahead = ahead.most();
        facts.vocabulary_outside = before.most() + after.most();
    }
    return entry->second;
}

}  // namespace orrery::sim
