#include "exec/executable.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <type_traits>

#include "core/enum_names.h"
#include "core/error.h"
#include "core/json_reader.h"

namespace orrery::exec {
namespace {

using models::Implementation;
using models::KernelChoices;
using models::ModelSpec;
using program::Plan;

/// A key of the plan of which the executor runs only some values.
struct Limit {
    const char* pointer;                  // the plan's key
    std::string (*refused)(const Plan&);  // the plan's value if it is only simulated; otherwise ""
    const char* allowed;
    const char* runs;  // "the executor runs …"
};

template <typename Value>
std::string refused_unless(bool runs, Value value) {
    if (runs) return "";
    if constexpr (std::is_same_v<Value, bool>) {
        return value ? "true" : "false";
    } else if constexpr (std::is_arithmetic_v<Value>) {
        return shortest(static_cast<double>(value));
    } else {
        return in_quotes(value);
    }
}

/// Everything in fp32, or bf16 with fp32 master weights; with bf16, gradients and reductions are in bf16 or fp32.
/// Moments are in fp32 or bf16.
bool is_executed(const program::Precision& precision) {
    program::Precision executed;
    if (precision.parameter == DType::bf16) {
        executed = {.parameter = DType::bf16,
                    .activation = DType::bf16,
                    .gradient = precision.gradient == DType::bf16 ? DType::bf16 : DType::fp32,
                    .reduction = precision.reduction == DType::bf16 ? DType::bf16 : DType::fp32,
                    .compute = DType::bf16,
                    .master_weights = true};
    }
    executed.moments = precision.moments;
    return precision == executed;
}

constexpr const char* kDecoders =
    "decoders like gpt2, opt, bloom, falcon, gpt-neox, llama, mistral, mixtral, qwen2, qwen3 and deepseek-v3";
constexpr const char* kFused = "fused kernels";

constexpr std::array kParallelismLimits{
    Limit{"/parallelism/reduces_every_micro_batch",
          [](const Plan& p) {
              const bool spread = p.parallelism.vocabulary_parallel != program::VocabularyParallel::none;
              return refused_unless(!spread || !p.parallelism.reduces_every_micro_batch, true);
          },
          "false where the vocabulary is cut over the stages",
          "such vocabularies only with one gradient reduction, after the last micro-batch"},
};

constexpr std::array kTrainingLimits{
    Limit{"/training/sequence_length",
          [](const Plan& p) {
              const std::int64_t cp = p.parallelism.cp, sequence = p.training.sequence_length;
              return refused_unless(cp == 1 || sequence % (2 * cp) == 0, sequence);
          },
          "a multiple of 2 * cp", "every kind of context parallelism with two chunks of the sequence on each rank"},
    Limit{"/training/precision",
          [](const Plan& p) { return is_executed(p.training.precision) ? "" : name_of(p.training.precision); },
          R"("fp32", "bf16")", "fp32, and bf16 with fp32 master weights"},
    Limit{"/training/precision/reduction",
          [](const Plan& p) {
              const bool scatters =
                  p.parallelism.shards_gradients() ||
                  (p.parallelism.shards_optimizer() && p.implementation.data_parallel.reduces_to_owner);
              const program::Precision& precision = p.training.precision;
              return refused_unless(!scatters || precision.reduction == precision.gradient,
                                    orrery::name_of(precision.reduction));
          },
          "the gradients' type where gradients are scattered", "reduce-scatters in the type of the gradients"},
    Limit{"/training/optimizer/post_validation",
          [](const Plan& p) {
              const bool late = p.training.optimizer.post_validation;
              return refused_unless(!late, late);
          },
          "false", "updates that are never rolled back"},
    Limit{"/implementation/stores_fp32_shards",
          [](const Plan& p) {
              const bool casts = p.implementation.stores_fp32_shards && p.parallelism.shards_parameters() &&
                                 p.training.precision.parameter != DType::fp32;
              const bool runs = p.training.precision.gradient == DType::fp32 && !p.training.memory.offload_parameters;
              return refused_unless(!casts || runs, casts);
          },
          "false in 16 bits with gradients in 16 bits or parameters on the host",
          "updates of fp32 shards with fp32 gradients, on the device"},
    Limit{"/training/expert_load/capacity_factor",
          [](const Plan& p) {
              const double factor = p.training.expert_load.capacity_factor;
              return refused_unless(factor == 0, factor);
          },
          "0", "experts that take every token"},
    Limit{"/training/expert_load/largest",
          [](const Plan& p) {
              const program::ExpertLoad& load = p.training.expert_load;
              return refused_unless(p.parallelism.ep == 1 || load.bound() > 1, load.largest);
          },
          "more than 1 if ep > 1; the number of ranks in ep always suffices",
          "real routers, which load the ranks unevenly"},
};

/// The value of a model's field that the executor runs.
template <auto ModelSpec::*field, auto value>
std::string refused_model(const Plan& plan) {
    return refused_unless(plan.model.*field == value, plan.model.*field);
}
template <auto ModelSpec::*field, bool value = false>
constexpr Limit model_limit(const char* pointer) {
    return {pointer, refused_model<field, value>, value ? "true" : "false", kDecoders};
}

constexpr std::array kModelLimits{
    model_limit<&ModelSpec::causal, true>("/model/causal"),
    model_limit<&ModelSpec::post_norm>("/model/post_norm"),
    model_limit<&ModelSpec::final_norm, true>("/model/final_norm"),
    Limit{"/model/token_types", refused_model<&ModelSpec::token_types, 0>, "0", kDecoders},
    model_limit<&ModelSpec::head_transform>("/model/head_transform"),
    model_limit<&ModelSpec::head_bias>("/model/head_bias"),
    model_limit<&ModelSpec::pooler>("/model/pooler"),
};

/// The value of a choice of an executable implementation that the executor runs.
template <auto Implementation::*part, auto choice, bool value>
std::string refused_choice(const Plan& plan) {
    return refused_unless(plan.implementation.*part.*choice == value, !value);
}
template <auto Implementation::*part, auto choice, bool value = false>
constexpr Limit choice_limit(const char* pointer, const char* runs) {
    return {pointer, refused_choice<part, choice, value>, value ? "true" : "false", runs};
}
template <auto choice, bool value = true>
constexpr Limit kernel_limit(const char* pointer) {
    return choice_limit<&Implementation::kernels, choice, value>(pointer, kFused);
}

constexpr std::array kImplementationLimits{
    kernel_limit<&KernelChoices::fused_attention>("/implementation/kernels/fused_attention"),
    kernel_limit<&KernelChoices::causal_skip>("/implementation/kernels/causal_skip"),
    kernel_limit<&KernelChoices::fused_norm>("/implementation/kernels/fused_norm"),
    kernel_limit<&KernelChoices::repeats_kv_heads, false>("/implementation/kernels/repeats_kv_heads"),
    kernel_limit<&KernelChoices::fused_rope>("/implementation/kernels/fused_rope"),
    kernel_limit<&KernelChoices::fused_activation>("/implementation/kernels/fused_activation"),
    kernel_limit<&KernelChoices::fused_residual>("/implementation/kernels/fused_residual"),
    kernel_limit<&KernelChoices::masks_without_dropout, false>("/implementation/kernels/masks_without_dropout"),
    kernel_limit<&KernelChoices::splits_projections, false>("/implementation/kernels/splits_projections"),
    kernel_limit<&KernelChoices::copies_qkv, false>("/implementation/kernels/copies_qkv"),
    kernel_limit<&KernelChoices::joins_kv, false>("/implementation/kernels/joins_kv"),
    kernel_limit<&KernelChoices::fused_cross_entropy>("/implementation/kernels/fused_cross_entropy"),
    kernel_limit<&KernelChoices::gathers_logits, false>("/implementation/kernels/gathers_logits"),
    kernel_limit<&KernelChoices::fused_weight_gradient>("/implementation/kernels/fused_weight_gradient"),
    kernel_limit<&KernelChoices::merged_projections>("/implementation/kernels/merged_projections"),
    kernel_limit<&KernelChoices::merged_gate>("/implementation/kernels/merged_gate"),
    kernel_limit<&KernelChoices::grouped_experts>("/implementation/kernels/grouped_experts"),
    kernel_limit<&KernelChoices::fused_optimizer>("/implementation/kernels/fused_optimizer"),
    Limit{"/implementation/kernels/document_tokens",
          [](const Plan& p) {
              const std::int64_t tokens = p.implementation.kernels.document_tokens;
              return refused_unless(tokens == 0, tokens);
          },
          "0", "attention over whole sequences"},
    choice_limit<&Implementation::tensor_parallel, &models::TensorParallelChoices::pipelined_gather>(
        "/implementation/tensor_parallel/pipelined_gather", "whole gathers"),
    choice_limit<&Implementation::pipeline, &models::PipelineChoices::scatters_transfers>(
        "/implementation/pipeline/scatters_transfers", "whole transfers"),
    choice_limit<&Implementation::experts, &models::ExpertChoices::sends_tokens_once>(
        "/implementation/experts/sends_tokens_once", "an all-to-all with a copy of each token for each of its experts"),
    choice_limit<&Implementation::data_parallel, &models::DataParallelChoices::fusion_buffer>(
        "/implementation/data_parallel/fusion_buffer", "reductions in place, without a fusion buffer"),
};

std::string reason_of(const Limit& limit) {
    return std::string("the executor runs ") + limit.runs;
}

/// Calls body(limit) for all limits.
template <typename Body>
void for_each_limit(Body body) {
    const auto visit = [&](const auto& limits) { std::for_each(limits.begin(), limits.end(), body); };
    visit(kParallelismLimits);
    visit(kTrainingLimits);
    visit(kModelLimits);
    visit(kImplementationLimits);
}

}  // namespace

Plan for_executor(Plan plan, std::vector<std::string>& differs) {
    if (plan.implementation.executable) return plan;
    const models::Implementation own = models::load_implementation("orrery");
    differs = models::differences(plan.implementation, own);
    plan.name += "-by-" + own.name;
    plan.implementation = own;
    plan.origins["/implementation"] = "run by its executor";
    plan.rates = program::resolve_rates(own, plan.cluster);
    return plan;
}

void check_executable(const Plan& plan, const std::string& source) {
    if (!plan.implementation.executable) {
        throw InputError(source, "/implementation", plan.implementation.name,
                         "an implementation that the executor runs: orrery");
    }
    for_each_limit([&](const Limit& limit) {
        const std::string value = limit.refused(plan);
        if (value.empty()) return;
        throw InputError(source, limit.pointer, value, std::string(limit.allowed) + ", because " + reason_of(limit));
    });
}

std::vector<RunLimit> executor_limits() {
    std::vector<RunLimit> limits;
    for_each_limit([&](const Limit& limit) { limits.push_back({limit.pointer, limit.allowed, reason_of(limit)}); });
    return limits;
}

}  // namespace orrery::exec
