#include "reports/model_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "reports/table.h"

namespace orrery::reports {
namespace {

using models::ModelSpec;

/// In millions or billions, with 3 significant digits, as model sizes are usually quoted.
std::string billions(std::int64_t parameters) {
    const double count = static_cast<double>(parameters);
    if (count < 1e6) return format_integer(parameters);
    return count < 1e9 ? fmt::format("{:.3g} M", count / 1e6)
                       : fmt::format("{:.{}f} B", count / 1e9, count < 1e10 ? 2 : 1);
}

std::string attention_text(const ModelSpec& m) {
    std::string text = fmt::format("{} heads of {}", m.heads, m.head_dim);
    if (m.has_latent_attention()) {
        text += fmt::format(", latent: keys and values of rank {}, values of {} a head", m.latent.kv_lora_rank,
                            m.latent.v_head_dim);
    } else if (m.kv_heads != m.heads) {
        text += fmt::format(", {} key/value heads", m.kv_heads);
    }
    if (m.sliding_window > 0)
        text += fmt::format(", a sliding window of {} positions", format_integer(m.sliding_window));
    return text + (m.causal ? ", causal" : ", in both directions");
}

std::string mlp_text(const ModelSpec& m) {
    const char* kind = m.mlp == models::MlpKind::swiglu ? "SwiGLU" : m.mlp == models::MlpKind::relu ? "ReLU" : "GELU";
    return fmt::format("{} of width {}", kind, format_integer(m.ffn_hidden));
}

std::string experts_text(const ModelSpec& m) {
    std::int64_t layers = 0;
    for (std::int64_t layer = 0; layer < m.layers; ++layer) layers += m.is_expert_layer(layer) ? 1 : 0;
    std::string text = fmt::format("{} of width {}, {} a token, in {} of {} layers", m.moe.expert_count,
                                   format_integer(m.moe.expert_ffn_hidden), m.moe.top_k, layers, m.layers);
    if (m.moe.shared_ffn_hidden > 0) text += fmt::format("; shared: {}", format_integer(m.moe.shared_ffn_hidden));
    return text;
}

}  // namespace

std::string parameters_text(const ModelSpec& model) {
    const models::ParameterCounts counts = models::parameter_counts(model);
    std::string text = billions(counts.all()) + " parameters";
    if (model.has_experts()) text += ", " + billions(counts.active) + " of them active";
    return text;
}

LeftOutShares left_out_shares(const ModelSpec& model, std::int64_t sequence_length) {
    constexpr auto kConvention = models::FlopsConvention::palm;  // as for MFU
    const models::LeftOutLayers layers = models::prediction_layers_left_out(model, sequence_length, kConvention);
    return {.parameters = static_cast<double>(layers.parameters) / static_cast<double>(models::parameter_count(model)),
            .flops = layers.flops / models::model_flops_per_sequence(model, sequence_length, kConvention)};
}

std::string left_out_text(const ModelSpec& model, std::int64_t sequence_length, int indent) {
    std::string text;
    for (const std::string& what : model.left_out) text += fmt::format("{:{}}left out: {}\n", "", indent, what);
    if (model.left_out_prediction_layers == 0) return text;
    const std::int64_t length = std::max<std::int64_t>(sequence_length, 1);
    const LeftOutShares shares = left_out_shares(model, length);
    const std::int64_t parameters =
        models::prediction_layers_left_out(model, length, models::FlopsConvention::palm).parameters;
    text += fmt::format("{:{}}left out with these layers: {} parameters, {} of the model's", "", indent,
                        billions(parameters), format_percent(shares.parameters));
    if (sequence_length > 0) {
        text += fmt::format("; {} of its FLOPs at {} tokens a sequence", format_percent(shares.flops),
                            format_integer(sequence_length));
    }
    return text + "\n";
}

std::string model_text(const ModelSpec& model) {
    const models::ParameterCounts counts = models::parameter_counts(model);
    const auto line = [](const char* what, const std::string& value) {
        return fmt::format("  {:<12} {}\n", what, value);
    };
    std::string text = fmt::format("{} ({})\n", model.name, model.family);
    text += line("parameters", fmt::format("{} ({})", format_integer(counts.all()), parameters_text(model)));
    text += line("  embedding", format_integer(counts.embedding) +
                                    (model.tied_embeddings ? ", shared with the head" : ", with the head"));
    text += line("  dense", format_integer(counts.dense));
    if (model.has_experts()) {
        text += line("  experts", format_integer(counts.experts));
        text += line("  active", format_integer(counts.active));
    }
    text += line("layers", fmt::format("{}, hidden {}", model.layers, format_integer(model.hidden)));
    text += line("attention", attention_text(model));
    text += line("MLP", mlp_text(model));
    if (model.has_experts()) text += line("experts", experts_text(model));
    text += line("vocabulary", format_integer(model.vocab));
    text += line("positions", format_integer(model.max_positions));
    return text + left_out_text(model, 0, 2);
}

}  // namespace orrery::reports
