#include "sim/program/vocabulary.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

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

bool is_kind(const Step& step, OpKind kind) {
    const auto* op = std::get_if<Operator>(&step);
    return op != nullptr && op->kind == kind;
}
bool is_product(const Step& step) {
    const auto* op = std::get_if<Operator>(&step);
    return op != nullptr && op->is_matmul();
}
bool is_boundary(const Step& step, Boundary::Kind kind) {
    const auto* boundary = std::get_if<Boundary>(&step);
    return boundary != nullptr && boundary->kind == kind;
}

void rename(std::vector<Step>& steps, SlotIndex from, SlotIndex to) {
    for (Step& step : steps) {
        rename_reads(step, from, to);
        rename_writes(step, from, to);
    }
}

/// The layer of a whole head, cut where the vocabulary begins.
class HeadParts {
  public:
    explicit HeadParts(Layer head) : head_(std::move(head)) {
        const auto first = std::find_if(head_.forward.begin(), head_.forward.end(), is_product);
        ORRERY_CHECK(first != head_.forward.end(), "a head without a product");
        first_product_ = static_cast<std::size_t>(first - head_.forward.begin());
        normed_ = std::get<Operator>(*first).in[0];
        // The norm's are the steps that follow from dX.
        std::vector<bool> follows(head_.slots.size(), false);
        for (const Step& step : head_.backward) {
            if (is_kind(step, OpKind::linear_backward_input)) gradient_ = std::get<Operator>(step).out[0];
            const std::vector<SlotIndex> read = slots_read(step), written = slots_written(step);
            const auto from_gradient = [&](SlotIndex slot) { return follows[static_cast<std::size_t>(slot)]; };
            const bool norm = !std::holds_alternative<Boundary>(step) &&
                              !is_kind(step, OpKind::cross_entropy_correct) &&
                              std::any_of(read.begin(), read.end(), from_gradient);
            of_norm_.push_back(norm);
            if (gradient_ != kNoSlot) follows[static_cast<std::size_t>(gradient_)] = true;
            for (const SlotIndex slot : written) {
                if (norm) follows[static_cast<std::size_t>(slot)] = true;
            }
        }
    }

    Layer final_norm() {
        std::vector<Step> forward, backward;
        for (std::size_t i = 0; i < first_product_; ++i) {
            if (!is_kind(head_.forward[i], OpKind::load_targets)) forward.push_back(head_.forward[i]);
        }
        for (std::size_t i = 0; i < head_.backward.size(); ++i) {
            if (of_norm_[i]) backward.push_back(head_.backward[i]);
        }
        decl(normed_).role = SlotRole::hidden_out;
        rename(backward, gradient_, hidden_gradient());
        return finish(std::move(forward), std::move(backward));
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
        // What leads to dX, and what follows it: the weight's gradient, and what only that needs.
        std::vector<Step> gradients, products;
        const std::size_t last = last_writer_of_gradient();
        for (std::size_t i = 0; i < head_.backward.size(); ++i) {
            // dX is reduced to the last stage below.
            if (of_norm_[i] || std::holds_alternative<Boundary>(head_.backward[i])) continue;
            (i <= last ? gradients : products).push_back(head_.backward[i]);
        }
        decl(gradient_).role = SlotRole::saved;  // still under way when the pass ends, as what is gathered may be
        for (const Step& step : statistics) {
            for (const SlotIndex slot : slots_written(step)) {
                if (decl(slot).role == SlotRole::transient) decl(slot).role = SlotRole::saved;
            }
        }
        std::vector<Step> forward{broadcast_of(normed_, root, is_root)};
        append(forward, before);
        append(forward, statistics);
        append(forward, gathers);
        std::vector<Step> backward;
        std::vector<Step>& first = kind == VocabularyParallel::two_barriers ? backward : forward;
        if (kind != VocabularyParallel::one_barrier) append(first, loss);
        for (const Step& step : gradients) {
            // The statistics of the others come beside the product, whose result they correct.
            if (is_kind(step, OpKind::cross_entropy_correct)) append(first, loss);
            first.push_back(step);
        }
        first.push_back(reduction_of(gradient_, root, is_root));
        append(kind == VocabularyParallel::interlaced ? forward : backward, products);
        return finish(std::move(forward), std::move(backward));
    }

