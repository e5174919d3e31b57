// Precision, recomputation, batch and optimizer of a published run.
#include <algorithm>
#include <array>

#include "sim/published/stacks.h"
#include "sim/published/translation.h"
#include "sim/published/words.h"
#include "topologies/device_words.h"

namespace orrery::published {
namespace {

using program::MemorySavings;
using program::Precision;

/// Sets the gradient and reduction types that the words name; they replace the implementation's own.
void apply_precision_words(const PublishedRun& run, const models::Implementation& implementation, Precision& precision,
                           Assumptions& assumptions) {
    const std::string& words = run.precision_words;
    const auto set_gradients = [&](DType gradient, DType reduction, const std::string& why) {
        precision.gradient = gradient;
        precision.reduction = reduction;
        if (why.empty()) return;
        assumptions.add("/training/precision", "gradients",
                        "accumulated in " + std::string(orrery::name_of(gradient)) + ", reduced in " +
                            std::string(orrery::name_of(reduction)),
                        why);
    };
    if (contains(words, "fp32 grad accumulation")) {
        precision.gradient = DType::fp32;
        if (!is_kind_of(implementation, "nanotron")) precision.reduction = DType::fp32;
    } else if (contains(words, "params/grads/reduce bf16")) {
        set_gradients(DType::bf16, DType::bf16, "");
    } else if (contains(words, "params/grad reduce bf16")) {
        set_gradients(DType::bf16, DType::bf16, "the words say bf16 gradients and reductions");
    } else if (contains(words, "fp8_params; bf16 elsewhere")) {
        set_gradients(DType::bf16, DType::bf16, "\"bf16 elsewhere\"");
    } else if (contains(words, "mixed_precision=DEFAULT")) {
        // Composer of 2024: parameters are gathered in the low precision and gradients reduced in fp32.
        set_gradients(DType::bf16, DType::fp32, "Composer's FSDP policy DEFAULT of that time");
    }
    precision.fp8_parameters = contains(words, "fp8_params");
}

/// The plan's name for the published precision.
std::string precision_name_of(const PublishedRun& run, Assumptions& assumptions) {
    const std::vector<std::string>& names = program::precision_names();
    if (std::find(names.begin(), names.end(), run.precision) != names.end()) return run.precision;
    struct Known {
        std::string_view words, name;
    };
    static constexpr std::array<Known, 8> kKnown{{
        {"mxfp4", "mxfp4"},
        {"nvfp4|fp4|float4|e2m1", "nvfp4"},
        {"mxfp8|fp8mx", "mxfp8"},
        {"fp8|float8|e4m3", "fp8"},
        {"bf16|bfloat16|bfloat|bp16", "bf16"},
        {"fp16|float16|half|amp", "fp16"},
        {"tf32|tensorfloat32", "tf32"},
        {"fp32|float32|single|full", "fp32"},
    }};
    for (const std::string& text : {run.precision, run.precision_words}) {
        const Words words(text);
        for (const Known& known : kKnown) {
            if (words.name_any(known.words)) return std::string(known.name);
        }
    }
    if (!run.precision.empty()) return run.precision;  // refused later, with the known names
    const auto gpu = topologies::read_device_words(run.hardware.gpu);
    const bool has_bf16 = !gpu || (gpu->model != "v100" && gpu->model != "t4");
    assumptions.add("/training/precision", "precision", has_bf16 ? "bf16" : "fp16",
                    has_bf16 ? "usual; not stated" : "the GPU has no bf16; not stated");
    return has_bf16 ? "bf16" : "fp16";
}

Precision precision_of(const PublishedRun& run, const models::Implementation& implementation,
                       const program::Parallelism& parallelism, Assumptions& assumptions) {
    Precision precision = program::precision_named(precision_name_of(run, assumptions), implementation);
    // "-cs": per-tensor current scaling, "-mx": a scale for each 32 elements.
    if (precision.fp8 == models::Fp8Scaling::delayed) {
        if (contains(run.precision_words, "-cs")) precision.fp8 = models::Fp8Scaling::tensorwise;
        if (contains(run.precision_words, "mx") || contains(run.precision_words, "MX")) {
            precision.fp8 = models::Fp8Scaling::mx;
        }
        if (precision.fp8 == models::Fp8Scaling::delayed) {
            assumptions.add("/training/precision/fp8", "fp8 scaling", "delayed", "usual at the time; not stated");
        }
    }
    apply_precision_words(run, implementation, precision, assumptions);
    if (precision.fp8_parameters && !parallelism.shards_optimizer()) precision.fp8_parameters = false;
    return precision;
}

/// Parts recomputed by an XLA policy. Policies name what is saved; the rest is recomputed.
std::vector<std::string> recomputed_by_policy(const std::string& notes) {
    // These policies save all GEMMs except the MLP's, or except its first. The first policy named is the run's.
    if (contains(notes, "save_dot_except_mlp (")) {
        return {"norm", "attention_core", "mlp_in", "activation", "mlp_out"};
    }
    if (contains(notes, "save_dot_except_mlpwi")) return {"norm", "attention_core", "mlp_in", "activation"};
    if (contains(notes, "minimal_with_context")) return {"norm", "activation"};
    return {};
}

std::vector<std::string> recomputed_parts(const PublishedRun& run, Assumptions& assumptions) {
    std::vector<std::string> parts = recomputed_by_policy(run.notes);
    if (contains(run.notes, "SAVE_QKV_OUT_PROJ (175B) / SAVE_DOT_ONLY (5B)")) {
        if (contains(run.model.name, "175b")) {
            parts = {"norm", "attention_core", "mlp_in", "activation", "mlp_out"};
        } else {
            parts = {"norm", "attention_core", "activation"};
        }
    }
    std::string text;
    for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
    assumptions.add("/training/memory/recompute_parts", "selective recomputation",
                    parts.empty() ? "attention_core" : text,
                    parts.empty() ? "Megatron's default; not stated" : "what the noted policy does not save");
    return parts;
}

/// The recomputation with this name, or the one that the published words describe.
std::optional<program::Recompute> recompute_of(const PublishedRun& run) {
    for (const program::Recompute kind :
         {program::Recompute::none, program::Recompute::selective, program::Recompute::full}) {
        if (name_of(kind) == run.recompute) return kind;
    }
    const Words words(run.recompute + "; " + run.recompute_words);
    if (words.name_any("selective|selectively")) return program::Recompute::selective;
    const Words::Says says = words.says_any(
        "full|uniform|yes|true|all|enabled|activationcheckpointing|gradientcheckpointing|checkpointing|recompute|"
        "recomputation|checkpoint|remat");
    if (says == Words::Says::yes) return program::Recompute::full;
    if (says == Words::Says::no || words.name_any("none|no|off|false|disabled")) return program::Recompute::none;
    return {};
}

MemorySavings memory_of(const PublishedRun& run, Assumptions& assumptions) {
    MemorySavings memory;
    const Words stack(run.framework + "; " + run.parallel.data_parallel_words);
    if (stack.name_any("offload|offloading|zerooffload|zeroinfinity") &&
        !stack.name_any("activationoffload|activationoffloading|activations&offload")) {
        memory.offload_optimizer = true;
        assumptions.add("/training/memory/offload_optimizer", "optimizer states", "on the host",
                        "words of '" + run.framework + "'");
    }
    const std::optional<program::Recompute> stated = recompute_of(run);
    if (!stated) {
        assumptions.add("/training/memory/recompute", "recomputation", "none", "not stated");
        return memory;
    }
    memory.recompute = *stated;
    if (memory.recompute == program::Recompute::selective) {
        memory.recompute_parts = recomputed_parts(run, assumptions);
    }
    return memory;
}

/// Model families from before 2022 were trained with dropout; Llama, Nemotron and BLOOM are not.
double dropout_of(const PublishedRun& run, const models::ModelSpec& model, const models::Implementation& implementation,
                  Assumptions& assumptions) {
    if (contains(run.model.name, "BLOOM")) {
        assumptions.add("/training/dropout", "dropout", "0", "BLOOM's published configuration");
        return 0;
    }
    if (is_vocabulary_fork(run)) {
        assumptions.add("/training/dropout", "dropout", "0",
                        "the authors' training script, pretrain_gpt.sh; not stated");
        return 0;
    }
    if (contains(run.model.name, "gpt3") && is_kind_of(implementation, "nemo")) {
        constexpr double kRecipe = 0.1;
        assumptions.add("/training/dropout", "dropout", "0.1",
                        "NeMo-Framework-Launcher, conf/training/gpt3/175b.yaml; not stated");
        return kRecipe;
    }
    if (model.family != "gpt2") {
        if (implementation.default_dropout > 0) {
            assumptions.add("/training/dropout", "dropout", "0", "the model's family has none");
        }
        return 0;
    }
    if (implementation.default_dropout > 0) {
        assumptions.add("/training/dropout", "dropout", "0.1", "default of " + implementation.name);
    }
    return implementation.default_dropout;
}

}  // namespace

program::Training training_of(const PublishedRun& run, const models::ModelSpec& model,
                              const models::Implementation& implementation, const program::Parallelism& parallelism,
                              Assumptions& assumptions) {
    program::Training training;
    training.sequence_length = required(run.model.sequence_length, "model.seq_len");
    training.micro_batch_size = required(run.micro_batch, "batch.micro_batch_seqs");
    training.global_batch_size = required(run.global_batch, "batch.global_batch_seqs");
    training.precision = precision_of(run, implementation, parallelism, assumptions);
    training.memory = memory_of(run, assumptions);
    training.dropout = dropout_of(run, model, implementation, assumptions);
    // Without waiting for the gradient norm there is no clipping before the update.
    if (implementation.host.waits_for_gradient_norm || !is_kind_of(implementation, "megatron-lm-2022")) {
        training.optimizer.clip_norm = 1;
        assumptions.add("/training/optimizer/clip_norm", "gradient clipping", "norm 1", "usual; not stated");
    }
    if (validates_after_update(run)) {
        training.optimizer.post_validation = true;
        assumptions.add("/training/optimizer/post_validation", "gradient norm",
                        "each stage's own, the update validated later", "post-validation, arXiv 2401.10241 section 4");
    }
    if (run.model.experts) {
        training.expert_load.capacity_factor = run.model.experts->capacity_factor;
        training.expert_load.pads_to_capacity = run.model.experts->pads_to_capacity;
        if (contains(run.notes, "capacity factor 1")) training.expert_load.capacity_factor = 1;
        if (training.expert_load.capacity_factor == 0) {
            assumptions.add("/training/expert_load/imbalance", "expert load", "balanced, none dropped", "not stated");
        }
    }
    return training;
}

}  // namespace orrery::published
