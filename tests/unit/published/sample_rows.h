// Made-up published rows for tests.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "sim/published/plan_of.h"

namespace orrery::published::test {

/// GPT with 8 layers on one node of A100s under Megatron-LM of 2021: complete, so it translates to a plan.
inline nlohmann::json sample_row() {
    return nlohmann::json::parse(R"row({
        "id": "made-up-1",
        "source": {"title": "Made up 2021", "where": "here"},
        "quality": "A", "scored": true,
        "hardware": {"gpu": "a100-sxm-80gb", "gpu_as_published": "A100", "gpus_per_node": 8, "num_gpus": 8,
                     "intra_node": "NVLink", "inter_node": null},
        "model": {"name": "GPT", "layers": 8, "hidden": 1024, "heads": 16, "kv_heads": 16, "ffn_hidden": 4096,
                  "vocab": 51200, "seq_len": 1024, "gated_mlp": false, "moe": null, "params": null},
        "parallel": {"tp": 2, "sp": false, "pp": 2, "vpp": 1, "dp": 2, "cp": 1, "ep": 1, "data_parallel": "ddp",
                     "data_parallel_as_published": "none", "pipeline_schedule": "1f1b"},
        "batch": {"global_batch_seqs": 32, "micro_batch_seqs": 2},
        "precision": "fp16", "precision_as_published": "fp16",
        "recompute": "none", "recompute_as_published": "none",
        "flash_attention": false,
        "framework": "Megatron-LM (commit 1234567)",
        "measured": {"step_time_s": 1.5, "step_time_is": "printed", "tokens_per_s_per_gpu": null,
                     "peak_memory_gib": null, "memory_kind": null},
        "notes": ""
    })row");
}

/// Llama with 8 layers in bf16 on one node of H100s.
inline nlohmann::json llama_row() {
    nlohmann::json row = sample_row();
    row["hardware"]["gpu"] = "h100-sxm-80gb";
    row["model"]["gated_mlp"] = true;
    row["model"]["kv_heads"] = 8;
    row["model"]["ffn_hidden"] = 2816;
    row["precision"] = row["precision_as_published"] = "bf16";
    row["flash_attention"] = true;
    return row;
}

inline std::vector<PublishedRow> read(const nlohmann::json& rows) {
    return published_rows_from_json_text(rows.dump(), "rows.json");
}
inline PublishedRun run_of(const nlohmann::json& row) {
    const std::vector<PublishedRow> rows = read(nlohmann::json::array({row}));
    return rows.at(0).refused.empty() ? rows.at(0).run : throw std::runtime_error(rows.at(0).refused);
}
inline PlanOfRun translated(const nlohmann::json& row) {
    return plan_of(run_of(row));
}

}  // namespace orrery::published::test
