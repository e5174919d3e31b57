#include "models/implementation.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "core/embedded.h"
#include "core/error.h"
#include "core/file.h"
#include "core/json_reader.h"

namespace orrery {
std::span<const EmbeddedFile> implementation_files();
}

namespace orrery::models {
namespace {

constexpr const char* kSchema = "orrery.implementation/1";
constexpr IntegerRange kVocabMultiple{1, 1 << 16};  // keeps a padded vocabulary far from overflow
constexpr IntegerRange kUnitsAhead{0, 1 << 10};
constexpr IntegerRange kElements{0, std::int64_t{1} << 40};
constexpr NumberRange kLaunchFactor{0, 1000};
constexpr NumberRange kGibibytes{0, 1 << 20};

/// The only list of the fields: calls `visit(key, field, range)` for each field of a section, for reading and writing.
template <typename Choices, typename Visit>
void visit_fields(Choices& c, Visit&& visit) requires std::is_same_v<std::remove_const_t<Choices>, KernelChoices> {
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

template <typename Choices, typename Visit>
void visit_fields(Choices& c,
                  Visit&& visit) requires std::is_same_v<std::remove_const_t<Choices>, TensorParallelChoices> {
    visit("overlaps_input_gradient", c.overlaps_input_gradient);
    visit("reduces_inputs_apart", c.reduces_inputs_apart);
    visit("pipelined_gather", c.pipelined_gather);
    visit("keeps_gathered_inputs", c.keeps_gathered_inputs);
}

template <typename Choices, typename Visit>
void visit_fields(Choices& c, Visit&& visit) requires std::is_same_v<std::remove_const_t<Choices>, PipelineChoices> {
    visit("posts_receives_ahead", c.posts_receives_ahead);
    visit("posts_interleaved_receives_ahead", c.posts_interleaved_receives_ahead);
    visit("scatters_transfers", c.scatters_transfers);
}

template <typename Choices, typename Visit>
void visit_fields(Choices& c,
                  Visit&& visit) requires std::is_same_v<std::remove_const_t<Choices>, DataParallelChoices> {
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

template <typename Choices, typename Visit>
void visit_fields(Choices& c, Visit&& visit) requires std::is_same_v<std::remove_const_t<Choices>, HostChoices> {
    visit("launch_factor", c.launch_factor, kLaunchFactor);
    visit("waits_after_micro_batch", c.waits_after_micro_batch);
    visit("waits_for_transfers", c.waits_for_transfers);
    visit("waits_for_gradient_norm", c.waits_for_gradient_norm);
    visit("validates_after_update", c.validates_after_update);
}

template <typename Choices, typename Visit>
void visit_fields(Choices& c, Visit&& visit) requires std::is_same_v<std::remove_const_t<Choices>, MemoryChoices> {
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

template <typename Choices, typename Visit>
void visit_fields(Choices& c, Visit&& visit) requires std::is_same_v<std::remove_const_t<Choices>, Support> {
    visit("source", c.source);
    visit("most_nodes", c.most_nodes, kElements);
    visit("axes", c.axes);
    visit("sequence_parallel", c.sequence_parallel);
    visit("context_parallel", c.context_parallel);
    visit("schedules", c.schedules);
    visit("vocabulary_parallel", c.vocabulary_parallel);
    visit("data_parallel", c.data_parallel);
    visit("data_parallel_of_pipelines", c.data_parallel_of_pipelines);
    visit("default_data_parallel", c.default_data_parallel);
    visit("shard_groups", c.shard_groups);
    visit("precisions", c.precisions);
    visit("narrow_products", c.narrow_products);
    visit("recompute", c.recompute);
    visit("recompute_parts", c.recompute_parts);
    visit("offload", c.offload);
    visit("compiled_as", c.compiled_as);
    visit("eager_as", c.eager_as);
}

template <typename Choices, typename Visit>
void visit_fields(Choices& c, Visit&& visit) requires std::is_same_v<std::remove_const_t<Choices>, Implementation> {
    visit("executable", c.executable);
    visit("default_dropout", c.default_dropout, kFraction);
    visit("vocab_multiple", c.vocab_multiple, kVocabMultiple);
    visit("gradients_in_fp32", c.gradients_in_fp32);
    visit("reduces_in_fp32", c.reduces_in_fp32);
    visit("fp16_gradients_in_fp32", c.fp16_gradients_in_fp32);
    visit("master_weights", c.master_weights);
    visit("stores_fp32_shards", c.stores_fp32_shards);
    visit("recompute_stops_early", c.recompute_stops_early);
}

/// Sections by key, after the fields above.
template <typename Owner, typename Visit>
void visit_sections(Owner& owner, Visit&& visit) {
    visit("kernels", owner.kernels);
    visit("tensor_parallel", owner.tensor_parallel);
    visit("pipeline", owner.pipeline);
    visit("data_parallel", owner.data_parallel);
    visit("host", owner.host);
    visit("memory", owner.memory);
    visit("supports", owner.supports);
}

MemoryFigure read_memory_figure(const JsonReader& reader, NumberRange range) {
    MemoryFigure figure{.value = reader.number("value", range), .kind = reader.string("kind")};
    if (figure.kind != "published" && figure.kind != "fitted" && figure.kind != "fallback") {
        reader.fail("kind", "published, fitted or fallback");
    }
    figure.source = reader.string("source");
    reader.finish();
    return figure;
}

/// Absent keys keep their current values.
template <typename Choices>
void read_fields(const JsonReader& reader, Choices& choices) {
    visit_fields(choices, [&reader](const char* key, auto& field, auto... range) {
        if (!reader.has(key)) return;
        using Field = std::remove_reference_t<decltype(field)>;
        if constexpr (std::is_same_v<Field, bool>) {
            field = reader.boolean(key);
        } else if constexpr (std::is_same_v<Field, std::string>) {
            field = reader.string(key);
        } else if constexpr (std::is_same_v<Field, std::int64_t>) {
            field = reader.integer(key, range...);
        } else if constexpr (std::is_same_v<Field, std::vector<std::string>>) {
            field = reader.strings(key);
        } else if constexpr (std::is_same_v<Field, MemoryFigure>) {
            field = read_memory_figure(reader.object(key), range...);
        } else {
            field = reader.number(key, range...);
        }
    });
}

template <typename Choices>
void write_fields(nlohmann::ordered_json& json, const Choices& choices) {
    visit_fields(choices, [&json](const char* key, const auto& field, auto...) {
        if constexpr (std::is_same_v<std::remove_cvref_t<decltype(field)>, MemoryFigure>) {
            if (field.source.empty()) return;
            json[key] = {{"value", field.value}, {"kind", field.kind}, {"source", field.source}};
        } else {
            json[key] = field;
        }
    });
}

}  // namespace

std::vector<std::string> implementation_names() {
    std::vector<std::string> names;
    for (const EmbeddedFile& file : implementation_files()) names.emplace_back(file.name);
    std::sort(names.begin(), names.end());  // the files are sorted with their extension
    return names;
}

std::vector<std::string> bases_of(const std::string& name) {
    std::vector<std::string> bases;
    std::string at = name;
    while (true) {
        const auto files = implementation_files();
        const auto file = std::find_if(files.begin(), files.end(), [&](const auto& one) { return one.name == at; });
        if (file == files.end()) return bases;
        const JsonReader reader =
            JsonReader::parse(std::string(file->content), "implementation " + at, JsonPolicy::lenient);
        if (!reader.has("based_on")) return bases;
        at = reader.string("based_on");
        bases.push_back(at);
    }
}

Implementation load_implementation(const std::string& name) {
    for (const EmbeddedFile& file : implementation_files()) {
        if (file.name == name)
            return implementation_from_json_text(std::string(file.content), "implementation " + name);
    }
    const std::vector<std::string> names = implementation_names();
    std::string list;
    for (const std::string& known : names) list += (list.empty() ? "" : ", ") + known;
    const std::string nearest = nearest_name(name, names);
    throw InputError("implementation \"" + name + "\": no implementation has this name" +
                     (nearest.empty() ? ";" : "; did you mean \"" + nearest + "\"?") + " allowed: " + list);
}

std::string to_json_text(const Implementation& implementation) {
    nlohmann::ordered_json json;
    json["schema"] = kSchema;
    json["name"] = implementation.name;
    json["version"] = implementation.version;
    json["source"] = implementation.source;
    write_fields(json, implementation);
    visit_sections(implementation, [&](const char* key, const auto& section) {
        constexpr bool kIsSupport = std::is_same_v<std::remove_cvref_t<decltype(section)>, Support>;
        if (kIsSupport && implementation.supports.source.empty()) return;
        write_fields(json[key], section);
    });
    return json.dump(2) + "\n";
}

std::vector<std::string> differences(const Implementation& a, const Implementation& b) {
    const auto behaviour = [](const Implementation& implementation) {
        nlohmann::json json = nlohmann::json::parse(to_json_text(implementation));
        for (const char* key : {"name", "version", "source", "executable", "memory", "supports"}) json.erase(key);
        return json.flatten();
    };
    const nlohmann::json one = behaviour(a), other = behaviour(b);
    std::vector<std::string> keys;
    for (const auto& [key, value] : one.items()) {
        if (!other.contains(key) || other.at(key) != value) keys.push_back(key.substr(1));
    }
    return keys;
}

Implementation implementation_from_json(const JsonReader& reader) {
    reader.expect_schema(kSchema);
    Implementation result;
    if (reader.has("based_on")) {
        const std::string base = reader.string("based_on");
        if (base == reader.string("name")) reader.fail("based_on", "the name of another implementation");
        result = load_implementation(base);
        result.executable = false;
    }
    result.name = reader.string("name");
    result.version = reader.string("version");
    result.source = reader.string("source");
    read_fields(reader, result);
    if (result.default_dropout >= 1) reader.fail("default_dropout", "a number of at least 0 and below 1");
    visit_sections(result, [&reader](const char* key, auto& section) {
        if (!reader.has(key)) return;
        const JsonReader object = reader.object(key);
        read_fields(object, section);
        object.finish();
    });
    if (reader.has("supports") && result.supports.source.empty()) {
        reader.object("supports").fail("source", "a text that names where these facts were read");
    }
    reader.finish();
    return result;
}

Implementation implementation_from_json_text(const std::string& text, const std::string& file) {
    return implementation_from_json(JsonReader::parse(text, file));
}

}  // namespace orrery::models
