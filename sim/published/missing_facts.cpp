// Fills in facts that a source leaves open, as anyone who planned the run would, before the run is translated.
#include <algorithm>
#include <cmath>

#include "core/letters.h"
#include "models/model_spec.h"
#include "sim/published/stacks.h"
#include "sim/published/translation.h"
#include "sim/published/words.h"

namespace orrery::published {
namespace {

using models::ModelSpec;

/// Only letters and digits, in lower case: "Llama-3.1 8B" and "llama3.1-8b" become equal.
std::string squeezed(const std::string& name) {
    std::string result;
    for (const char c : name) {
        if (is_letter(c) || is_digit(c)) result += lower_case(c);
    }
    return result;
}

bool agrees(const std::optional<std::int64_t>& stated, std::int64_t known) {
    return !stated || *stated == known;
}

/// Whether the models agree apart from the number of layers; published runs often use fewer.
bool agrees(const PublishedRun::Model& published, const ModelSpec& known) {
    return agrees(published.hidden, known.hidden) && agrees(published.heads, known.heads) &&
           agrees(published.ffn_hidden, known.ffn_hidden) && agrees(published.kv_heads, known.kv_heads) &&
           published.gated_mlp.value_or(known.mlp == models::MlpKind::swiglu) == (known.mlp == models::MlpKind::swiglu);
}

template <typename Value, typename Known>
void fill(std::optional<Value>& fact, const Known& value, const std::string& key, const std::string& why,
          Assumptions& assumptions) {
    if (fact) return;
    fact = value;
    assumptions.add("/" + key, key.substr(key.find('/') + 1), static_cast<std::int64_t>(value), why + "; not stated");
}

void fill_from_zoo(PublishedRun::Model& model, Assumptions& assumptions) {
    const std::optional<ModelSpec> known = known_model(model);
    if (!known) return;
    const std::string why = known->name + "'s";
    fill(model.layers, known->layers, "model/layers", why, assumptions);
    fill(model.hidden, known->hidden, "model/hidden", why, assumptions);
    fill(model.heads, known->heads, "model/heads", why, assumptions);
    fill(model.kv_heads, known->kv_heads, "model/kv_heads", why, assumptions);
    fill(model.ffn_hidden, known->ffn_hidden, "model/ffn_hidden", why, assumptions);
    fill(model.vocab, known->vocab, "model/vocab", why, assumptions);
    if (!model.gated_mlp) model.gated_mlp = known->mlp == models::MlpKind::swiglu;
    if (known->has_experts() && !model.experts) {
        const models::MixtureOfExperts& moe = known->moe;
        model.experts = PublishedRun::Experts{.count = moe.expert_count,
                                              .top_k = moe.top_k,
                                              .ffn_hidden = moe.expert_ffn_hidden,
                                              .shared_ffn_hidden = moe.shared_ffn_hidden,
                                              .dense_layers = moe.first_dense_layers};
        assumptions.add("/model/moe", "experts", moe.expert_count, why + "; not stated");
    }
    if (known->latent.kv_lora_rank > 0 && !model.latent) {
        model.latent = PublishedRun::LatentAttention{.q_lora = known->latent.q_lora_rank,
                                                     .kv_lora = known->latent.kv_lora_rank,
                                                     .qk_head = known->latent.nope_head_dim,
                                                     .rope_head = known->latent.rope_head_dim,
                                                     .v_head = known->latent.v_head_dim};
        assumptions.add("/model/latent", "attention", "latent", why + "; not stated");
    }
}

/// Whether the name is that of Llama or of a family that adopted its gated MLP.
bool is_named_gated(const std::string& name) {
    return Words(name).name_any(
        "llama|mistral|mixtral|qwen|qwen2|qwen3|gemma|gemma2|internlm|deepseek|olmo|baichuan|yi|phi3|phi4|grok|palm|"
        "codellama|vicuna|tinyllama|smollm|smollm2|aquila|minicpm|skywork|chatglm|glm|gptoss|kimi|lingua|openllama");
}

void fill_mlp(PublishedRun::Model& model, Assumptions& assumptions) {
    const std::int64_t hidden = *model.hidden;
    if (!model.gated_mlp) {
        const bool gated = model.ffn_hidden ? *model.ffn_hidden != 4 * hidden || is_named_gated(model.name)
                                            : is_named_gated(model.name);
        model.gated_mlp = gated;
        assumptions.add("/model/mlp", "MLP", gated ? "gated" : "not gated",
                        is_named_gated(model.name) ? "the family that the name says; not stated"
                        : model.ffn_hidden         ? "by ffn_hidden beside hidden; not stated"
                                                   : "GPT's; not stated");
    }
    if (model.ffn_hidden) return;
    if (!*model.gated_mlp) {
        fill(model.ffn_hidden, 4 * hidden, "model/ffn_hidden", "4 times hidden", assumptions);
        return;
    }
    constexpr std::int64_t kMultiple = 256;  // Llama's multiple_of
    const std::int64_t two_thirds = (8 * hidden + 2) / 3;
    fill(model.ffn_hidden, (two_thirds + kMultiple - 1) / kMultiple * kMultiple, "model/ffn_hidden",
         "8/3 of hidden to the next multiple of 256, as in Llama", assumptions);
}

/// Number of blocks from the published number of parameters less the embedding, rounded to a multiple of the stages.
void fill_layers(PublishedRun& run, Assumptions& assumptions) {
    PublishedRun::Model& model = run.model;
    if (model.layers || !model.parameters || !model.hidden || model.experts) return;
    const auto h = static_cast<double>(*model.hidden);
    const double groups = static_cast<double>(model.kv_heads.value_or(1)) /
                          static_cast<double>(model.heads.value_or(model.kv_heads.value_or(1)));
    const double mlp = (model.gated_mlp.value_or(false) ? 3.0 : 2.0) *
                       static_cast<double>(model.ffn_hidden.value_or(4 * *model.hidden)) * h;
    const double block = (2.0 + 2.0 * std::min(1.0, groups)) * h * h + mlp;
    const double blocks = (*model.parameters - static_cast<double>(model.vocab.value_or(0)) * h) / block;
    const std::int64_t stages = run.parallel.pp.value_or(1) * run.parallel.chunks.value_or(1);
    const std::int64_t each = std::llround(blocks / static_cast<double>(stages));
    if (each < 1) return;
    fill(model.layers, each * stages, "model/layers",
         "from the published number of parameters, rounded to a multiple of the stages", assumptions);
}

/// Heads of the width nearest to the usual one that divides the hidden size and leaves a number of heads that tp
/// divides.
void fill_heads(PublishedRun& run, Assumptions& assumptions) {
    constexpr std::int64_t kSmallWidth = 2048, kStep = 8;
    const std::int64_t hidden = *run.model.hidden, tp = run.parallel.tp.value_or(1);
    const std::int64_t usual = hidden < kSmallWidth ? 64 : 128;
    for (std::int64_t off = 0; off < usual; off += kStep) {
        for (const std::int64_t width : {usual - off, usual + off}) {
            if (hidden % width != 0 || hidden / width % tp != 0) continue;
            fill(run.model.heads, hidden / width, "model/heads", "of " + std::to_string(width) + " each", assumptions);
            return;
        }
    }
}

void fill_model(PublishedRun& run, Assumptions& assumptions) {
    PublishedRun::Model& model = run.model;
    fill_from_zoo(model, assumptions);
    fill_layers(run, assumptions);
    if (!model.hidden) return;  // reported by model_of
    fill_mlp(model, assumptions);
    if (!model.heads) fill_heads(run, assumptions);
    if (model.heads && !model.kv_heads && !model.latent) {
        fill(model.kv_heads, *model.heads, "model/kv_heads", "as many as heads", assumptions);
    }
    if (model.heads && !model.kv_heads) model.kv_heads = model.heads;
}

/// Fills in degrees from each other and from the number of GPUs. Sources state the degrees they use, so an unstated
/// degree is 1. If a stated dp does not account for all GPUs, the rest is tensor parallelism within a node, then
/// pipeline parallelism.
void fill_degrees(PublishedRun& run, Assumptions& assumptions) {
    PublishedRun::Parallel& parallel = run.parallel;
    std::optional<std::int64_t>& gpus = run.hardware.gpus;
    if (!gpus && parallel.dp) {
        fill(gpus, *parallel.dp * parallel.tp.value_or(1) * parallel.pp.value_or(1) * parallel.cp.value_or(1),
             "hardware/num_gpus", "the product of the degrees", assumptions);
    }
    if (!gpus) return;
    const std::int64_t known = parallel.cp.value_or(1) * parallel.tp.value_or(1) * parallel.pp.value_or(1);
    if (parallel.dp && *gpus % (known * *parallel.dp) == 0) {
        std::int64_t rest = *gpus / (known * *parallel.dp);
        if (!parallel.tp) {
            const std::int64_t in_node =
                parallel.pp ? rest : std::min(rest, std::max<std::int64_t>(1, run.hardware.gpus_per_node.value_or(8)));
            if (rest % in_node == 0) {
                fill(parallel.tp, in_node, "parallelism/tp", "what the other degrees leave, in a node", assumptions);
                rest /= in_node;
            }
        }
        if (!parallel.pp) fill(parallel.pp, rest, "parallelism/pp", "what the other degrees leave", assumptions);
    }
    fill(parallel.tp, 1, "parallelism/tp", "sources state the degrees they use", assumptions);
    fill(parallel.pp, 1, "parallelism/pp", "sources state the degrees they use", assumptions);
}

void fill_batch(PublishedRun& run, Assumptions& assumptions) {
    fill(run.micro_batch, 1, "training/micro_batch_size", "the smallest", assumptions);
    if (!run.global_batch || !run.hardware.gpus || !run.parallel.tp || !run.parallel.pp) return;
    // Sources round: 1,538 sequences with 12 ranks of 4 are really 1,536.
    constexpr double kRounding = 0.03;
    const std::int64_t copy = *run.parallel.tp * *run.parallel.pp * run.parallel.cp.value_or(1);
    const std::int64_t one =
        std::max<std::int64_t>(1, run.parallel.dp.value_or(*run.hardware.gpus / copy)) * *run.micro_batch;
    const auto stated = static_cast<double>(*run.global_batch);
    const std::int64_t nearest = std::llround(stated / static_cast<double>(one)) * one;
    if (nearest < 1 || nearest == *run.global_batch) return;
    if (std::abs(static_cast<double>(nearest) / stated - 1) > kRounding) return;
    run.global_batch = nearest;
    assumptions.add("/training/global_batch_size", "global batch", nearest,
                    "the nearest that micro-batches divide; the stated one is rounded");
}

}  // namespace

std::optional<ModelSpec> known_model(const PublishedRun::Model& model) {
    const Words name(model.name);
    std::string best;
    for (const std::string& known : models::zoo_names()) {
        const std::string plain = squeezed(known);
        if (plain.size() > squeezed(best).size() && name.name_any(plain)) best = known;
    }
    if (best.empty()) return {};
    ModelSpec spec = models::load_model(best);
    if (!agrees(model, spec)) return {};
    return spec;
}

PublishedRun with_missing_facts(PublishedRun run, Assumptions& assumptions) {
    if (!run.hardware.gpus_per_node) {
        fill(run.hardware.gpus_per_node, usual_gpus_per_node(run), "hardware/gpus_per_node",
             "as this GPU usually comes", assumptions);
    }
    fill_model(run, assumptions);
    fill_degrees(run, assumptions);
    fill_batch(run, assumptions);
    return run;
}

}  // namespace orrery::published
