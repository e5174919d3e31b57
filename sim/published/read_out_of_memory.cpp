#include "sim/published/read_out_of_memory.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "core/error.h"

namespace orrery::published {
namespace {

struct Dimensions {
    std::string_view name;
    std::int64_t layers = 0, hidden = 0, heads = 0, ffn_hidden = 0;
};
/// arXiv 2302.13971, table 2.
constexpr std::array<Dimensions, 4> kLlama{{{"LLaMA-7B", 32, 4096, 32, 11008},
                                            {"LLaMA-13B", 40, 5120, 40, 13824},
                                            {"LLaMA-30B", 60, 6656, 52, 17920},
                                            {"LLaMA-65B", 80, 8192, 64, 22016}}};

/// A source, recognised by a word of "source", and facts known from its runs that completed.
struct Sweep {
    std::string_view word, title, framework, precision;
    std::int64_t vocab = 0;
};
constexpr std::array<Sweep, 2> kSweeps{
    {{"2311.05610", "Hagemann et al. 2023", "AA-Scaling (Megatron-LM derived)", "bf16", 128000},
     {"bigscience", "BigScience", "Megatron-DeepSpeed (BigScience)", "", 0}}};

const Sweep& sweep_of(const JsonReader& reader) {
    const std::string source = reader.string("source");
    for (const Sweep& sweep : kSweeps) {
        if (source.find(sweep.word) != std::string::npos) return sweep;
    }
    reader.fail("source", "a source whose framework is known: arXiv 2311.05610 or bigscience");
}

class Inferred {
  public:
    explicit Inferred(PublishedRun& run) : run_(run) {}
    void add(const std::string& what, const std::string& value, const std::string& why) {
        run_.inferred.push_back(what + ": " + value + " (" + why + ")");
    }

  private:
    PublishedRun& run_;
};

void read_named_model(const JsonReader& reader, const Sweep& sweep, PublishedRun& run, Inferred& inferred) {
    const std::string name = reader.string("model");
    const auto found = std::find_if(kLlama.begin(), kLlama.end(), [&](const Dimensions& d) { return d.name == name; });
    if (found == kLlama.end()) reader.fail("model", "LLaMA-7B, LLaMA-13B, LLaMA-30B or LLaMA-65B");
    run.model.name = name;
    run.model.layers = found->layers;
    run.model.hidden = found->hidden;
    run.model.heads = run.model.kv_heads = found->heads;
    run.model.ffn_hidden = found->ffn_hidden;
    run.model.gated_mlp = true;
    run.model.tied_embeddings = false;
    run.model.vocab = sweep.vocab;
    inferred.add("dimensions", "of " + name, "arXiv 2302.13971");
    inferred.add("vocab", std::to_string(sweep.vocab), "of the source's other runs");
    run.flash_attention = reader.string("kernel").starts_with("flash");
    run.notes = "attention kernel: " + reader.string("kernel") + ". ";
    run.recompute =
        reader.choice("activation_checkpointing", {"disabled", "every_layer"}) == "disabled" ? "none" : "full";
    run.precision = run.precision_words = sweep.precision;
    run.parallel.sequence_parallel = reader.boolean("sequence_parallel");
    run.parallel.data_parallel = "zero1";
    inferred.add("data parallelism", "zero1", "as in the source's other runs");
}

void read_stated_model(const JsonReader& reader, PublishedRun& run, Inferred& inferred) {
    run.model.name = "GPT " + reader.string("size");
    run.model.layers = reader.integer("layers", kPositiveInteger);
    run.model.hidden = reader.integer("hidden", kPositiveInteger);
    run.model.heads = run.model.kv_heads = reader.integer("heads", kPositiveInteger);
    run.model.ffn_hidden = 4 * *run.model.hidden;
    run.model.gated_mlp = false;
    run.model.vocab = reader.integer("vocab", kPositiveInteger);
    inferred.add("MLP", "four times the hidden width, not gated", "GPT-2's, as in the source's other runs");
    run.flash_attention = false;
    inferred.add("attention", "stores its scores", "as in the source's other runs");
    run.recompute = reader.string("recompute");
    run.precision_words = reader.string("precision");
    run.precision = run.precision_words.starts_with("bf16") ? "bf16" : "fp16";
    run.parallel.sequence_parallel = false;
    run.parallel.data_parallel = "zero" + std::to_string(reader.integer("zero_stage", {1, 3}));
    run.notes = "partition type:transformer|embedding";
    inferred.add("stages", "embeddings count as layers", "as in the source's other runs of that section");
}

}  // namespace

bool ran_out_of_memory(const JsonReader& reader) {
    return reader.has("result") && reader.kind("result") == JsonKind::string &&
           reader.string("result").find("OOM") != std::string::npos;
}

PublishedRun read_out_of_memory(const JsonReader& reader, std::size_t index) {
    PublishedRun run;
    Inferred inferred(run);
    const Sweep& sweep = sweep_of(reader);
    run.id = "out-of-memory-" + std::to_string(index + 1);
    run.source = std::string(sweep.title) + ", out of memory";
    run.quality = "B";
    run.framework = sweep.framework;
    run.hardware = {.gpu = "a100-sxm-80gb", .gpus_per_node = 8, .gpus = reader.integer("num_gpus", kPositiveInteger)};
    if (reader.has("gpu") && reader.string("gpu") != "A100-80GB") reader.fail("gpu", "A100-80GB");
    inferred.add("framework", run.framework, "of the source");
    inferred.add("GPUs of a node", "8", "as in the source's other runs");
    run.model.sequence_length = reader.integer("seq_len", kPositiveInteger);
    run.parallel.tp = reader.integer("tp", kPositiveInteger);
    run.parallel.pp = reader.integer("pp", kPositiveInteger);
    run.parallel.dp = reader.integer("dp", kPositiveInteger);
    if (*run.parallel.pp > 1) {
        run.parallel.schedule = "1f1b";
        inferred.add("pipeline schedule", "1f1b", "as in the source's other runs");
    }
    run.micro_batch = reader.integer("micro_batch", kPositiveInteger);
    run.global_batch = reader.integer("global_batch", kPositiveInteger);
    if (reader.has("kernel")) {
        read_named_model(reader, sweep, run, inferred);
    } else {
        read_stated_model(reader, run, inferred);
    }
    return run;
}

}  // namespace orrery::published
