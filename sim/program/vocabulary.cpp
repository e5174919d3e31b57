#include "sim/program/vocabulary.h"

#include <algorithm>
#include <compare>
#include <set>
#include <utility>

#include "core/error.h"
#include "sim/program/schedule_orders.h"
#include "sim/program/step_slots.h"

namespace orrery::program {
namespace {

using models::Boundary;
using models::kNoSlot;
using models::Layer;
using models::Operator;
using models::OpKind;
using models::SlotDecl;
using models::SlotIndex;
using models::SlotRole;
using models::Step;

bool is_reduction(const Step& step) {
    const auto* boundary = std::get_if<Boundary>(&step);
    return boundary != nullptr && boundary->kind == Boundary::Kind::reduce;
}

/// A communication of the whole slot over the stages.
Boundary communication(Boundary::Kind kind, const Layer& layer, SlotIndex slot) {
    return {.kind = kind,
            .axis = Boundary::Axis::pp,
            .in = slot,
            .out = slot,
            .elements = layer.slots[slot].elements(),
            .dtype = layer.slots[slot].dtype};
}

SlotIndex hidden_gradient_of(const Layer& layer) {
    const auto found = std::ranges::find(layer.slots, SlotRole::hidden_gradient, &SlotDecl::role);
    ORRERY_CHECK(found != layer.slots.end(), "a layer without the gradient of its hidden state");
    return SlotIndex::of(found - layer.slots.begin());
}

/// Divides the layer of a complete head into the final norm and the part with the vocabulary.
class HeadParts {
  public:
    explicit HeadParts(Layer head) : head_(std::move(head)) {
        const auto first = std::find_if(head_.forward.begin(), head_.forward.end(), is_matmul);
        ORRERY_CHECK(first != head_.forward.end(), "a head without a product");
        first_product_ = static_cast<std::size_t>(first - head_.forward.begin());
        normed_ = std::get<Operator>(*first).in[0];
        // The norm's backward steps are those that depend on dX.
        std::set<SlotIndex> follows;
        for (const Step& step : head_.backward) {
            if (std::holds_alternative<Boundary>(step)) continue;  // output() reduces dX to the last stage instead
            if (is_kind(step, OpKind::linear_backward_input)) gradient_ = std::get<Operator>(step).out[0];
            const bool of_norm = !is_kind(step, OpKind::cross_entropy_correct) &&
                                 std::ranges::any_of(follows, [&](SlotIndex slot) { return reads(step, slot); });
            (of_norm ? norm_backward_ : output_backward_).push_back(step);
            if (gradient_ != kNoSlot) follows.insert(gradient_);
            for (const SlotIndex slot : slots_written(step)) {
                if (of_norm) follows.insert(slot);
            }
        }
    }

    Layer final_norm() {
        std::vector<Step> forward;
        for (std::size_t i = 0; i < first_product_; ++i) {
            if (!is_kind(head_.forward[i], OpKind::load_targets)) forward.push_back(head_.forward[i]);
        }
        decl(normed_).role = SlotRole::hidden_out;
        const SlotIndex hidden = hidden_gradient_of(head_);
        for (Step& step : norm_backward_) rename(step, gradient_, hidden);
        return finish(std::move(forward), std::move(norm_backward_));
    }

