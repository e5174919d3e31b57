// Random plans that mix all techniques, with small models of every family on a few ranks. Most of them are legal by
// check_plan. The plans depend only on the seed.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "models/implementation.h"
#include "models/model_spec.h"
#include "sim/program/plan.h"
#include "topologies/cluster_spec.h"

namespace orrery::program::samples {

/// The model at a size that is fast enough for tests.
inline models::ModelSpec shrunk(models::ModelSpec model) {
    const bool grouped = model.kv_heads < model.heads;
    model.name += "-small";
    model.layers = 4;
    model.hidden = 64;
    model.heads = 4;
    model.kv_heads = grouped ? 2 : 4;
    model.head_dim = 16;
    model.ffn_hidden = 96;
    model.vocab = 300;
    model.max_positions = 128;
    model.sliding_window = 0;
    if (model.rope_scaling.original_max_positions > 0) model.rope_scaling.original_max_positions = 64;
    if (model.has_latent_attention()) {
        model.latent = {.q_lora_rank = model.latent.q_lora_rank > 0 ? 24 : 0,
                        .kv_lora_rank = 16,
                        .nope_head_dim = 12,
                        .rope_head_dim = 4,
                        .v_head_dim = 8};
        model.kv_heads = model.heads;
    }
    if (model.has_experts()) {
        model.moe.expert_count = 8;
        model.moe.top_k = 2;
        model.moe.expert_ffn_hidden = 32;
        model.moe.shared_ffn_hidden = model.moe.shared_ffn_hidden > 0 ? 32 : 0;
        model.moe.first_dense_layers = std::min<std::int64_t>(model.moe.first_dense_layers, 1);
        if (model.moe.expert_groups > 0) {
            model.moe.expert_groups = 4;
            model.moe.top_k_groups = 2;
        }
    }
    return model;
}

class RandomPlans {
  public:
    explicit RandomPlans(std::uint64_t seed) : random_(seed, "random plans") {
        for (const char* name : {"tiny-gpt", "tiny-llama", "qwen3-8b", "bert-base", "bloom-176b", "falcon-7b",
                                 "gpt-neox-20b", "opt-1.3b", "mixtral-8x7b", "deepseek-v3", "qwen3-30b-a3b"}) {
            models_.push_back(shrunk(models::load_model(name)));
        }
        models_.push_back(models_.back());  // with a gate on the shared experts, as in Qwen2-MoE
        models_.back().moe.shared_ffn_hidden = 32;
        models_.back().moe.shared_expert_gate = true;
        for (const char* name : {"dgx-h100", "dgx-b200"}) clusters_.push_back(topologies::load_cluster(name, 8));
        for (const std::string& name : models::implementation_names()) {
            implementations_.push_back(models::load_implementation(name));
            implementations_.back().supports = {};  // so that it may be combined with any technique
        }
    }

    /// The next plan, which may be illegal.
    Plan make() {
        Plan plan;
        plan.name = "random " + std::to_string(draw_);
        plan.model = one_of(models_);
        if (happens(3)) plan.model.tied_embeddings = !plan.model.tied_embeddings;
        if (happens(8) && !plan.model.has_latent_attention()) plan.model.qk_norm = !plan.model.qk_norm;
        plan.model.layers = 2 + pick(7);
        plan.implementation = one_of(implementations_);
        post_validates_ = false;
        if (happens(2)) change(plan.implementation);
        plan.cluster = one_of(clusters_);
        do {
            fill(plan.parallelism, plan.model);
        } while (plan.parallelism.world_size() > 64);
        fill(plan.training, plan);
        cut_stages(plan);
        plan.cluster.nodes =
            (plan.parallelism.world_size() + plan.cluster.devices_per_node - 1) / plan.cluster.devices_per_node;
        return plan;
    }

    /// The next plan that check_plan accepts.
    Plan make_legal() {
        for (;;) {
            Plan plan = make();
            try {
                check_plan(plan, "random");
                return plan;
            } catch (const InputError&) {
                continue;
            }
        }
    }

  private:
    std::int64_t pick(std::size_t bound) { return static_cast<std::int64_t>(random_.below(draw_++, bound)); }
    bool happens(std::size_t once_in) { return pick(once_in) == 0; }
    template <typename List>
    typename List::value_type one_of(const List& list) {
        return *(std::begin(list) + pick(std::size(list)));
    }
    std::int64_t degree() { return one_of(std::array<std::int64_t, 7>{1, 1, 1, 2, 2, 2, 4}); }
    void flip(bool& flag, std::size_t once_in) {
        if (happens(once_in)) flag = !flag;
    }