  private:
    static void append(std::vector<Step>& to, const std::vector<Step>& steps) {
        to.insert(to.end(), steps.begin(), steps.end());
    }
    SlotDecl& decl(SlotIndex slot) { return head_.slots[static_cast<std::size_t>(slot)]; }
    [[nodiscard]] std::size_t last_writer_of_gradient() const {
        std::size_t last = 0;
        for (std::size_t i = 0; i < head_.backward.size(); ++i) {
            if (!std::holds_alternative<Boundary>(head_.backward[i]) && writes(head_.backward[i], gradient_)) last = i;
        }
        return last;
    }
    SlotIndex hidden_gradient() {
        for (std::size_t i = 0; i < head_.slots.size(); ++i) {
            if (head_.slots[i].role == SlotRole::hidden_gradient) return static_cast<SlotIndex>(i);
        }
        throw_bug(__FILE__, __LINE__, "hidden_gradient", "a head without the gradient of its input");
    }
    SlotIndex clone(SlotIndex slot, SlotRole role, const std::string& suffix) {
        SlotDecl copy = decl(slot);
        copy.role = role;
        copy.name += suffix;
        head_.slots.push_back(std::move(copy));
        return static_cast<SlotIndex>(head_.slots.size() - 1);
    }
    Step broadcast_of(SlotIndex slot, std::int64_t root, bool is_root) {
        const SlotIndex from = is_root ? clone(slot, SlotRole::hidden_out, ".sent") : slot;
        return Boundary{.kind = Boundary::Kind::broadcast,
                        .axis = Boundary::Axis::pp,
                        .in = from,
                        .out = slot,
                        .elements = decl(slot).elements(),
                        .root = static_cast<std::int32_t>(root),
                        .dtype = decl(slot).dtype};
    }
    Step reduction_of(SlotIndex slot, std::int64_t root, bool is_root) {
        return Boundary{.kind = Boundary::Kind::reduce_to_root,
                        .axis = Boundary::Axis::pp,
                        .in = slot,
                        .out = is_root ? hidden_gradient() : slot,
                        .elements = decl(slot).elements(),
                        .root = static_cast<std::int32_t>(root),
                        .dtype = decl(slot).dtype};
    }
    Layer finish(std::vector<Step> forward, std::vector<Step> backward) {
        for (std::vector<Step>* steps : {&forward, &backward}) {
            for (Step& step : *steps) {
                if (auto* boundary = std::get_if<Boundary>(&step)) boundary->axis = Boundary::Axis::pp;
            }
        }
        // What S writes and T reads waits in a frame.
        for (const Step& step : backward) {
            for (const SlotIndex slot : slots_read(step)) {
                const bool earlier = std::any_of(forward.begin(), forward.end(), [&](const Step& other) {
                    const std::vector<SlotIndex> written = slots_written(other);
                    return std::find(written.begin(), written.end(), slot) != written.end();
                });
                if (earlier && decl(slot).role == SlotRole::transient) decl(slot).role = SlotRole::saved;
            }
        }
        head_.forward = std::move(forward);
        head_.backward = std::move(backward);
        return head_;
    }

    Layer head_;
    std::size_t first_product_ = 0;
    std::vector<bool> of_norm_;  // by backward step
    SlotIndex normed_ = kNoSlot, gradient_ = kNoSlot;
};

/// The embedding: what comes after the reduction, and before the broadcast of the gradient, is the first stage's alone.
Layer input_layer(Layer embedding, bool root) {
    const auto slot_of = [&](SlotRole role) {
        for (std::size_t i = 0; i < embedding.slots.size(); ++i) {
            if (embedding.slots[i].role == role) return static_cast<SlotIndex>(i);
        }
        throw_bug(__FILE__, __LINE__, "input_layer", "an embedding without a hidden state");
    };
    const SlotIndex gradient = slot_of(SlotRole::hidden_gradient);
    const auto last = std::find_if(embedding.forward.begin(), embedding.forward.end(),
                                   [](const Step& step) { return is_boundary(step, Boundary::Kind::reduce); });
    ORRERY_CHECK(last != embedding.forward.end(), "an embedding that nobody reduces");
    auto& reduction = std::get<Boundary>(*last);
    reduction.kind = Boundary::Kind::reduce_to_root;
    reduction.axis = Boundary::Axis::pp;
    const auto lookup = std::find_if(embedding.backward.begin(), embedding.backward.end(),
                                     [](const Step& step) { return is_kind(step, OpKind::embedding_backward); });
    ORRERY_CHECK(lookup != embedding.backward.end(), "an embedding without a gradient");
    const SlotDecl& decl = embedding.slots[static_cast<std::size_t>(gradient)];
    const Boundary broadcast{.kind = Boundary::Kind::broadcast,
                             .axis = Boundary::Axis::pp,
                             .in = gradient,
                             .out = gradient,
                             .elements = decl.elements(),
                             .dtype = decl.dtype};
    if (root) {
        embedding.backward.insert(lookup, broadcast);
        return embedding;
    }
    embedding.forward.erase(last + 1, embedding.forward.end());
    embedding.backward = {Step(broadcast), *lookup};
    for (SlotDecl& slot : embedding.slots) {
        if (slot.role == SlotRole::hidden_gradient) slot.role = SlotRole::transient;
        if (slot.role == SlotRole::hidden_out) slot.role = SlotRole::saved;  // still under way when the pass ends
    }
    return embedding;
}

}  // namespace

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

