#include "sim/published/run_table.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "core/json_reader.h"

namespace orrery::published {
namespace {

using nlohmann::json;

constexpr const char* kSchema = "orrery.published_runs/1";
constexpr std::array<std::string_view, 59> kPointers{
    "/id",
    "/quality",
    "/scored",
    "/hardware/gpu",
    "/hardware/gpu_as_published",
    "/hardware/gpus_per_node",
    "/hardware/num_gpus",
    "/hardware/intra_node",
    "/hardware/inter_node",
    "/model/name",
    "/model/layers",
    "/model/hidden",
    "/model/heads",
    "/model/kv_heads",
    "/model/ffn_hidden",
    "/model/vocab",
    "/model/seq_len",
    "/model/params",
    "/model/gated_mlp",
    "/model/moe",
    "/model/tied_embeddings",
    "/model/untied_embeddings",
    "/model/alibi",
    "/model/embed_layernorm",
    "/model/parallel_attn_ffn",
    "/parallel/tp",
    "/parallel/sp",
    "/parallel/pp",
    "/parallel/vpp",
    "/parallel/dp",
    "/parallel/cp",
    "/parallel/ep",
    "/parallel/etp",
    "/parallel/data_parallel",
    "/parallel/data_parallel_as_published",
    "/parallel/pipeline_schedule",
    "/parallel/cp_comm",
    "/parallel/vocab_method",
    "/parallel/pp_partition",
    "/parallel/layers_last_stage",
    "/batch/global_batch_seqs",
    "/batch/micro_batch_seqs",
    "/precision",
    "/precision_as_published",
    "/recompute",
    "/recompute_as_published",
    "/flash_attention",
    "/framework",
    "/notes",
    "/measured/step_time_s",
    "/measured/step_time_is",
    "/measured/peak_memory_gib",
    "/measured/memory_kind",
    "/measured/peak_reserved_gib",
    "/measured/stage_forward_ms",
    "/measured/stage_backward_ms",
    "/measured/stage_times_ms",
    "/measured/peak_alloc_mb_by_rank",
    "/result",
};

bool is_known(std::string_view pointer) {
    return std::find(kPointers.begin(), kPointers.end(), pointer) != kPointers.end();
}

bool leads_to_known(const std::string& pointer) {
    return std::any_of(kPointers.begin(), kPointers.end(),
                       [&](std::string_view known) { return known.starts_with(pointer + "/"); });
}

std::string what_is_known(const std::string& pointer) {
    const std::string near = nearest_name(pointer, std::vector<std::string>(kPointers.begin(), kPointers.end()));
    return "a pointer to a value of a run, as docs/schema/orrery.published_runs.1.schema.json lists them" +
           (near.empty() ? "" : "; did you mean '" + near + "'?");
}

/// Checks the common values, which are nested like a row, and adds their pointers to `stated`.
void check_common(const json& value, const std::string& pointer, const std::string& file,
                  std::set<std::string>& stated) {
    for (const auto& [key, inner] : value.items()) {
        const std::string at = pointer + "/" + key;
        if (is_known(at)) {
            stated.insert(at);
        } else if (inner.is_object() && leads_to_known(at)) {
            check_common(inner, at, file, stated);
        } else {
            throw InputError(file, "/common" + at, inner.dump(), what_is_known(at));
        }
    }
}

void check_columns(const std::vector<std::string>& columns, const std::string& file, std::set<std::string>& stated) {
    for (std::size_t i = 0; i < columns.size(); ++i) {
        const std::string place = "/columns/" + std::to_string(i), got = "'" + columns[i] + "'";
        if (!is_known(columns[i])) throw InputError(file, place, got, what_is_known(columns[i]));
        if (!stated.insert(columns[i]).second) {
            throw InputError(file, place, got, "a pointer that neither an earlier column nor common has");
        }
    }
}

void check_row(const json& row, std::size_t index, std::size_t columns, const std::string& file) {
    const std::string allowed = "a list of " + std::to_string(columns) + " values, one per column";
    const std::string place = "/rows/" + std::to_string(index);
    if (!row.is_array()) throw InputError(file, place, row.dump(), allowed);
    if (row.size() != columns) throw InputError(file, place, std::to_string(row.size()) + " values", allowed);
}

}  // namespace

std::span<const std::string_view> run_table_pointers() {
    return kPointers;
}

std::string rows_of_run_table(const std::string& text, const std::string& file) {
    const JsonReader reader = JsonReader::parse(text, file);
    reader.expect_schema(kSchema);
    const JsonReader source = reader.object("source");
    (void)source.string("title");
    (void)source.string("where");
    source.finish();
    (void)reader.object("common");
    const std::vector<std::string> columns = reader.strings("columns");
    if (reader.kind("rows") != JsonKind::array) reader.fail("rows", "a list of lists");
    reader.finish();

    const json document = json::parse(text);
    std::set<std::string> stated;
    check_common(document.at("common"), "", file, stated);
    check_columns(columns, file, stated);
    std::vector<json::json_pointer> places(columns.begin(), columns.end());
    json common = document.at("common");
    common["source"] = document.at("source");
    json rows = json::array();
    for (const json& cells : document.at("rows")) {
        check_row(cells, rows.size(), columns.size(), file);
        json row = common;
        for (std::size_t i = 0; i < cells.size(); ++i) row[places[i]] = cells[i];
        rows.push_back(std::move(row));
    }
    return rows.dump();
}

}  // namespace orrery::published
