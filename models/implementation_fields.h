// The fields of an implementation file, section by section (core/json_fields.h).
#pragma once

#include "core/json_fields.h"
#include "models/implementation.h"

namespace orrery::models {

inline constexpr IntegerRange kVocabMultiple{1, 1 << 16};  // keeps a padded vocabulary far from overflow
inline constexpr IntegerRange kUnitsAhead{0, 1 << 10};
inline constexpr IntegerRange kElements{0, std::int64_t{1} << 40};
inline constexpr NumberRange kLaunchFactor{0, 1000};
inline constexpr NumberRange kGibibytes{0, 1 << 20};

/// published, fitted or fallback.
[[nodiscard]] const std::vector<std::string>& figure_kinds();
/// null where no source is given, like the next.
[[nodiscard]] JsonValue field_json(const MemoryFigure& figure);
[[nodiscard]] JsonValue field_json(const Support& support);
void read_field(const JsonReader& reader, const std::string& key, MemoryFigure& figure, NumberRange range);

template <Either<KernelChoices> Choices>
void visit_fields(Choices& c, auto&& visit) {
    visit("attention_kernel", c.attention_kernel);
    visit("fused_attention", c.fused_attention);
    visit("causal_skip", c.causal_skip);
    visit("document_tokens", c.document_tokens, kElements);
    visit("fused_softmax", c.fused_softmax);
    visit("fused_norm", c.fused_norm);
    visit("repeats_kv_heads", c.repeats_kv_heads);
    visit("fused_rope", c.fused_rope);
    visit("fused_activation", c.fused_activation);
    visit("fused_residual", c.fused_residual);
    visit("fused_residual_norm", c.fused_residual_norm);
    visit("gelu_epilogue", c.gelu_epilogue);
    visit("online_softmax", c.online_softmax);
    visit("masks_without_dropout", c.masks_without_dropout);
    visit("fused_cross_entropy", c.fused_cross_entropy);
    visit("fused_weight_gradient", c.fused_weight_gradient);
    visit("merged_projections", c.merged_projections);
    visit("merged_gate", c.merged_gate);
    visit("splits_projections", c.splits_projections);
    visit("copies_qkv", c.copies_qkv);
    visit("joins_kv", c.joins_kv);
    visit("fused_optimizer", c.fused_optimizer);
    visit("grouped_experts", c.grouped_experts);
    visit("keeps_narrow_logits", c.keeps_narrow_logits);
    visit("gathers_logits", c.gathers_logits);
    visit("narrow_logits", c.narrow_logits);
}

template <Either<TensorParallelChoices> Choices>
void visit_fields(Choices& c, auto&& visit) {
    visit("overlaps_input_gradient", c.overlaps_input_gradient);
    visit("reduces_inputs_apart", c.reduces_inputs_apart);
    visit("pipelined_gather", c.pipelined_gather);
    visit("keeps_gathered_inputs", c.keeps_gathered_inputs);
}

template <Either<PipelineChoices> Choices>
void visit_fields(Choices& c, auto&& visit) {
    visit("posts_receives_ahead", c.posts_receives_ahead);
    visit("posts_interleaved_receives_ahead", c.posts_interleaved_receives_ahead);
    visit("scatters_transfers", c.scatters_transfers);
}

template <Either<ExpertChoices> Choices>
void visit_fields(Choices& c, auto&& visit) {
    visit("sends_tokens_once", c.sends_tokens_once);
}

template <Either<DataParallelChoices> Choices>
void visit_fields(Choices& c, auto&& visit) {
    visit("bucket_bytes", c.bucket_bytes, kPositiveInteger);
    visit("first_bucket_bytes", c.first_bucket_bytes, kPositiveInteger);
    visit("bucket_elements_per_rank", c.bucket_elements_per_rank, kElements);
    visit("overlaps_backward", c.overlaps_backward);
    visit("overlaps_first_stage_only", c.overlaps_first_stage_only);
    visit("buckets_by_layer", c.buckets_by_layer);
    visit("fusion_buffer", c.fusion_buffer);
    visit("shard_alignment_elements", c.shard_alignment_elements, IntegerRange{1, 1 << 20});
    visit("pads_each_parameter", c.pads_each_parameter);
    visit("reduces_to_owner", c.reduces_to_owner);
    visit("gathers_parameters_ahead", c.gathers_parameters_ahead);
    visit("forward_prefetch", c.forward_prefetch, kUnitsAhead);
    visit("backward_prefetch", c.backward_prefetch, kUnitsAhead);
    visit("keeps_root_gathered", c.keeps_root_gathered);
}

template <Either<HostChoices> Choices>
void visit_fields(Choices& c, auto&& visit) {
    visit("launch_factor", c.launch_factor, kLaunchFactor);
    visit("waits_after_micro_batch", c.waits_after_micro_batch);
    visit("waits_for_transfers", c.waits_for_transfers);
    visit("waits_for_gradient_norm", c.waits_for_gradient_norm);
}

template <Either<MemoryChoices> Choices>
void visit_fields(Choices& c, auto&& visit) {
    visit("lays_out_ahead", c.lays_out_ahead);
    visit("keeps_weight_gradient_stand_ins", c.keeps_weight_gradient_stand_ins);
    visit("copies_gradients_for_update", c.copies_gradients_for_update);
    visit("keeps_gradients_beside_sums", c.keeps_gradients_beside_sums);
    visit("keeps_stage_outputs", c.keeps_stage_outputs);
    visit("keeps_previous_logits", c.keeps_previous_logits);
    visit("windows_hold_tensors", c.windows_hold_tensors);
    visit("buffer_elements", c.buffer_elements, kElements);
    visit("cached_share", c.cached_share, kFraction);
    visit("runtime_gib", c.runtime_gib, kGibibytes);
}

template <Either<Support> Choices>
void visit_fields(Choices& c, auto&& visit) {
    visit("source", c.source);
    visit("most_nodes", c.most_nodes, kElements);
    visit("axes", c.axes);
    visit("sequence_parallel", c.sequence_parallel);
    visit("overlaps_experts", c.overlaps_experts, kIfChanged);
    visit("context_parallel", c.context_parallel);
    visit("schedules", c.schedules);
    visit("vocabulary_parallel", c.vocabulary_parallel);
    visit("data_parallel", c.data_parallel);
    visit("data_parallel_of_pipelines", c.data_parallel_of_pipelines);
    visit("default_data_parallel", c.default_data_parallel);
    visit("shard_groups", c.shard_groups);
    visit("stage_layouts", c.stage_layouts);
    visit("precisions", c.precisions);
    visit("narrow_products", c.narrow_products);
    visit("moments", c.moments);
    visit("moments_of_whole_states", c.moments_of_whole_states);
    visit("post_validation", c.post_validation);
    visit("recompute", c.recompute);
    visit("recompute_parts", c.recompute_parts);
    visit("offload", c.offload);
    visit("compiled_as", c.compiled_as);
    visit("eager_as", c.eager_as);
}

template <Either<Implementation> Choices>
void visit_fields(Choices& c, auto&& visit) {
    visit("executable", c.executable);
    visit("default_dropout", c.default_dropout, kBelowOne);
    visit("vocab_multiple", c.vocab_multiple, kVocabMultiple);
    visit("gradients_in_fp32", c.gradients_in_fp32);
    visit("reduces_in_fp32", c.reduces_in_fp32);
    visit("fp16_gradients_in_fp32", c.fp16_gradients_in_fp32);
    visit("master_weights", c.master_weights);
    visit("stores_fp32_shards", c.stores_fp32_shards);
    visit("recompute_stops_early", c.recompute_stops_early);
    visit("kernels", c.kernels);
    visit("tensor_parallel", c.tensor_parallel);
    visit("pipeline", c.pipeline);
    visit("experts", c.experts);
    visit("data_parallel", c.data_parallel);
    visit("host", c.host);
    visit("memory", c.memory);
    visit("supports", c.supports);
}

}  // namespace orrery::models
