// Training runs measured and published by others, one row each. What was run and what was measured are kept apart.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace orrery::published {

/// What a source states about one run; members without a value were not stated. It holds no measurements, so a
/// prediction from a PublishedRun cannot use the answer.
struct PublishedRun {
    std::string id;
    std::string source;   // title
    std::string quality;  // "A": complete and cross-checked, "B": a parameter inferred, "C": doubtful
    bool scored = false;  // quality A or B, with everything that a prediction needs

    struct Hardware {
        std::string gpu;        // normalised: "a100-sxm-80gb"
        std::string gpu_words;  // as published
        std::optional<std::int64_t> gpus_per_node;
        std::optional<std::int64_t> gpus;
        std::string intra_node, inter_node;  // as published; empty: not stated
    } hardware;

    struct Experts {
        std::int64_t count = 0, top_k = 0, ffn_hidden = 0;
        std::int64_t shared_ffn_hidden = 0;  // all shared experts together
        std::int64_t dense_layers = 0;       // dense layers before the first layer with experts
        double capacity_factor = 0;          // 0: not stated
        bool pads_to_capacity = false;
    };
    struct LatentAttention {
        std::int64_t q_lora = 0, kv_lora = 0, qk_head = 0, rope_head = 0, v_head = 0;
    };
    struct Model {
        std::string name;
        std::optional<std::int64_t> layers, hidden, heads, kv_heads;
        std::optional<std::int64_t> ffn_hidden;  // per matrix
        std::optional<std::int64_t> vocab;       // before padding, if the source says so
        std::optional<std::int64_t> sequence_length;
        std::optional<double> parameters;
        std::optional<bool> gated_mlp;  // three matrices instead of two
        std::optional<Experts> experts;
        std::optional<LatentAttention> latent;
        std::optional<bool> tied_embeddings;
        bool alibi = false, embedding_norm = false, parallel_attention_mlp = false;
    } model;

    struct Parallel {
        std::optional<std::int64_t> tp, pp, dp, cp, ep;
        std::optional<std::int64_t> etp;
        std::optional<bool> sequence_parallel;
        std::optional<std::int64_t> chunks;  // per pipeline rank
        std::string data_parallel;           // "ddp", "zero1", "zero2", "zero3", "hsdp"; empty: not stated
        std::string data_parallel_words;     // as published
        std::string schedule;                // "1f1b", "interleaved-1f1b", "zb-1p", ...; empty: not stated
        std::string context_parallel;        // "a2a"; empty: not stated
        std::string vocabulary_method;       // how the vocabulary layers are distributed over the pipeline
        std::string partition;               // the layers of each stage, as published
        std::optional<std::int64_t> last_stage_layers;
    } parallel;

    std::optional<std::int64_t> global_batch, micro_batch;  // sequences
    std::string precision, precision_words;
    std::string recompute, recompute_words;  // "none", "selective", "full", "unknown"; empty: not stated
    std::optional<bool> flash_attention;
    std::string framework;
    std::string notes;
    std::vector<std::string> inferred;  // facts that the row does not state and the reader filled in
};

/// How memory was measured, which decides the predicted figure it is compared with.
enum class MemoryKind : std::uint8_t {
    allocated,  // tensors, as the framework's allocator counts them
    reserved,   // memory held by the allocator
    in_use,     // memory in use on the device (nvidia-smi)
    unstated,   // unknown: compared with reserved memory, which lies between the others
};
[[nodiscard]] std::string name_of(MemoryKind kind);

/// What the source measured. Predictions never read it.
struct PublishedMeasurement {
    std::optional<double> step_time_s;
    std::string step_time_is;  // "printed", or what it is derived from
    std::optional<double> peak_memory_gib;
    std::string memory_words;  // "torch.cuda.max_memory_allocated …", "nvidia-smi GB", "GB as stated"; often empty
    MemoryKind memory_kind = MemoryKind::unstated;
    bool memory_of_last_stage = false;                        // otherwise of the fullest rank
    std::vector<double> stage_forward_ms, stage_backward_ms;  // one micro-batch, by pipeline stage
    std::map<std::string, double> stage_times_ms;             // "T_F", "T_B", "T_W", "T_comm"
    std::map<std::string, double> peak_allocated_mb_by_rank;
    std::map<std::string, double> figures;  // all other numbers, by key
};

struct PublishedRow {
    bool ran_out = false;  // the run ran out of memory; nothing was measured
    PublishedRun run;
    PublishedMeasurement measured;
    std::string refused;  // why the row cannot be read, with file, row and key; only id, source and scored of `run` are
                          // then filled in
};

/// Reads files with rows, one after the other; a folder stands for its *.json files, sorted by name. A file is a list
/// of rows (docs/validation.md describes one) or a table of one source's runs (`orrery.published_runs/1`). A row is
/// refused if it has a value of the wrong type, a negative or infinite value, the id of an earlier row, or lacks a
/// required key. Unknown keys of list rows are ignored. Throws InputError naming the file if it cannot be read or has
/// neither format.
[[nodiscard]] std::vector<PublishedRow> read_published_rows(const std::vector<std::string>& paths);
[[nodiscard]] std::vector<PublishedRow> published_rows_from_json_text(const std::string& text, const std::string& file);

}  // namespace orrery::published