namespace {

Layer part_of_layer(const Plan& plan, const models::ModelSpec& model, const models::LayerContext& spread,
                    VocabularyPart part, bool root) {
    switch (part) {
        case VocabularyPart::final_norm:
            return HeadParts(models::build_layer(model, models::LayerKind::head, spread)).final_norm();
        case VocabularyPart::output:
            return HeadParts(models::build_layer(model, models::LayerKind::head, spread))
                .output(plan.parallelism.vocabulary_parallel, plan.parallelism.pp - 1, root);
        case VocabularyPart::input:
            return input_layer(models::build_layer(model, models::LayerKind::embedding, spread), root);
    }
    throw_bug(__FILE__, __LINE__, "VocabularyPart", "unknown part");
}

}  // namespace

Layer vocabulary_layer(const Plan& plan, const models::LayerContext& context, VocabularyPart part, bool root) {
    const models::LayerContext spread = vocabulary_context(plan, context);
    // Widths of blocks are not cut over pp, and the checks of a layer's builder are theirs.
    models::ModelSpec model = plan.model;
    model.heads = model.kv_heads = spread.tp_degree;
    model.ffn_hidden = spread.tp_degree;
    model.moe = {};
    model.latent = {};
    Layer layer = part_of_layer(plan, model, spread, part, root);
    for (SlotDecl& slot : layer.slots) slot.over_stages = slot.shard == models::ShardDim::rows;
    return layer;
}

std::vector<std::vector<ComputeTask>> vocabulary_orders(VocabularyParallel kind, std::int64_t ranks,
                                                        std::int64_t micro_batches) {
    using Kind = ComputeTask::Kind;
    const std::int64_t barriers = kind == VocabularyParallel::two_barriers  ? 2
                                  : kind == VocabularyParallel::one_barrier ? 1
                                                                            : 0;
    const auto p = static_cast<std::size_t>(ranks);
    const auto m = micro_batches;
    std::vector<std::vector<ComputeTask>> blocks(p), orders(p);
    for (std::size_t r = 0; r < p; ++r) {
        const std::int64_t warm_up = std::min(m, ranks - 1 - static_cast<std::int64_t>(r) + barriers);
        const auto push = [&](Kind what, std::int64_t i) {
            blocks[r].push_back({.kind = what, .micro_batch = static_cast<std::int32_t>(i)});
        };
        for (std::int64_t i = 0; i < warm_up; ++i) push(Kind::forward, i);
        for (std::int64_t i = 0; i + warm_up < m; ++i) {
            push(Kind::forward, warm_up + i);
            push(Kind::backward, i);
        }
        for (std::int64_t i = m - warm_up; i < m; ++i) push(Kind::backward, i);
    }
    std::vector<std::size_t> next(p, 0);
    std::vector<std::int64_t> forwards(p, 0), backwards(p, 0);
    std::int64_t looked_up = 0, scored = 0, corrected = 0, spread = 0;  // passes of the vocabulary that are listed
    const auto everywhere = [&](Kind what, std::int32_t chunk, std::int64_t& count) {
        for (auto& order : orders) {
            order.push_back({.kind = what, .chunk = chunk, .micro_batch = static_cast<std::int32_t>(count)});
        }
        ++count;
    };
    const bool has_correction = kind != VocabularyParallel::interlaced;
    const auto list_vocabulary = [&] {
        // One lookup ahead of the first stage's forwards.
        while (looked_up < m && looked_up < forwards[0] + 2) everywhere(Kind::forward, kInputChunk, looked_up);
        // T follows one S later, so that its barrier has a computation to hide under.
        const bool drains = forwards[p - 1] == m && scored == m;
        if (has_correction && (corrected + 1 < scored || (drains && corrected < scored))) {
            everywhere(Kind::backward, kOutputChunk, corrected);
        }
        if (scored < forwards[p - 1]) everywhere(Kind::forward, kOutputChunk, scored);
        // The last one leaves the gradients of the embedding complete, to which T adds where the head is tied to it.
        const bool is_last = spread + 1 == m;
        if (spread < backwards[0] && (!is_last || !has_correction || corrected == m)) {
            everywhere(Kind::backward, kInputChunk, spread);
        }
    };
    const auto ready_backward = [&](std::size_t r, std::int64_t i) {
        if (r + 1 < p) return backwards[r + 1] > i;
        return (kind == VocabularyParallel::two_barriers ? corrected : scored) > i;
    };
    for (bool moved = true; moved;) {
        list_vocabulary();
        moved = false;
        const std::vector<std::int64_t> forwards_before = forwards, backwards_before = backwards;
        for (std::size_t r = 0; r < p; ++r) {
            if (next[r] == blocks[r].size()) continue;
            const ComputeTask& task = blocks[r][next[r]];
            const std::int64_t i = task.micro_batch;
            const bool ready = task.kind == Kind::forward
                                   ? (r == 0 ? looked_up > i : forwards_before[r - 1] > i)
                                   : (r + 1 < p ? backwards_before[r + 1] > i : ready_backward(r, i));
            if (!ready) continue;
            orders[r].push_back(task);
            ++(task.kind == Kind::forward ? forwards : backwards)[r];
            ++next[r];
            moved = true;
        }
        moved = moved || scored < m || spread < m || (has_correction && corrected < m);
    }
    return orders;
}

}  // namespace orrery::program
