// Configurations of models with LayerNorm and an ungated MLP.
#include "models/hugging_face.h"
#include "models/model_limits.h"

namespace orrery::models {
namespace {

/// GELU, by the names of both of its forms, or ReLU.
MlpKind read_activation(const JsonReader& reader, const std::string& key, const std::string& fallback) {
    const std::vector<std::string> names{"gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "relu"};
    const std::string name = reader.has(key) ? reader.choice(key, names) : fallback;
    return name == "relu" ? MlpKind::relu : MlpKind::gelu;
}

/// The common part of these families: as many key/value heads as heads, and biases.
ModelSpec read_gpt_like(const JsonReader& reader, const HuggingFaceFamily& family) {
    ModelSpec model;
    read_size(reader, family, model);
    model.heads = reader.integer(name_in(reader, family.keys, "heads"), kPositiveInteger);
    model.head_dim = head_dim_from(reader, family, model);
    model.kv_heads = model.heads;
    model.ffn_hidden = 4 * model.hidden;
    model.vocab = reader.integer("vocab_size", kVocabLimits);
    model.norm = NormKind::layer_norm;
    model.position = PositionKind::learned;
    model.mlp = MlpKind::gelu;
    model.qkv_bias = model.attention_output_bias = model.mlp_bias = true;
    return model;
}

ModelSpec read_gpt2(const JsonReader& reader, const HuggingFaceFamily& family) {
    expect_activation(reader, "activation_function", {"gelu_new", "gelu_pytorch_tanh"});
    if (reader.has("scale_attn_weights") && !reader.boolean("scale_attn_weights")) {
        reader.fail("scale_attn_weights", "true");
    }
    ModelSpec model = read_gpt_like(reader, family);
    if (given(reader, "n_inner")) model.ffn_hidden = reader.integer("n_inner", kFfnHiddenLimits);
    model.max_positions = reader.integer("n_positions", kPositionLimits);
    model.norm_epsilon = reader.number_or("layer_norm_epsilon", kPositive, 1e-5);
    return model;
}

ModelSpec read_gpt_neox(const JsonReader& reader, const HuggingFaceFamily& family) {
    ModelSpec model = read_gpt_like(reader, family);
    model.mlp = read_activation(reader, "hidden_act", "gelu");
    model.ffn_hidden = reader.integer("intermediate_size", kFfnHiddenLimits);
    model.max_positions = reader.integer("max_position_embeddings", kPositionLimits);
    model.norm_epsilon = reader.number_or("layer_norm_eps", kPositive, 1e-5);
    model.qkv_bias = model.attention_output_bias = reader.boolean_or("attention_bias", true);
    model.parallel_residual = reader.boolean_or("use_parallel_residual", true);
    model.position = PositionKind::rotary;
    // Files written by transformers 5 use the same key as other families.
    const std::string theta = reader.has("rotary_emb_base") ? "rotary_emb_base" : "rope_theta";
    const std::string fraction = given(reader, "partial_rotary_factor") ? "partial_rotary_factor" : "rotary_pct";
    read_rotary(reader, {.theta = theta, .fraction = fraction, .fraction_default = 0.25}, model);
    return model;
}

ModelSpec read_opt(const JsonReader& reader, const HuggingFaceFamily& family) {
    ModelSpec model = read_gpt_like(reader, family);
    if (given(reader, "word_embed_proj_dim") && reader.integer("word_embed_proj_dim", kHiddenLimits) != model.hidden) {
        reader.fail("word_embed_proj_dim",
                    "hidden_size, " + std::to_string(model.hidden) + ": embeddings of another width are not modelled");
    }
    if (!reader.boolean_or("layer_norm_elementwise_affine", true)) {
        reader.fail("layer_norm_elementwise_affine", "true");
    }
    model.mlp = read_activation(reader, "activation_function", "relu");
    model.ffn_hidden = reader.integer("ffn_dim", kFfnHiddenLimits);
    model.max_positions = reader.integer("max_position_embeddings", kPositionLimits);
    model.position_offset = 2;  // fixed in the code; there is no key
    model.qkv_bias = model.attention_output_bias = model.mlp_bias = reader.boolean_or("enable_bias", true);
    model.post_norm = !reader.boolean_or("do_layer_norm_before", true);
    const bool removed = reader.boolean_or("_remove_final_layer_norm", false);
    model.final_norm = !model.post_norm && !removed;
    return model;
}

ModelSpec read_bloom(const JsonReader& reader, const HuggingFaceFamily& family) {
    ModelSpec model = read_gpt_like(reader, family);
    model.position = PositionKind::alibi;
    model.embedding_norm = true;
    // ALiBi has no limit, and the class has no such key: 2048 is the length that BLOOM was trained with.
    model.max_positions = reader.integer_or("seq_length", kPositiveInteger, 2048);
    model.norm_epsilon = reader.number_or("layer_norm_epsilon", kPositive, 1e-5);
    return model;
}

ModelSpec read_falcon(const JsonReader& reader, const HuggingFaceFamily& family) {
    ModelSpec model = read_gpt_like(reader, family);
    const bool parallel = reader.boolean_or("parallel_attn", true);
    const bool multi_query = reader.boolean_or("multi_query", true);
    const std::string kv_heads = name_in(reader, family.keys, "kv_heads");
    if (reader.boolean_or("new_decoder_architecture", false)) {
        if (!parallel) reader.fail("parallel_attn", "true when new_decoder_architecture is true");
        if (given(reader, kv_heads)) model.kv_heads = reader.integer(kv_heads, kHeadLimits);
        // Null counts as absent.
        const bool stated = given(reader, "num_ln_in_parallel_attn");
        model.shared_input_norm = stated && reader.integer("num_ln_in_parallel_attn", {1, 2}) == 1;
    } else {
        if (multi_query) model.kv_heads = 1;
        if (parallel && given(reader, "num_ln_in_parallel_attn") &&
            reader.integer("num_ln_in_parallel_attn", kCount) != 1) {
            reader.fail("num_ln_in_parallel_attn", "1 or absent when new_decoder_architecture is false");
        }
        model.shared_input_norm = parallel;
    }
    model.parallel_residual = parallel;
    model.qkv_bias = model.attention_output_bias = model.mlp_bias = reader.boolean_or("bias", false);
    model.mlp = read_activation(reader, "activation", "gelu");
    if (given(reader, "ffn_hidden_size")) model.ffn_hidden = reader.integer("ffn_hidden_size", kFfnHiddenLimits);
    model.max_positions = reader.integer_or("max_position_embeddings", kPositiveInteger, 2048);
    model.norm_epsilon = reader.number_or("layer_norm_epsilon", kPositive, 1e-5);
    if (reader.boolean_or("alibi", false)) {
        model.position = PositionKind::alibi;
    } else {
        model.position = PositionKind::rotary;
        read_rotary(reader, {}, model);
    }
    return model;
}

/// The masked language model. The pooler belongs to BertModel and BertForPreTraining, whose second loss is not
/// modelled.
ModelSpec read_bert(const JsonReader& reader, const HuggingFaceFamily& family) {
    ModelSpec model = read_gpt_like(reader, family);
    if (reader.boolean_or("is_decoder", false)) reader.fail("is_decoder", "false");
    if (given(reader, "position_embedding_type")) (void)reader.choice("position_embedding_type", {"absolute"});
    model.mlp = read_activation(reader, "hidden_act", "gelu");
    model.ffn_hidden = reader.integer("intermediate_size", kFfnHiddenLimits);
    model.max_positions = reader.integer("max_position_embeddings", kPositionLimits);
    model.norm_epsilon = reader.number_or("layer_norm_eps", kPositive, 1e-12);
    model.token_types = reader.integer_or("type_vocab_size", kCount, 2);
    model.causal = false;
    model.embedding_norm = model.post_norm = true;
    model.final_norm = false;  // the last block ends with a norm
    model.head_transform = model.head_bias = true;
    return model;
}

}  // namespace

const std::vector<HuggingFaceFamily>& gpt_families() {
    static const HuggingFaceKeys usual{{"layers", {"num_hidden_layers"}},
                                       {"hidden", {"hidden_size"}},
                                       {"heads", {"num_attention_heads"}},
                                       {"kv_heads", {"num_attention_heads"}},
                                       {"head_dim", {"num_attention_heads"}},
                                       {"ffn_hidden", {"intermediate_size"}},
                                       {"vocab", {"vocab_size"}},
                                       {"max_positions", {"max_position_embeddings"}},
                                       {"norm_epsilon", {"layer_norm_eps"}},
                                       {"rope_theta", {"rotary_emb_base", "rope_theta"}},
                                       {"rotary_fraction", {"rotary_pct", "partial_rotary_factor"}},
                                       {"token_types", {"type_vocab_size"}}};
    const auto changed = [](HuggingFaceKeys changes) {
        changes.insert(usual.begin(), usual.end());  // does not overwrite existing entries
        return changes;
    };
    static const std::vector<HuggingFaceFamily> families{
        {"gpt2",
         "GPT2LMHeadModel",
         read_gpt2,
         changed({{"layers", {"n_layer"}},
                  {"hidden", {"n_embd"}},
                  {"heads", {"n_head"}},
                  {"kv_heads", {"n_head"}},
                  {"head_dim", {"n_embd"}},
                  {"ffn_hidden", {"n_inner"}},
                  {"max_positions", {"n_positions"}},
                  {"norm_epsilon", {"layer_norm_epsilon"}}}),
         {},
         true},
        {"gpt_neox",
         "GPTNeoXForCausalLM",
         read_gpt_neox,
         usual,
         {"use_parallel_residual", "rotary_pct", "partial_rotary_factor"},
         false},
        {"opt", "OPTForCausalLM", read_opt, changed({{"ffn_hidden", {"ffn_dim"}}}), {}, true},
        {"bloom",
         "BloomForCausalLM",
         read_bloom,
         changed({{"layers", {"n_layer", "num_hidden_layers"}},
                  {"hidden", {"hidden_size", "n_embed"}},
                  {"heads", {"n_head", "num_attention_heads"}},
                  {"kv_heads", {"n_head", "num_attention_heads"}},
                  {"max_positions", {"seq_length"}},
                  {"norm_epsilon", {"layer_norm_epsilon"}}}),
         {},
         true},
        {"falcon",
         "FalconForCausalLM",
         read_falcon,
         changed({{"layers", {"num_hidden_layers", "n_layer"}},
                  {"hidden", {"hidden_size", "n_embed"}},
                  {"heads", {"num_attention_heads", "n_head"}},
                  {"kv_heads", {"num_kv_heads", "n_head_kv"}},
                  {"ffn_hidden", {"ffn_hidden_size"}},
                  {"norm_epsilon", {"layer_norm_epsilon"}},
                  {"rope_theta", {"rope_theta"}}}),
         {"alibi", "parallel_attn", "new_decoder_architecture", "multi_query"},
         true},
        {"bert", "BertForMaskedLM", read_bert, usual, {}, true}};
    return families;
}

}  // namespace orrery::models
