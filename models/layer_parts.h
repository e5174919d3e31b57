// Private to models/: the parts that the layers are put together from.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "models/layer_builder.h"

namespace orrery::models {

/// Attention proper: o from q, k and v, under any kind of context parallelism.
struct AttentionCore {
    AttentionShape shape;                 // of `qkv` before heads are exchanged for positions
    std::int64_t projected_kv_heads = 0;  // before they are copied
    SlotIndex qkv = kNoSlot;              // saved: what each pass starts from
    SlotIndex out = kNoSlot;              // this rank's positions
    SlotIndex local_out = kNoSlot;        // ulysses: this rank's heads, of all positions; otherwise out
    SlotIndex lse = kNoSlot;
    SlotIndex probabilities = kNoSlot, mask = kNoSlot, dropped = kNoSlot;  // unfused
};
/// Where the projection writes q, k and v: saved, unless attention keeps another form of them.
[[nodiscard]] SlotIndex attention_input(LayerBuilder& b, const AttentionShape& shape);
[[nodiscard]] AttentionCore attention_core_forward(LayerBuilder& b, const AttentionShape& shape, SlotIndex qkv,
                                                   bool fp8_output);
/// The gradient of o -> that of what the projection wrote.
[[nodiscard]] SlotIndex attention_core_backward(LayerBuilder& b, const AttentionCore& core, SlotIndex out_gradient);

/// The projections of ordinary attention.
struct QkvProjection {
    AttentionShape shape;
    SlotIndex qkv = kNoSlot, raw = kNoSlot, head_stats = kNoSlot;
    SlotIndex q_norm = kNoSlot, k_norm = kNoSlot;
    std::vector<Product> products;  // q, k and v in one, q and the copy of a key/value head, or each apart
};
[[nodiscard]] QkvProjection qkv_forward(LayerBuilder& b, const ColumnInput& input);
/// What column_backward of the input then takes.
[[nodiscard]] std::vector<LayerBuilder::ColumnGradient> qkv_backward(LayerBuilder& b, const QkvProjection& projection,
                                                                     SlotIndex qkv_gradient);

/// The projections of multi-head latent attention. As in Megatron the down-projections are the same on every
/// tensor-parallel rank and read its own tokens; the latents are what is gathered for the up-projections.
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

/// Everything of attention between the norm and its partial sums.
struct Attention {
    ColumnInput input;  // not with latent attention
    QkvProjection projection;
    LatentProjection latent;
    AttentionCore core;
    Operand out;  // as the output product reads it
    Product output;
    SlotIndex bias = kNoSlot;
};
/// `shared`: the input that attention and MLP have in common.
[[nodiscard]] Attention attention_forward(LayerBuilder& b, SlotIndex normed, const std::string& norm_name,
                                          const ColumnInput* shared = nullptr);
/// Up to the gradient of q, k and v.
[[nodiscard]] SlotIndex attention_backward(LayerBuilder& b, const Attention& attention, BranchGradient& branch);
/// From there to `then`, given the gradient of the norm's output.
void attention_input_backward(LayerBuilder& b, const Attention& attention, SlotIndex qkv_gradient,
                              const std::function<void(SlotIndex)>& then);

/// An activation between two products. gated: `in` holds gate and up beside each other.
struct Activation {
    std::string name;
    SlotIndex in = kNoSlot, out = kNoSlot;
    SlotIndex gate = kNoSlot;  // silu(gate), where gating is not fused
    std::int64_t rows = 0, width = 0, most_rows = 0;
    ExpertRows experts;
};
[[nodiscard]] Activation activation_forward(LayerBuilder& b, const std::string& name, SlotIndex in, std::int64_t rows,
                                            std::int64_t width, bool fp8, std::int64_t most_rows = 0,
                                            ExpertRows experts = {});
/// Returns the gradient of `in`; without gating it takes the place of `out_gradient`.
[[nodiscard]] SlotIndex activation_backward(LayerBuilder& b, const Activation& activation, SlotIndex out_gradient,
                                            const std::string& in_name);

/// A dense MLP between its input and its partial sums.
struct Mlp {
    std::string name;
    ColumnInput input;
    std::vector<Product> fc1;  // gate and up in one, or apart
    Product fc2;
    Activation activation;
    Operand activated;  // as fc2 reads it
    SlotIndex bias = kNoSlot;
};
struct MlpNames {
    std::string prefix = "mlp";
    std::int64_t ffn_hidden = 0;
    bool bias = false;
    BlockPart in = BlockPart::mlp_in, middle = BlockPart::activation, out = BlockPart::mlp_out;
};
[[nodiscard]] Mlp mlp_forward(LayerBuilder& b, const MlpNames& names, const ColumnInput& input);
/// Returns what column_backward of the input then takes.
[[nodiscard]] std::vector<LayerBuilder::ColumnGradient> mlp_backward(LayerBuilder& b, const Mlp& mlp,
                                                                     BranchGradient& branch);

/// Routed experts, and the shared ones beside them, from the norm's output to what the residual sum takes.
struct Experts {
    SlotIndex normed = kNoSlot;
    std::int64_t sent_rows = 0, received_rows = 0, rows = 0;  // tokens times top_k; after dispatch; of the products
    std::int64_t most_received = 0, most_rows = 0;
    Product router, fc1, fc2;
    SlotIndex probabilities = kNoSlot, choices = kNoSlot;
    SlotIndex logits = kNoSlot;                                 // where the router's backward pass needs them
    SlotIndex places = kNoSlot;                                 // of each choice's row among those that are sent
    SlotIndex sent_counts = kNoSlot, arrived_counts = kNoSlot;  // of each expert; of the local ones, by rank
    ExpertRows received;                                        // counts of the local experts, of all sources
    Operand in, activated;
    Activation activation;
    SlotIndex returned = kNoSlot;  // the experts' results, in the order in which tokens were sent
    bool has_shared = false;
    Mlp shared;
    Product shared_gate;
    SlotIndex shared_out = kNoSlot;
    SlotIndex shared_kept = kNoSlot, shared_scale = kNoSlot;  // with a gate: before it, and the gate
};
/// Returns the sum of all experts' results for this rank's tokens in `result`.
[[nodiscard]] Experts experts_forward(LayerBuilder& b, SlotIndex normed, const std::string& norm_name,
                                      SlotIndex& result);
/// The gradient of the residual sum's operand -> `then`, given the gradient of the norm's output.
void experts_backward(LayerBuilder& b, const Experts& experts, SlotIndex gradient,
                      const std::function<void(SlotIndex)>& then);

[[nodiscard]] Layer build_embedding(const ModelSpec& model, const LayerContext& context);
/// `experts`: in place of the MLP.
[[nodiscard]] Layer build_block(const ModelSpec& model, const LayerContext& context, bool experts);
[[nodiscard]] Layer build_head(const ModelSpec& model, const LayerContext& context);

}  // namespace orrery::models
