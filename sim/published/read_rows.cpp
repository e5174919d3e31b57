#include <algorithm>
#include <filesystem>
#include <set>

#include "core/enum_names.h"
#include "core/error.h"
#include "core/file.h"
#include "core/json_reader.h"
#include "sim/published/published_run.h"
#include "sim/published/read_out_of_memory.h"
#include "sim/published/run_table.h"

namespace orrery::published {
namespace {

bool stated(const JsonReader& reader, const std::string& key) {
    return reader.has(key) && !reader.is_null(key);
}

std::optional<std::int64_t> optional_integer(const JsonReader& reader, const std::string& key) {
    if (!stated(reader, key)) return {};
    return reader.integer(key, kPositiveInteger);
}
std::optional<bool> optional_boolean(const JsonReader& reader, const std::string& key) {
    if (!stated(reader, key)) return {};
    return reader.boolean(key);
}
std::optional<double> optional_number(const JsonReader& reader, const std::string& key, NumberRange range) {
    if (!stated(reader, key)) return {};
    return reader.number(key, range);
}
std::string optional_string(const JsonReader& reader, const std::string& key) {
    return stated(reader, key) ? reader.string(key) : "";
}
/// Published words; sometimes a bare number ("data_parallel_as_published": 3).
std::string words(const JsonReader& reader, const std::string& key) {
    if (!stated(reader, key)) return "";
    if (reader.kind(key) == JsonKind::integer) return std::to_string(reader.integer(key, kCount));
    return reader.string(key);
}

std::map<std::string, double> numbers_by_key(const JsonReader& reader) {
    std::map<std::string, double> result;
    for (const std::string& key : reader.keys()) {
        if (!reader.is_null(key)) result[key] = reader.number(key, kNotNegative);
    }
    return result;
}

void read_hardware(const JsonReader& reader, PublishedRun& run) {
    run.hardware.gpu = optional_string(reader, "gpu");
    run.hardware.gpu_words = optional_string(reader, "gpu_as_published");
    run.hardware.gpus_per_node = optional_integer(reader, "gpus_per_node");
    run.hardware.gpus = optional_integer(reader, "num_gpus");
    run.hardware.intra_node = optional_string(reader, "intra_node");
    run.hardware.inter_node = optional_string(reader, "inter_node");
}

PublishedRun::Experts read_experts(const JsonReader& reader) {
    PublishedRun::Experts experts;
    experts.count = reader.integer(reader.has("experts") ? "experts" : "num_experts", kPositiveInteger);
    experts.top_k = reader.integer("top_k", kPositiveInteger);
    experts.ffn_hidden = reader.integer("moe_ffn_hidden", kPositiveInteger);
    if (stated(reader, "shared_expert_ffn_hidden")) {
        experts.shared_ffn_hidden = reader.integer("shared_expert_ffn_hidden", kCount);
    } else if (stated(reader, "shared_experts")) {
        experts.shared_ffn_hidden = reader.integer("shared_experts", {0, 1 << 12}) * experts.ffn_hidden;
    }
    experts.dense_layers = stated(reader, "dense_layers") ? reader.integer("dense_layers", kCount) : 0;
    experts.capacity_factor = optional_number(reader, "capacity_factor", kNotNegative).value_or(0);
    experts.pads_to_capacity = optional_boolean(reader, "pad_to_capacity").value_or(false);
    return experts;
}

PublishedRun::LatentAttention read_latent(const JsonReader& reader) {
    return {.q_lora = reader.integer("q_lora", kCount),
            .kv_lora = reader.integer("kv_lora", kPositiveInteger),
            .qk_head = reader.integer("qk_head", kPositiveInteger),
            .rope_head = reader.integer("rope_head", kPositiveInteger),
            .v_head = reader.integer("v_head", kPositiveInteger)};
}

void read_model(const JsonReader& reader, PublishedRun& run) {
    PublishedRun::Model& model = run.model;
    model.name = optional_string(reader, "name");
    model.layers = optional_integer(reader, "layers");
    model.hidden = optional_integer(reader, "hidden");
    model.heads = optional_integer(reader, "heads");
    model.kv_heads = optional_integer(reader, "kv_heads");
    model.ffn_hidden = optional_integer(reader, "ffn_hidden");
    model.vocab = optional_integer(reader, "vocab");
    model.sequence_length = optional_integer(reader, "seq_len");
    model.parameters = optional_number(reader, "params", kPositive);
    model.gated_mlp = optional_boolean(reader, "gated_mlp");
    if (stated(reader, "moe")) {
        const JsonReader moe = reader.object("moe");
        model.experts = read_experts(moe);
        if (stated(moe, "mla")) model.latent = read_latent(moe.object("mla"));
    }
    model.tied_embeddings = optional_boolean(reader, "tied_embeddings");
    if (const auto untied = optional_boolean(reader, "untied_embeddings")) model.tied_embeddings = !*untied;
    model.alibi = optional_boolean(reader, "alibi").value_or(false);
    model.embedding_norm = optional_boolean(reader, "embed_layernorm").value_or(false);
    model.parallel_attention_mlp = optional_boolean(reader, "parallel_attn_ffn").value_or(false);
}

void read_parallel(const JsonReader& reader, PublishedRun& run) {
    PublishedRun::Parallel& parallel = run.parallel;
    parallel.tp = optional_integer(reader, "tp");
    parallel.pp = optional_integer(reader, "pp");
    parallel.dp = optional_integer(reader, "dp");
    parallel.cp = optional_integer(reader, "cp");
    parallel.ep = optional_integer(reader, "ep");
    parallel.etp = optional_integer(reader, "etp");
    parallel.sequence_parallel = optional_boolean(reader, "sp");
    parallel.chunks = optional_integer(reader, "vpp");
    parallel.data_parallel = optional_string(reader, "data_parallel");
    parallel.data_parallel_words = words(reader, "data_parallel_as_published");
    parallel.schedule = optional_string(reader, "pipeline_schedule");
    parallel.context_parallel = optional_string(reader, "cp_comm");
    parallel.vocabulary_method = optional_string(reader, "vocab_method");
    parallel.partition = optional_string(reader, "pp_partition");
    if (stated(reader, "layers_last_stage")) {
        parallel.last_stage_layers = reader.integer("layers_last_stage", kCount);
    }
}

/// Finds the memory kind from the words beside the figure, or without any from the notes. A source that also states
/// reserved memory means allocated memory here.
void find_memory_kind(const std::string& notes, PublishedMeasurement& measured) {
    const std::string& words = measured.memory_words;
    const auto said = [&](const char* word) {
        return words.find(word) != std::string::npos || (words.empty() && notes.find(word) != std::string::npos);
    };
    if (said("nvidia-smi used") || words.starts_with("nvidia-smi")) {
        measured.memory_kind = MemoryKind::in_use;
    } else if (said("reserved")) {
        measured.memory_kind = MemoryKind::reserved;
    } else if (said("allocated") || measured.figures.contains("peak_reserved_gib")) {
        measured.memory_kind = MemoryKind::allocated;
    }
    measured.memory_of_last_stage = words.find("last pipeline rank") != std::string::npos;
}

PublishedMeasurement read_measurement(const JsonReader& reader) {
    PublishedMeasurement measured;
    measured.step_time_s = optional_number(reader, "step_time_s", kPositive);
    measured.step_time_is = optional_string(reader, "step_time_is");
    measured.peak_memory_gib = optional_number(reader, "peak_memory_gib", kPositive);
    measured.memory_words = optional_string(reader, "memory_kind");
    for (const std::string& key : reader.keys()) {
        if (reader.is_null(key)) continue;
        switch (reader.kind(key)) {
            case JsonKind::integer:
            case JsonKind::number: {
                const double value = reader.number(key, kNotNegative);
                if (key != "step_time_s" && key != "peak_memory_gib") measured.figures[key] = value;
                break;
            }
            case JsonKind::array:
                if (key == "stage_forward_ms") measured.stage_forward_ms = reader.numbers(key, kNotNegative);
                if (key == "stage_backward_ms") measured.stage_backward_ms = reader.numbers(key, kNotNegative);
                break;
            case JsonKind::object:
                if (key == "stage_times_ms") measured.stage_times_ms = numbers_by_key(reader.object(key));
                if (key == "peak_alloc_mb_by_rank") {
                    measured.peak_allocated_mb_by_rank = numbers_by_key(reader.object(key));
                }
                break;
            case JsonKind::null:
            case JsonKind::boolean:
            case JsonKind::string:
                break;
        }
    }
    return measured;
}

/// Enough to name and count a row that is refused later.
void read_head(const JsonReader& reader, PublishedRun& run) {
    run.id = reader.string("id");
    run.source = reader.object("source").string("title");
    run.scored = reader.boolean("scored");
}

void read_rest(const JsonReader& reader, PublishedRow& row) {
    PublishedRun& run = row.run;
    run.quality = optional_string(reader, "quality");
    read_hardware(reader.object("hardware"), run);
    read_model(reader.object("model"), run);
    read_parallel(reader.object("parallel"), run);
    const JsonReader batch = reader.object("batch");
    run.global_batch = optional_integer(batch, "global_batch_seqs");
    run.micro_batch = optional_integer(batch, "micro_batch_seqs");
    run.precision = optional_string(reader, "precision");
    run.precision_words = words(reader, "precision_as_published");
    run.recompute = optional_string(reader, "recompute");
    run.recompute_words = words(reader, "recompute_as_published");
    run.flash_attention = optional_boolean(reader, "flash_attention");
    run.framework = words(reader, "framework");
    run.notes = optional_string(reader, "notes");
    if (row.ran_out) return;
    row.measured = read_measurement(reader.object("measured"));
    find_memory_kind(run.notes, row.measured);
}

PublishedRow read_row(const JsonReader& reader, std::size_t index, std::set<std::string>& ids) {
    PublishedRow row;
    try {
        row.ran_out = ran_out_of_memory(reader);
        if (row.ran_out && !reader.has("id")) {
            row.run = read_out_of_memory(reader, index);
            return row;
        }
        read_head(reader, row.run);
        if (!ids.insert(row.run.id).second) reader.fail("id", "an id that no earlier row has");
        read_rest(reader, row);
    } catch (const InputError& error) {
        PublishedRow refused;
        refused.run.id = row.run.id;
        refused.run.source = row.run.source;
        refused.run.scored = row.run.scored;
        const std::string name = row.run.id.empty() ? std::to_string(index) : "'" + row.run.id + "'";
        refused.refused = "row " + name + ": " + error.what();
        return refused;
    }
    return row;
}

/// `ids` holds the ids of earlier rows.
void append_rows(const std::string& text, const std::string& file, std::set<std::string>& ids,
                 std::vector<PublishedRow>& rows) {
    const std::size_t first = text.find_first_not_of(" \t\r\n");
    constexpr const char* kAllowed = "a JSON list of rows, or a table of runs (orrery.published_runs/1)";
    if (first == std::string::npos) throw InputError(file, "the whole file", "nothing", kAllowed);
    std::string list;
    if (text[first] == '{' && JsonReader::parse(text, file, JsonPolicy::lenient).has("schema")) {
        list = rows_of_run_table(text, file);
    } else if (text[first] != '[') {
        throw InputError(file, "the whole file", "something else", kAllowed);
    }
    // The JSON reader needs an object as document: "/rows/7/model" is the model of the file's eighth row.
    const JsonReader document =
        JsonReader::parse("{\"rows\":" + (list.empty() ? text : list) + "}", file, JsonPolicy::lenient);
    std::size_t index = 0;
    for (const JsonReader& reader : document.objects("rows")) rows.push_back(read_row(reader, index++, ids));
}

/// The file itself, or the JSON files of a folder, sorted by name.
std::vector<std::string> files_of(const std::string& path) {
    if (!std::filesystem::is_directory(path)) return {path};
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
        if (entry.path().extension() == ".json") files.push_back(entry.path().string());
    }
    if (files.empty()) throw InputError(path, "the folder", "no file", "a folder with files *.json");
    std::sort(files.begin(), files.end());
    return files;
}

}  // namespace

std::string name_of(MemoryKind kind) {
    static constexpr auto kNames = name_table<MemoryKind::unstated>({"allocated", "reserved", "in use", "unstated"});
    return std::string(kNames[kind]);
}

std::vector<PublishedRow> published_rows_from_json_text(const std::string& text, const std::string& file) {
    std::vector<PublishedRow> rows;
    std::set<std::string> ids;
    append_rows(text, file, ids, rows);
    return rows;
}

std::vector<PublishedRow> read_published_rows(const std::vector<std::string>& paths) {
    std::vector<PublishedRow> rows;
    std::set<std::string> ids;
    for (const std::string& path : paths) {
        for (const std::string& file : files_of(path)) append_rows(read_text_file(file), file, ids, rows);
    }
    return rows;
}

}  // namespace orrery::published