    Layer output(VocabularyParallel kind, std::int64_t root, bool is_root) {
        std::vector<Step> before, statistics, gathers, loss;
        for (std::size_t i = 0; i < head_.forward.size(); ++i) {
            const Step& step = head_.forward[i];
            if (i < first_product_) {
                if (is_kind(step, OpKind::load_targets)) before.push_back(step);
            } else if (std::holds_alternative<Boundary>(step)) {
                gathers.push_back(step);
            } else if (is_kind(step, OpKind::cross_entropy_loss)) {
                loss.push_back(step);
            } else {
                statistics.push_back(step);
            }
        }
        // The steps up to dX, and those after it, which compute the weight's gradient.
        const auto products = std::find_if(output_backward_.rbegin(), output_backward_.rend(), [&](const Step& step) {
                                  return writes(step, gradient_);
                              }).base();
        decl(gradient_).role = SlotRole::saved;  // its reduction may be in flight when the pass ends
        keep_written(statistics);
        // With one barrier other passes run before the statistics are combined.
        if (kind == VocabularyParallel::one_barrier) keep_written(gathers);
        // Interlaced, X is a transient, whose memory earlier passes use, so that the broadcast must wait for them.
        const bool receives = !is_root && kind != VocabularyParallel::interlaced;
        std::vector<Step> forward{broadcast_normed(root, is_root, receives)};
        append(forward, before);
        append(forward, statistics);
        append(forward, gathers);
        std::vector<Step> backward;
        std::vector<Step>& first = kind == VocabularyParallel::two_barriers ? backward : forward;
        if (kind != VocabularyParallel::one_barrier) append(first, loss);
        for (auto step = output_backward_.begin(); step != products; ++step) {
            // The statistics are combined only here, so that their gather overlaps the GEMM whose result they correct.
            if (is_kind(*step, OpKind::cross_entropy_correct)) append(first, loss);
            first.push_back(*step);
        }
        first.push_back(reduce_gradient(root, is_root));
        append(kind == VocabularyParallel::interlaced ? forward : backward, {products, output_backward_.end()});
        return finish(std::move(forward), std::move(backward));
    }

  private:
    static void append(std::vector<Step>& to, const std::vector<Step>& steps) {
        to.insert(to.end(), steps.begin(), steps.end());
    }
    SlotDecl& decl(SlotIndex slot) { return head_.slots[slot]; }
    void keep(SlotIndex slot) {
        if (decl(slot).role == SlotRole::transient) decl(slot).role = SlotRole::saved;
    }
    void keep_written(const std::vector<Step>& steps) {
        for (const Step& step : steps) {
            for (const SlotIndex slot : slots_written(step)) keep(slot);
        }
    }
    Step broadcast_normed(std::int64_t root, bool is_root, bool receives) {
        Boundary broadcast = communication(Boundary::Kind::broadcast, head_, normed_);
        if (is_root) {
            SlotDecl sent = decl(normed_);
            sent.role = SlotRole::hidden_out;
            sent.name += ".sent";
            broadcast.in = head_.slots.add(std::move(sent));
        }
        broadcast.root = static_cast<std::int32_t>(root);
        broadcast.receives = receives;
        return broadcast;
    }
    Step reduce_gradient(std::int64_t root, bool is_root) {
        Boundary reduction = communication(Boundary::Kind::reduce_to_root, head_, gradient_);
        if (is_root) reduction.out = hidden_gradient_of(head_);
        reduction.root = static_cast<std::int32_t>(root);
        return reduction;
    }
    Layer finish(std::vector<Step> forward, std::vector<Step> backward) {
        for (std::vector<Step>* steps : {&forward, &backward}) {
            for (Step& step : *steps) {
                if (auto* boundary = std::get_if<Boundary>(&step)) boundary->axis = Boundary::Axis::pp;
            }
        }
        // Values that S writes and T reads are kept in a frame.
        for (const Step& step : backward) {
            for (const SlotIndex slot : slots_read(step)) {
                if (writes(forward, slot)) keep(slot);
            }
        }
        head_.forward = std::move(forward);
        head_.backward = std::move(backward);
        return head_;
    }