    void change(models::Implementation& implementation) {
        models::DataParallelChoices& data = implementation.data_parallel;
        data.bucket_bytes = one_of(std::array<std::int64_t, 4>{1'000, 20'000, 100'000, 25 << 20});
        data.first_bucket_bytes = one_of(std::array<std::int64_t, 2>{1'000, 1 << 20});
        data.bucket_elements_per_rank = 0;
        data.shard_alignment_elements = one_of(std::array<std::int64_t, 4>{1, 1, 64, 128});
        data.forward_prefetch = pick(3);
        data.backward_prefetch = pick(3);
        for (bool* flag : {&data.overlaps_backward,
                           &data.overlaps_first_stage_only,
                           &data.buckets_by_layer,
                           &data.fusion_buffer,
                           &data.pads_each_parameter,
                           &data.reduces_to_owner,
                           &data.gathers_parameters_ahead,
                           &data.keeps_root_gathered,
                           &implementation.stores_fp32_shards,
                           &implementation.recompute_stops_early,
                           &implementation.tensor_parallel.overlaps_input_gradient,
                           &implementation.tensor_parallel.reduces_inputs_apart,
                           &implementation.tensor_parallel.pipelined_gather,
                           &implementation.pipeline.posts_receives_ahead,
                           &implementation.pipeline.posts_interleaved_receives_ahead,
                           &implementation.pipeline.scatters_transfers,
                           &implementation.host.waits_for_gradient_norm,
                           &post_validates_,
                           &implementation.host.waits_after_micro_batch,
                           &implementation.host.waits_for_transfers}) {
            flip(*flag, 4);
        }
        models::KernelChoices& kernels = implementation.kernels;
        for (bool* flag : {&kernels.fused_attention, &kernels.fused_softmax, &kernels.fused_norm,
                           &kernels.repeats_kv_heads, &kernels.fused_rope, &kernels.fused_activation,
                           &kernels.fused_residual, &kernels.fused_residual_norm, &kernels.gelu_epilogue,
                           &kernels.online_softmax, &kernels.fused_cross_entropy, &kernels.fused_weight_gradient,
                           &kernels.fused_optimizer, &kernels.grouped_experts, &kernels.merged_projections,
                           &kernels.merged_gate, &kernels.splits_projections, &kernels.copies_qkv, &kernels.joins_kv}) {
            flip(*flag, 5);
        }
    }

    void fill(Parallelism& p, const models::ModelSpec& model) {
        p = {};
        p.dp = degree(), p.tp = degree(), p.pp = degree();
        p.cp = happens(3) ? degree() : 1;
        if (model.has_experts()) {
            p.ep = degree();
            p.etp = happens(3) ? degree() : 1;
        }
        p.sequence_parallel = p.tp > 1 && (model.has_experts() || happens(2));
        p.context_parallel = static_cast<ContextParallel>(pick(3));
        p.schedule = static_cast<Schedule>(pick(kScheduleCount));
        if (p.pp == 1 && happens(2)) p.schedule = Schedule::one_f_one_b;
        const bool two = p.schedule == Schedule::interleaved || p.schedule == Schedule::zb_v ||
                         p.schedule == Schedule::dualpipe || p.schedule == Schedule::dualpipe_v;
        p.chunks = two ? 2 : 1;
        if (p.schedule == Schedule::interleaved && happens(3)) p.chunks = 3;
        if (happens(12)) {
            p.vocabulary_parallel = static_cast<VocabularyParallel>(1 + pick(3));
            p.schedule = Schedule::one_f_one_b;
            p.tp = p.cp = p.etp = 1;
            p.pp = std::max<std::int64_t>(p.pp, 2);
            p.chunks = 1;
            p.sequence_parallel = false;
        }
        p.data_parallel = static_cast<DataParallel>(pick(5));
        if (p.data_parallel == DataParallel::dp && !happens(3)) p.data_parallel = DataParallel::ddp;
        if (p.data_parallel == DataParallel::dp) p.vocabulary_parallel = VocabularyParallel::none;
        if (p.data_parallel == DataParallel::dp) p.tp = p.pp = p.cp = p.ep = p.etp = 1, p.chunks = 1;
        if (p.data_parallel == DataParallel::dp) p.schedule = Schedule::one_f_one_b, p.sequence_parallel = false;
        if (p.shards_optimizer() && happens(3)) p.dp_shard = degree();
        if (p.schedule == Schedule::dualpipe && p.shards_gradients()) p.data_parallel = DataParallel::zero1;
        p.reshard_after_forward = !happens(3);
        p.reduces_every_micro_batch = p.shards_gradients() ? !happens(4) : happens(4);
        for (std::size_t i = 0; happens(4) && i < p.order.size(); ++i) {
            std::swap(p.order[i], p.order[static_cast<std::size_t>(pick(p.order.size()))]);
        }
    }

    /// Splits the layers as evenly as possible, or with one block moved.
    void cut_stages(Plan& plan) {
        Parallelism& p = plan.parallelism;
        const std::int64_t stages = p.virtual_stages();
        if (stages > plan.model.layers) plan.model.layers = stages;
        p.stage_layers = even_stages(plan.model.layers, stages);
        if (stages > 1 && happens(3)) {
            const auto from = static_cast<std::size_t>(happens(2) ? 0 : stages - 1);
            const std::size_t to = from == 0 ? static_cast<std::size_t>(stages - 1) : 0;
            --p.stage_layers[from];
            ++p.stage_layers[to];
        }
    }

    void fill(Training& t, const Plan& plan) {
        const Parallelism& p = plan.parallelism;
        const std::int64_t unit = p.tp * p.cp * 2;
        t = {};
        t.sequence_length = unit * (1 + pick(2)) * (unit < 16 ? 4 : 1);
        t.micro_batch_size = 1 + pick(2);
        std::int64_t batches = 1 + pick(6);
        const bool dual = p.schedule == Schedule::dualpipe || p.schedule == Schedule::dualpipe_v;
        if (dual) batches = 2 * p.pp + 2 * pick(3);
        if (p.schedule == Schedule::interleaved) batches = p.pp * (1 + pick(3)) + (happens(3) ? p.pp + 1 : 0);
        t.global_batch_size = p.dp * t.micro_batch_size * batches;
        t.precision = precision_named(one_of(precision_names()), plan.implementation);
        if (t.precision.fp8 != Fp8Scaling::none) {
            t.precision.fp8 = static_cast<Fp8Scaling>(1 + pick(5));
            t.precision.fp8_parameters = p.shards_optimizer() && happens(2);
        }
        if (happens(4)) t.precision.reduction = one_of(std::array{DType::fp32, DType::bf16});
        if (happens(6)) t.precision.gradient = one_of(std::array{DType::fp32, DType::bf16});
        t.optimizer.kind = static_cast<OptimizerKind>(pick(3));
        t.optimizer.clip_norm = happens(2) ? 1.0 : 0.0;
        t.optimizer.post_validation = post_validates_;
        t.dropout = happens(4) ? 0.1 : 0.0;
        fill(t.memory, p);
        if (happens(3)) {
            t.expert_load.imbalance = 1 + random_.uniform(draw_++);
            if (happens(2)) t.expert_load.capacity_factor = 1.25;
            t.expert_load.pads_to_capacity = t.expert_load.capacity_factor > 0 && happens(2);
        }
    }

    void fill(MemorySavings& m, const Parallelism& p) {
        m.recompute = static_cast<Recompute>(pick(3));
        if (m.recompute == Recompute::full && happens(2)) m.recompute_layers = pick(2);
        if (m.recompute == Recompute::full) m.shards_checkpoints = p.tp > 1 && !p.sequence_parallel && happens(2);
        if (m.recompute == Recompute::selective && happens(2)) {
            for (int part = 1; part < models::kBlockParts - 1; ++part) {
                if (happens(3)) m.recompute_parts.emplace_back(models::name_of(static_cast<models::BlockPart>(part)));
            }
        }
        const bool splits = p.schedule > Schedule::interleaved;
        if (m.recompute != Recompute::full && !splits && happens(4)) m.offload_layers = 1;
        m.offload_optimizer = p.data_parallel != DataParallel::dp && happens(6);
        m.offload_parameters = p.shards_parameters() && happens(4);
        m.offload_optimizer = m.offload_optimizer || m.offload_parameters;
    }

    RandomStream random_;
    std::uint64_t draw_ = 0;
    std::vector<models::ModelSpec> models_;
    std::vector<topologies::ClusterSpec> clusters_;
    std::vector<models::Implementation> implementations_;
    bool post_validates_ = false;  // of the plan that is being made
};

}  // namespace orrery::program::samples
