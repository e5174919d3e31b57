#include "models/layer.h"

#include <algorithm>

#include "core/enum_names.h"
#include "core/error.h"
#include "core/units.h"
#include "models/layer_parts.h"

namespace orrery::models {

std::string_view name_of(LayerKind kind) {
    static constexpr auto kNames = name_table<LayerKind::head>({"embedding", "block", "expert_block", "head"});
    return kNames[kind];
}

std::int64_t SlotDecl::elements() const {
    std::int64_t product = 1;
    for (std::int64_t extent : shape) product = checked_product(product, extent);
    return product;
}

std::int64_t SlotDecl::bytes() const {
    if (most_rows > 0 && !shape.empty() && shape.front() > 0) {
        return checked_product(checked_product(elements() / shape.front(), most_rows), size_of(dtype));
    }
    return checked_product(elements(), size_of(dtype));
}

std::int64_t padded_vocabulary(const ModelSpec& model, std::int64_t multiple, std::int64_t tp_degree) {
    const std::int64_t unit = checked_product(multiple, tp_degree);
    return checked_product((model.vocab + unit - 1) / unit, unit);
}

namespace {

void check_divides(const ModelSpec& model, const char* key, std::int64_t value, std::int64_t degree, const char* what) {
    if (value % degree != 0) {
        throw InputError(model.name, key, std::to_string(value),
                         std::string("a multiple of ") + what + " " + std::to_string(degree));
    }
}

void check_tensor_parallel(const ModelSpec& model, LayerKind layer, const LayerContext& context) {
    const std::int64_t t = context.tp_degree;
    constexpr const char* kDegree = "the tensor-parallel degree";
    check_divides(model, "heads", model.heads, t, kDegree);
    // With fewer key/value heads than ranks, each rank holds a copy of one.
    if (t > model.kv_heads) {
        if (t % model.kv_heads != 0) {
            throw InputError(model.name, "kv_heads", std::to_string(model.kv_heads),
                             "a divisor or a multiple of the tensor-parallel degree " + std::to_string(t));
        }
    } else {
        check_divides(model, "kv_heads", model.kv_heads, t, kDegree);
    }
    if (!model.has_experts() || layer == LayerKind::block) {  // a model with experts may have no dense MLP
        check_divides(model, "ffn_hidden", model.ffn_hidden, t, kDegree);
    }
    if (context.sequence_parallel && context.sequence % (t * context.cp_degree) != 0) {
        throw InputError(model.name, "sequence_length", std::to_string(context.sequence),
                         "a multiple of the tensor-parallel degree (times the context-parallel degree) with sequence "
                         "parallelism");
    }
}

void check_context_parallel(const ModelSpec& model, const LayerContext& context) {
    const std::int64_t c = context.cp_degree;
    if (c == 1) return;
    const bool ulysses = context.context_parallel == ContextParallel::ulysses;
    const std::int64_t unit = ulysses || !model.causal ? c : 2 * c;  // two chunks a rank balance the causal work
    if (context.sequence % unit != 0) {
        throw InputError(
            model.name, "sequence_length", std::to_string(context.sequence),
            "a multiple of " + std::to_string(unit) + " with " + std::to_string(c) + " context-parallel ranks");
    }
    const std::string kind(name_of(context.context_parallel));
    if (!ulysses && !context.implementation.kernels.fused_attention) {
        throw InputError(model.name, "context_parallel", kind,
                         "ulysses with an implementation whose attention is not fused (kernels/fused_attention)");
    }
    if (context.context_parallel == ContextParallel::ring && model.sliding_window > 0 &&
        model.sliding_window < context.sequence) {
        throw InputError(model.name, "context_parallel", kind, "all_gather or ulysses with a sliding window");
    }
    if (!ulysses) return;
    const std::int64_t heads = model.heads / context.tp_degree;
    const std::int64_t kv_heads = std::max<std::int64_t>(model.kv_heads / context.tp_degree, 1);
    check_divides(model, "heads", heads, c, "(a tensor-parallel rank's share) the context-parallel degree");
    if (kv_heads % c != 0 && c % kv_heads != 0) {
        throw InputError(model.name, "kv_heads", std::to_string(kv_heads),
                         "(a tensor-parallel rank's share) a divisor or a multiple of the context-parallel degree " +
                             std::to_string(c));
    }
}

void check_experts(const ModelSpec& model, const LayerContext& context) {
    if (!model.has_experts())
        throw InputError(model.name, "moe/expert_count", "0", "at least 1 for a layer of experts");
    check_divides(model, "moe/expert_count", model.moe.expert_count, context.ep_degree, "the expert-parallel degree");
    check_divides(model, "moe/expert_ffn_hidden", model.moe.expert_ffn_hidden, context.etp_degree,
                  "the expert-tensor-parallel degree");
    check_divides(model, "moe/shared_ffn_hidden", model.moe.shared_ffn_hidden, context.tp_degree,
                  "the tensor-parallel degree");
    if (model.parallel_residual || model.post_norm) {
        throw InputError(model.name, model.post_norm ? "post_norm" : "parallel_residual", "true",
                         "false in a model with experts");
    }
    // Without it, every tensor-parallel rank would send the same tokens; Megatron refuses it too.
    if (context.tp_degree > 1 && !context.sequence_parallel) {
        throw InputError(model.name, "sequence_parallel", "false", "true with experts and tensor parallelism");
    }
}

void check_block(const ModelSpec& model) {
    if (model.has_latent_attention() && model.parallel_residual && model.shared_input_norm) {
        throw InputError(model.name, "shared_input_norm", "true", "false with latent attention");
    }
}

}  // namespace

Layer build_layer(const ModelSpec& model, LayerKind kind, const LayerContext& context) {
    ORRERY_CHECK(
        context.padded_vocab >= model.vocab && context.padded_vocab % context.tp_degree == 0,
        "the padded vocabulary is smaller than the vocabulary or not a multiple of the tensor-parallel degree");
    check_tensor_parallel(model, kind, context);
    check_context_parallel(model, context);
    if (model.position == PositionKind::learned && context.sequence > model.max_positions) {
        throw InputError(model.name, "sequence_length", std::to_string(context.sequence),
                         "at most max_positions = " + std::to_string(model.max_positions));
    }
    switch (kind) {
        case LayerKind::embedding:
            return build_embedding(model, context);
        case LayerKind::block:
            check_block(model);
            return build_block(model, context, false);
        case LayerKind::expert_block:
            check_block(model);
            check_experts(model, context);
            return build_block(model, context, true);
        case LayerKind::head:
            return build_head(model, context);
    }
    throw_bug(__FILE__, __LINE__, "LayerKind", "unknown layer kind");
}

}  // namespace orrery::models