    Layer head_;
    std::size_t first_product_ = 0;
    std::vector<Step> norm_backward_, output_backward_;
    SlotIndex normed_ = kNoSlot, gradient_ = kNoSlot;
};

/// The embedding. Only the first stage has the steps after the reduction of the lookups and those before the broadcast
/// of the gradient.
Layer input_layer(Layer embedding, bool root) {
    const SlotIndex gradient = hidden_gradient_of(embedding);
    const auto last = std::find_if(embedding.forward.begin(), embedding.forward.end(), is_reduction);
    ORRERY_CHECK(last != embedding.forward.end(), "an embedding without a reduction");
    auto& reduction = std::get<Boundary>(*last);
    reduction.kind = Boundary::Kind::reduce_to_root;
    reduction.axis = Boundary::Axis::pp;
    const auto lookup = std::find_if(embedding.backward.begin(), embedding.backward.end(),
                                     [](const Step& step) { return is_kind(step, OpKind::embedding_backward); });
    ORRERY_CHECK(lookup != embedding.backward.end(), "an embedding without a gradient");
    Boundary broadcast = communication(Boundary::Kind::broadcast, embedding, gradient);
    broadcast.receives = !root;
    if (root) {
        const auto whole = std::find_if(std::make_reverse_iterator(lookup), embedding.backward.rend(),
                                        [&](const Step& step) { return writes(step, gradient); });
        embedding.backward.insert(whole.base(), broadcast);
        return embedding;
    }
    embedding.forward.erase(last + 1, embedding.forward.end());
    embedding.backward = {Step(broadcast), *lookup};
    for (SlotDecl& slot : embedding.slots) {
        // These slots need memory of their own: the gradient arrives while other passes use the transients, and the
        // reduction of the lookups may be in flight when the pass ends.
        const bool is_in_flight = slot.role == SlotRole::hidden_gradient || slot.role == SlotRole::hidden_out;
        if (is_in_flight) slot.role = SlotRole::saved;
    }
    return embedding;
}

/// The context for building these layers: the vocabulary is sharded over pp.
models::LayerContext vocabulary_context(const Plan& plan, models::LayerContext context) {
    context.tp_degree = plan.parallelism.pp;
    context.sequence_parallel = false;
    context.padded_vocab =
        models::padded_vocabulary(plan.model, plan.implementation.vocab_multiple, plan.parallelism.pp);
    context.tied_to_embedding = plan.model.tied_embeddings;  // each rank holds the same rows of both
    context.softmax_statistics = plan.parallelism.vocabulary_parallel == VocabularyParallel::one_barrier
                                     ? models::SoftmaxStatistics::corrected
                                     : models::SoftmaxStatistics::gathered;
    return context;
}

}  // namespace

Layer vocabulary_layer(const Plan& plan, const models::LayerContext& context, VocabularyPart part, bool root) {
    const models::LayerContext spread = vocabulary_context(plan, context);
    // build_layer checks that the widths of blocks divide by tp_degree, which is pp here. These widths are not used, so
    // they are set to values that pass.
    models::ModelSpec model = plan.model;
    model.heads = model.kv_heads = spread.tp_degree;
    model.ffn_hidden = spread.tp_degree;
    model.moe = {};
    model.latent = {};
    const bool is_input = part == VocabularyPart::input;
    Layer whole = models::build_layer(model, is_input ? models::LayerKind::embedding : models::LayerKind::head, spread);
    Layer layer =
        is_input ? input_layer(std::move(whole), root)
        : part == VocabularyPart::final_norm
            ? HeadParts(std::move(whole)).final_norm()
            : HeadParts(std::move(whole)).output(plan.parallelism.vocabulary_parallel, plan.parallelism.pp - 1, root);
    for (SlotDecl& slot : layer.slots) slot.over_stages = slot.shard == models::ShardDim::rows;
    return layer;
}

namespace {

/// Passes of a micro-batch on a rank: F and B of the blocks, of the output (S and T), and of the input.
constexpr std::int64_t kPasses = 6;

/// As in the authors' code (github.com/sail-sg/VocabularyParallelism, interlaced_schedule.py): all ranks take part in
/// each S, and between two S each rank computes one forward and one backward. Every other rank computes the forward
/// first, so that a micro-batch's forward passes two stages between two S. 1.5 times as many micro-batches are in
/// flight as with 1F1B.
class InterlacedOrder {
  public:
    InterlacedOrder(std::int64_t ranks, std::int64_t r, std::int64_t micro_batches)
        : p_(ranks), r_(r), m_(micro_batches), list_(kPasses * micro_batches) {}

