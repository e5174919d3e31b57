// What AnalyticBounder knows of offloaded activations and of a vocabulary that is sharded over the stages.
#include <algorithm>

#include "core/index.h"
#include "sim/planner/analytic_bounds.h"
#include "sim/program/vocabulary.h"

namespace orrery::sim {

namespace {

using program::ChunkIndex;
using program::ComputeTask;

/// From this many micro-batches per pipeline rank on, another one changes neither the number in flight nor the passes
/// at both ends of the order: at most 1.5 per rank are in flight.
constexpr std::int64_t kSteadyDepths = 4;

}  // namespace

/// Offloaded blocks take turns in a window of two places, so that the third block's forward waits until the first block
/// is copied, and the third block to be copied back waits for the first one's backward. A block's input stays on the
/// device.
void AnalyticBounder::offload_activations(const Choice& choice, const Pipeline& pipeline, std::size_t stage,
                                          const LayerCosts& costs) {
    const std::size_t begin = at(pipeline.first_block(stage) + 1);
    const std::size_t blocks = at(pipeline.first_block(stage + 1) + 1) - begin;
    const std::size_t count = choice.offload_layers < 0 ? blocks : std::min(blocks, at(choice.offload_layers));
    if (count == 0) return;
    ChunkSum& chunk = chunk_sums_[stage];
    const auto copied = [&](std::size_t from, std::size_t to) {
        return costs.total(&LayerCost::saved_bytes, from, to) - costs.total(&LayerCost::input_bytes, from, to);
    };
    chunk.saved_bytes -= copied(begin, begin + count);
    chunk.window_bytes = static_cast<std::int64_t>(std::min<std::size_t>(2, count)) * copied(begin, begin + 1);
    if (request_.cluster.device.host_runs_compute) return;
    chunk.copies.offloads = true;
    const LayerCost before = pipeline.has_embedding(stage) ? costs.layer(0) : LayerCost{};
    const auto block = [&](std::size_t i) -> const LayerCost& { return costs.layer(begin + i); };
    const auto of_offloaded = [&](double LayerCost::*cost) { return costs.total(cost, begin, begin + count); };
    std::vector<double>& copy_s = copy_seconds_;
    copy_s.clear();
    std::int64_t last_bytes = -1;
    for (std::size_t i = 0; i < count; ++i) {
        const std::int64_t bytes = copied(begin + i, begin + i + 1);
        copy_s.push_back(bytes == last_bytes ? copy_s.back() : sharding_.copy_s(bytes));
        last_bytes = bytes;
    }
    // The time from the begin of a forward.
    double pass = before.forward_s, copies = 0, one_ago = 0, two_ago = 0;  // ends, also of the copies before
    for (std::size_t i = 0; i < count; ++i) {
        pass = std::max(pass, two_ago) + block(i).forward_s;
        copies = std::max(copies, pass) + copy_s[i];
        two_ago = one_ago;
        one_ago = copies;
    }
    const double after_s = chunk.forward_s - before.forward_s - of_offloaded(&LayerCost::forward_s);
    chunk.copies.forward_waits_s = pass + after_s - chunk.forward_s;
    chunk.forward_s = pass + after_s;
    chunk.copies.after_s = std::max(0.0, copies - chunk.forward_s);
    // The time from the begin of a backward, if the first two blocks are back before it or are copied from then on.
    const auto rest_s = [&](double wide) {
        return chunk.backward_s - before.backward_s - of_offloaded(&LayerCost::backward_s) +
               wide * (chunk.wide_gradients_s - before.wide_gradients_s - of_offloaded(&LayerCost::wide_gradients_s));
    };
    // `wide`: 1 with gradients of their full type, else 0.
    const auto backward_from = [&](bool copies_first, double wide) {
        double end = rest_s(wide), back = 0, place_free = 0, other_free = 0;
        for (std::size_t i = count; i-- > 0;) {
            const bool is_early = i + 2 >= count;
            if (!is_early || copies_first) back = std::max(back, place_free) + copy_s[i];
            end = std::max(end, back) + block(i).backward_s + wide * block(i).wide_gradients_s;
            place_free = other_free;
            other_free = end;
        }
        return end + before.backward_s + wide * before.wide_gradients_s;
    };
    const double narrow = backward_from(false, 0), wide = backward_from(false, 1);
    chunk.copies.before_s = std::min(backward_from(true, 0) - narrow, backward_from(true, 1) - wide);
    chunk.copies.uncopied_s = std::max(0.0, rest_s(1) - copy_s.back());
    chunk.copies.backward_waits_s = narrow - chunk.backward_s;
    chunk.backward_s = narrow;
    chunk.wide_gradients_s = wide - narrow;
}

/// Before the next pass, a forward ends all its copies; a backward begins its copies when the pass before it has ended.
/// Between a forward and a backward, what the backward computes before it needs them hides some of the copies. Passes
/// that offload nothing may hide the copies of the passes before and after them.
double AnalyticBounder::copy_wait_s(const Choice& choice, const std::vector<std::size_t>& stages,
                                    const OrderFacts& facts) const {
    const auto micro_batches = static_cast<double>(micro_batches_of(request_, choice));
    double sum = 0, without = 0, vocabulary_s = 0, longest_after_s = 0, longest_before_s = 0, longest_hidden_s = 0;
    for (const std::size_t stage : stages) {
        const ChunkSum& chunk = chunk_sums_[stage];
        if (!chunk.copies.offloads) without += micro_batches;
        vocabulary_s += micro_batches * chunk.vocabulary_s;
        sum += micro_batches * (chunk.copies.after_s + chunk.copies.before_s);
        longest_after_s = std::max(longest_after_s, chunk.copies.after_s);
        longest_before_s = std::max(longest_before_s, chunk.copies.before_s);
        longest_hidden_s = std::max(longest_hidden_s, chunk.copies.uncopied_s);
    }
    double ahead = 0;
    for (const std::int64_t passes : facts.forwards_ahead) ahead += static_cast<double>(passes);
    const double turns = micro_batches * static_cast<double>(choice.chunks) - ahead + 1;
    return std::max(0.0, sum - vocabulary_s - without * (longest_after_s + longest_before_s) -
                             turns * std::min(longest_after_s, longest_hidden_s));
}

/// Part of copy_wait_s that the wait for the first gradient may hide.
double AnalyticBounder::copy_wait_ahead_s(const std::vector<std::size_t>& stages, const OrderFacts& facts) const {
    double sum = 0, longest_before_s = 0;
    for (const ChunkIndex c : facts.forwards_ahead.indices()) {
        const ChunkSum& chunk = chunk_sums_[stages[c.position()]];
        sum += static_cast<double>(facts.forwards_ahead[c]) * chunk.copies.after_s;
        longest_before_s = std::max(longest_before_s, chunk.copies.before_s);
    }
    return sum + longest_before_s;
}

const std::vector<AnalyticBounder::OrderFacts>& AnalyticBounder::vocabulary_order_facts(const Choice& choice,
                                                                                        std::int64_t micro_batches) {
    const std::int64_t few = std::min(micro_batches, kSteadyDepths * choice.pp);
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
