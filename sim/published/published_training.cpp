// Precision, recomputation, batch and optimizer of a published run.
#include "sim/published/translation.h"

namespace orrery::published {
namespace {

using program::MemorySavings;
using program::Precision;

/// The gradients and reductions that words name, over the implementation's own.
void heed_words(const PublishedRun& run, const models::Implementation& implementation, Precision& precision,
                Assumptions& assumptions) {
    const std::string& words = run.precision_words;
    const DType type = precision.activation;
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
        if (implementation.name != "nanotron") precision.reduction = DType::fp32;
    } else if (contains(words, "params/grads/reduce bf16")) {
        set_gradients(DType::bf16, DType::bf16, "");
    } else if (contains(words, "params/grad reduce bf16")) {
        set_gradients(DType::bf16, DType::bf16, "the words say bf16 gradients and reductions");
    } else if (contains(words, "fp8_params; bf16 elsewhere")) {
        set_gradients(DType::bf16, DType::bf16, "\"bf16 elsewhere\"");
    } else if (contains(words, "mixed_precision=DEFAULT")) {
        // Composer of 2024: parameters are gathered in the low precision and gradients reduced in fp32.
        set_gradients(DType::bf16, DType::fp32, "Composer's FSDP policy DEFAULT of that time");
    } else if (type == DType::fp16 && implementation.name == "megatron-deepspeed") {
        set_gradients(DType::fp16, DType::fp16, "DeepSpeed's fp16 engine; fp32 gradients came with its bf16 one");
    }
    precision.fp8_parameters = contains(words, "fp8_params");
}

Precision precision_of(const PublishedRun& run, const models::Implementation& implementation,
                       const program::Parallelism& parallelism, Assumptions& assumptions) {
    if (run.precision.empty()) throw NotExpressible("precision is not stated");
    Precision precision = program::precision_named(run.precision, implementation);
    // "-cs": per-tensor current scaling, "-mx": a scale for each 32 elements.
    if (precision.fp8 != models::Fp8Scaling::none) {
        if (contains(run.precision_words, "-cs")) precision.fp8 = models::Fp8Scaling::tensorwise;
        if (contains(run.precision_words, "mx") || contains(run.precision_words, "MX")) {
            precision.fp8 = models::Fp8Scaling::mx;
        }
        if (precision.fp8 == models::Fp8Scaling::delayed) {
            assumptions.add("/training/precision/fp8", "fp8 scaling", "delayed", "usual at the time; not stated");
        }
    }
    heed_words(run, implementation, precision, assumptions);
    if (precision.fp8_parameters && !parallelism.shards_optimizer()) precision.fp8_parameters = false;
    return precision;
}

/// XLA's policies name what is saved; what they leave out is computed again.
std::vector<std::string> recomputed_by_policy(const std::string& notes) {
    // Products are saved but the first of the MLP, or none of the MLP's. The first policy named is the run's.
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

MemorySavings memory_of(const PublishedRun& run, Assumptions& assumptions) {
    MemorySavings memory;
    if (run.recompute == "unknown") {
        assumptions.add("/training/memory/recompute", "recomputation", "none", "not stated");
        return memory;
    }
    memory.recompute = program::recompute_named(run.recompute);
    if (memory.recompute == program::Recompute::selective) {
        memory.recompute_parts = recomputed_parts(run, assumptions);
    }
    return memory;
}

/// Families of before 2022 were trained with dropout; Llama's, Nemotron's and BLOOM's are not.
double dropout_of(const PublishedRun& run, const models::ModelSpec& model, const models::Implementation& implementation,
                  Assumptions& assumptions) {
    if (contains(run.model.name, "BLOOM")) {
        assumptions.add("/training/dropout", "dropout", "0", "BLOOM's published configuration");
        return 0;
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
    training.sequence_length = run.model.sequence_length;
    training.micro_batch_size = required(run.micro_batch, "batch.micro_batch_seqs");
    training.global_batch_size = required(run.global_batch, "batch.global_batch_seqs");
    training.precision = precision_of(run, implementation, parallelism, assumptions);
    training.memory = memory_of(run, assumptions);
    training.dropout = dropout_of(run, model, implementation, assumptions);
    // Without the wait there is no norm either before the update.
    if (implementation.host.waits_for_gradient_norm || implementation.name != "megatron-lm-2022") {
        training.optimizer.clip_norm = 1;
        assumptions.add("/training/optimizer/clip_norm", "gradient clipping", "norm 1", "usual; not stated");
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