    std::vector<ComputeTask> build() {
        const std::int64_t first_warm_up = std::min(p_ * 3 / 2, m_);
        const std::int64_t warm_up = std::min(p_ * 3 / 2 - r_, m_), cool_down = std::min(p_ - r_, m_);
        const std::int64_t waiting = std::max<std::int64_t>(0, warm_up - cool_down - (p_ - r_ - 1) / 2);
        const bool forward_first = (p_ - r_) % 2 == 0;
        while (looked_up_ < std::min(first_warm_up - warm_up + 1, m_)) look_up();
        while (forwards_ < warm_up) {
            if (looked_up_ < m_) look_up();
            forward();
        }
        while (scored_ < cool_down) score();
        const auto backward_and_score = [&](std::int64_t times) {
            for (std::int64_t i = 0; i < times; ++i) {
                backward();
                score();
            }
        };
        backward_and_score(waiting);
        while (forwards_ < m_) {
            if (forward_first) forward();
            backward();
            if (!forward_first) forward();
            score();
        }
        backward_and_score(m_ - scored_);
        while (backwards_ < m_) {
            backward();
            if (spread_ < m_) spread();
        }
        while (spread_ < m_) spread();
        return list_.take();
    }

  private:
    void forward() { list_.forward(forwards_++); }
    void backward() { list_.backward(backwards_++); }
    void look_up() { list_.forward(looked_up_++, kInputChunk); }
    void spread() { list_.backward(spread_++, kInputChunk); }
    /// S and the embedding's passes that are due with it, in the same order on every rank.
    void score() {
        list_.forward(scored_++, kOutputChunk);
        if (scored_ >= std::min(p_, m_) && looked_up_ < m_) look_up();
        const std::int64_t first_stage_lag = p_ + (p_ % 2 == 0 ? 1 : 0);
        if (scored_ > first_stage_lag) spread();
    }

    std::int64_t p_, r_, m_;
    TaskList list_;
    std::int64_t forwards_ = 0, backwards_ = 0, looked_up_ = 0, scored_ = 0, spread_ = 0;
};

/// 1F1B with additional warm-up forwards, one for each barrier. The vocabulary's passes are inserted in rounds, one for
/// each micro-batch, in the same order on every rank.
///
/// The place of a round on a rank follows from 1F1B's steady state, in which a forward takes 1, a backward takes 2, and
/// a round begins every 3 time units. The last rank computes round k right after its forward k, and its backward k -
/// barriers + 1 follows. The last rank needs the results of round k 3 units later. A rank d before the last ends its
/// forwards d units earlier, so its passes change at -d and 1 - d (modulo 3) after that moment. It takes the change
/// that is 1 or 2 units after, so that nobody waits for the inputs or the results of a round.
class BarrierOrder {
  public:
    BarrierOrder(VocabularyParallel kind, std::int64_t ranks, std::int64_t micro_batches)
        : ranks_(ranks), m_(micro_batches), barriers_(kind == VocabularyParallel::two_barriers ? 2 : 1) {
        list_rounds();
    }

    [[nodiscard]] std::vector<ComputeTask> of_rank(std::int64_t r) const {
        TaskList list(kPasses * m_);
        std::size_t round = 0;
        std::int64_t looked_up = 0;
        const auto look_up = [&](std::int64_t end) {
            for (; looked_up < end; ++looked_up) list.forward(looked_up, kInputChunk);
        };
        // The lookups for the forwards that the first rank computes after the next round. The first rank's own lookups
        // come one round later, when the other ranks' contributions to the sum have arrived.
        const auto add_round = [&] {
            const auto k = static_cast<std::int64_t>(round);
            if (r == 0) look_up(forwards_before(k + 1));
            list.append(rounds_[round]);
            if (r > 0) look_up(forwards_before(k + 2));
            ++round;
        };
        const auto rounds_at = [&](const Place& place) {
            while (round < rounds_.size() && place_of(static_cast<std::int64_t>(round), r) <= place) add_round();
        };
        const std::int64_t warm_up = warm_up_of(r);
        for (std::int64_t forwards = 1; forwards < m_ + warm_up; ++forwards) {
            // One lookup ahead of the first rank, which is r forwards ahead of this rank.
            look_up(std::min(r + 1 + forwards, forwards_before(1)));
            if (forwards <= m_) list.forward(forwards - 1);
            rounds_at({forwards, false});
            const std::int64_t backward = forwards - warm_up;
            if (backward >= 0) list.backward(backward);
            rounds_at({forwards, true});
        }
        while (round < rounds_.size()) add_round();
        return list.take();
    }

