// Private to models/: the parts from which layers are assembled.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "models/layer_builder.h"

namespace orrery::models {

/// The core of attention, o from q, k and v, under any kind of context parallelism.
struct AttentionCore {
    AttentionShape shape;                 // of `qkv` before the Ulysses exchange
    std::int64_t projected_kv_heads = 0;  // before heads are repeated
    SlotIndex qkv = kNoSlot;              // saved: the input of both passes
    SlotIndex out = kNoSlot;              // for this rank's positions
    SlotIndex local_out = kNoSlot;        // ulysses: for this rank's heads and all positions; otherwise equal to `out`
    SlotIndex lse = kNoSlot;
    SlotIndex probabilities = kNoSlot, mask = kNoSlot, dropped = kNoSlot;  // unfused
};
/// The slot for the projection's q, k and v: saved, unless attention saves another form of them.
[[nodiscard]] SlotIndex attention_input(LayerBuilder& b, const AttentionShape& shape);
[[nodiscard]] AttentionCore attention_core_forward(LayerBuilder& b, const AttentionShape& shape, SlotIndex qkv,
                                                   bool fp8_output);
/// From the gradient of o to the gradient of the projection's output.
[[nodiscard]] SlotIndex attention_core_backward(LayerBuilder& b, const AttentionCore& core, SlotIndex out_gradient);

/// The projections of ordinary attention.
struct QkvProjection {
    AttentionShape shape;
    SlotIndex qkv = kNoSlot, raw = kNoSlot, head_stats = kNoSlot;
    SlotIndex q_norm = kNoSlot, k_norm = kNoSlot;
    std::vector<Product> products;  // qkv; or q and a replicated kv head; or q, k and v
};
[[nodiscard]] QkvProjection qkv_forward(LayerBuilder& b, const ColumnInput& input);
/// The arguments for column_backward of the input.
[[nodiscard]] std::vector<LayerBuilder::ColumnGradient> qkv_backward(LayerBuilder& b, const QkvProjection& projection,
                                                                     SlotIndex qkv_gradient);

/// The projections of multi-head latent attention. As in Megatron, the down-projections are replicated on the
/// tensor-parallel ranks and read the rank's own tokens; the latents are gathered for the up-projections.
struct LatentProjection {
    AttentionShape shape;
    SlotIndex qkv = kNoSlot;
    Operand down_input;
    Product q_down, q_up, kv_down, kv_up;  // without a query latent q_up reads the norm's output
    Norm q_norm, kv_norm;
    ColumnInput q_input, kv_input;
};
[[nodiscard]] LatentProjection latent_forward(LayerBuilder& b, SlotIndex normed);
/// Returns the gradient of `normed`.
[[nodiscard]] SlotIndex latent_backward(LayerBuilder& b, const LatentProjection& projection, SlotIndex qkv_gradient);

/// Attention from the norm's output to the partial sums of the output projection.
struct Attention {
    ColumnInput input;  // not with latent attention
    QkvProjection projection;
    LatentProjection latent;
    AttentionCore core;
    Operand out;  // input of the output product
    Product output;
    SlotIndex bias = kNoSlot;
};
/// `shared`: the common input of attention and MLP, if they have one.
[[nodiscard]] Attention attention_forward(LayerBuilder& b, SlotIndex normed, const std::string& norm_name,
                                          const ColumnInput* shared = nullptr);
/// Up to the gradient of q, k and v.
[[nodiscard]] SlotIndex attention_backward(LayerBuilder& b, const Attention& attention, BranchGradient& branch);
/// From there to the gradient of the norm's output, which is passed to `then`.
void attention_input_backward(LayerBuilder& b, const Attention& attention, SlotIndex qkv_gradient,
                              const std::function<void(SlotIndex)>& then);

/// An activation between two products. Gated: `in` holds gate and up side by side.
struct Activation {
    std::string name;
    SlotIndex in = kNoSlot, out = kNoSlot;
    SlotIndex gate = kNoSlot;  // silu(gate), if gating is not fused
    std::int64_t rows = 0, width = 0, most_rows = 0;
    ExpertRows experts;
};
[[nodiscard]] Activation activation_forward(LayerBuilder& b, const std::string& name, SlotIndex in, std::int64_t rows,
                                            std::int64_t width, bool fp8, std::int64_t most_rows = 0,
                                            ExpertRows experts = {});
/// Returns the gradient of `in`; without gating it overwrites `out_gradient`.
[[nodiscard]] SlotIndex activation_backward(LayerBuilder& b, const Activation& activation, SlotIndex out_gradient,
                                            const std::string& in_name);

/// A dense MLP from its input to its partial sums.
struct Mlp {
    std::string name;
    ColumnInput input;
    std::vector<Product> fc1;  // gate and up as one product or two
    Product fc2;
    Activation activation;
    Operand activated;  // input of fc2
    SlotIndex bias = kNoSlot;
};
struct MlpNames {
    std::string prefix = "mlp";
    std::int64_t ffn_hidden = 0;
    bool bias = false;
    BlockPart in = BlockPart::mlp_in, middle = BlockPart::activation, out = BlockPart::mlp_out;
};
[[nodiscard]] Mlp mlp_forward(LayerBuilder& b, const MlpNames& names, const ColumnInput& input);
/// Returns the arguments for column_backward of the input.
[[nodiscard]] std::vector<LayerBuilder::ColumnGradient> mlp_backward(LayerBuilder& b, const Mlp& mlp,
                                                                     BranchGradient& branch);

/// Routed and shared experts, from the norm's output to the operand of the residual sum.
struct Experts {
    SlotIndex normed = kNoSlot;
    std::int64_t sent_rows = 0, received_rows = 0, rows = 0;  // tokens times top_k; after dispatch; of the products
    std::int64_t most_received = 0, most_rows = 0;
    Product router, fc1, fc2;
    SlotIndex probabilities = kNoSlot, choices = kNoSlot;
    SlotIndex logits = kNoSlot;                                 // kept only if the router's backward pass needs them
    SlotIndex places = kNoSlot;                                 // row of each choice among the sent rows
    SlotIndex sent_counts = kNoSlot, arrived_counts = kNoSlot;  // for each expert; for local experts, by rank
    ExpertRows received;                                        // counts for the local experts, from all sources
    Operand in, activated;
    Activation activation;
    SlotIndex returned = kNoSlot;  // the experts' results, in the order of the sent rows
    bool has_shared = false;
    Mlp shared;
    Product shared_gate;
    SlotIndex shared_out = kNoSlot;
    SlotIndex shared_kept = kNoSlot, shared_scale = kNoSlot;  // with a gate: the value before scaling, and the gate
};
/// `result` receives the sum of all experts' results for this rank's tokens.
[[nodiscard]] Experts experts_forward(LayerBuilder& b, SlotIndex normed, const std::string& norm_name,
                                      SlotIndex& result);
/// From the gradient of the residual sum's operand to the gradient of the norm's output, which is passed to `then`.
void experts_backward(LayerBuilder& b, const Experts& experts, SlotIndex gradient,
                      const std::function<void(SlotIndex)>& then);

[[nodiscard]] Layer build_embedding(const ModelSpec& model, const LayerContext& context);
/// `experts`: with experts instead of the MLP.
[[nodiscard]] Layer build_block(const ModelSpec& model, const LayerContext& context, bool experts);
[[nodiscard]] Layer build_head(const ModelSpec& model, const LayerContext& context);

}  // namespace orrery::models