  private:
    /// A place in a rank's order: after `forwards` forwards of the blocks, before or after the backward that follows.
    /// `forwards` may exceed the number of micro-batches.
    struct Place {
        std::int64_t forwards = 0;
        bool after_backward = false;
        auto operator<=>(const Place&) const = default;
    };

    /// The number of forwards before the first backward.
    [[nodiscard]] std::int64_t warm_up_of(std::int64_t r) const { return ranks_ - r + barriers_; }

    [[nodiscard]] Place place_of(std::int64_t round, std::int64_t r) const {
        const std::int64_t before_last = ranks_ - 1 - r, warm_up = warm_up_of(r);
        const bool follows_forward = before_last == 0 || before_last % 3 == 2;
        const std::int64_t steady = round + 1 + before_last / 3 + (before_last % 3 == 2 ? 1 : 0);
        // During warm-up the forwards follow one another without backwards.
        const std::int64_t at_first = std::min(before_last + 1 + round, warm_up);
        return {std::max(steady, at_first), !follows_forward && steady >= warm_up};
    }
    /// The number of the first rank's forwards, or backwards, before its passes of the round.
    [[nodiscard]] std::int64_t forwards_before(std::int64_t round) const {
        return std::min(place_of(round, 0).forwards, m_);
    }
    [[nodiscard]] std::int64_t backwards_before(std::int64_t round) const {
        if (round < 0) return 0;
        const Place place = place_of(round, 0);
        const std::int64_t all = place.forwards - warm_up_of(0) + (place.after_backward ? 1 : 0);
        return std::clamp<std::int64_t>(all, 0, m_);
    }

    /// Each round begins with the passes that receive a broadcast, so that the broadcast does not queue behind the
    /// reductions of the round's other passes. The gradients that are broadcast belong to backwards that the first rank
    /// computed before the previous round.
    void list_rounds() {
        std::int64_t spread = 0;
        for (std::int64_t k = 0; spread < m_ || k <= m_; ++k) {
            TaskList round(0);
            // The last broadcast comes after the last T, because it completes the gradient of the embedding, to which T
            // adds if the head is tied to it.
            for (; spread < backwards_before(k - 1) && (spread + 1 < m_ || k > m_); ++spread) {
                round.backward(spread, kInputChunk);
            }
            if (k < m_) round.forward(k, kOutputChunk);
            if (k > 0 && k <= m_) round.backward(k - 1, kOutputChunk);
            rounds_.push_back(round.take());
        }
    }

    std::int64_t ranks_, m_, barriers_;
    std::vector<std::vector<ComputeTask>> rounds_;
};

}  // namespace

std::vector<std::vector<ComputeTask>> vocabulary_orders(VocabularyParallel kind, std::int64_t ranks,
                                                        std::int64_t micro_batches) {
    std::vector<std::vector<ComputeTask>> orders;
    if (kind == VocabularyParallel::interlaced) {
        for (std::int64_t r = 0; r < ranks; ++r) orders.push_back(InterlacedOrder(ranks, r, micro_batches).build());
    } else {
        const BarrierOrder barriers(kind, ranks, micro_batches);
        for (std::int64_t r = 0; r < ranks; ++r) orders.push_back(barriers.of_rank(r));
    }
    return orders;
}

}  // namespace orrery::program
