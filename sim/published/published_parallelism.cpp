// How a published run was spread over its GPUs.
#include <array>
#include <cctype>

#include "sim/published/translation.h"

namespace orrery::published {
namespace {

using program::DataParallel;
using program::Parallelism;
using program::Schedule;

/// The number after `mark`; 0: the mark is not there, or no number follows.
std::int64_t number_after(const std::string& text, std::string_view mark) {
    const std::size_t at = text.find(mark);
    if (at == std::string::npos) return 0;
    std::int64_t value = 0;
    for (std::size_t i = at + mark.size(); i < text.size() && value < 1'000'000; ++i) {
        if (text[i] == ' ' && value == 0) continue;
        if (std::isdigit(static_cast<unsigned char>(text[i])) == 0) break;
        value = value * 10 + (text[i] - '0');
    }
    return value;
}

/// Ranks that share one set of shards, as words say: "FSDP 128-way (zero3) x DP 4", "ICI 8-way + DCN FSDP 16",
/// "zero1 sharding group 8", "zero1 group 8", "FSDP 8 inside node", "Megatron-FSDP group 64". 0: not said.
std::int64_t stated_shard_group(const std::string& words) {
    if (contains(words, "ICI ")) {
        return number_after(words, "ICI ") * std::max<std::int64_t>(1, number_after(words, "DCN FSDP "));
    }
    if (const std::int64_t group = number_after(words, "group "); group > 0) return group;
    return number_after(words, "FSDP ");
}

void set_data_parallel(const PublishedRun& run, const models::Implementation& implementation, Parallelism& parallelism,
                       Assumptions& assumptions) {
    const std::string& kind = run.parallel.data_parallel;
    const std::string& words = run.parallel.data_parallel_words;
    if (kind.empty()) {
        parallelism.data_parallel = DataParallel::ddp;
        assumptions.add("/parallelism/data_parallel", "data parallelism", "ddp",
                        "ZeRO is off by default in " + implementation.name + "; not stated");
    } else if (kind == "hsdp") {
        parallelism.data_parallel = DataParallel::zero3;
    } else {
        parallelism.data_parallel = program::data_parallel_named(kind);
    }
    // FSDP keeps shards between steps also when it does not free parameters within one.
    if (contains(words, "SHARD_GRAD_OP")) {
        parallelism.data_parallel = DataParallel::zero3;
        parallelism.reshard_after_forward = false;
    }
    if (parallelism.shards_optimizer()) {
        const std::int64_t group = stated_shard_group(words);
        if (group > 0 && group < parallelism.gradient_ranks()) parallelism.dp_shard = group;
        if (kind == "hsdp" && group == 0) {
            parallelism.dp_shard = run.hardware.gpus_per_node;
            assumptions.add("/parallelism/dp_shard", "shard group", parallelism.dp_shard, "a node; not stated");
        }
    }
    // Neither DeepSpeed's stages 2 and 3 nor Composer's FSDP holds whole gradients between micro-batches.
    parallelism.reduces_every_micro_batch =
        parallelism.shards_gradients() && (implementation.name == "deepspeed" || implementation.name == "llm-foundry" ||
                                           implementation.name == "megatron-deepspeed");
    if (parallelism.reduces_every_micro_batch) {
        assumptions.add("/parallelism/reduces_every_micro_batch", "gradients", "reduced after each micro-batch",
                        "as " + implementation.name + " does with sharded gradients");
    }
}

/// The fewest chunks above one that cut a rank's blocks evenly.
std::int64_t fewest_chunks(const models::ModelSpec& model, std::int64_t pp) {
    const std::int64_t blocks = model.layers / pp;
    for (std::int64_t chunks = 2; chunks <= blocks; ++chunks) {
        if (blocks % chunks == 0) return chunks;
    }
    throw NotExpressible("interleaved-1f1b without a stated number of chunks: " + std::to_string(model.layers) +
                         " layers on " + std::to_string(pp) + " ranks leave no choice");
}

void set_schedule(const PublishedRun& run, const models::ModelSpec& model, Parallelism& parallelism,
                  Assumptions& assumptions) {
    if (parallelism.pp == 1) return;
    const std::string& name = run.parallel.schedule;
    if (name.empty()) {
        const bool interleaved = run.parallel.chunks.value_or(1) > 1;
        parallelism.schedule = interleaved ? Schedule::interleaved : Schedule::one_f_one_b;
        assumptions.add("/parallelism/schedule", "pipeline schedule", name_of(parallelism.schedule), "not stated");
    } else {
        parallelism.schedule = program::schedule_named(name);
    }
    if (parallelism.schedule == Schedule::interleaved) {
        if (run.parallel.chunks) {
            parallelism.chunks = *run.parallel.chunks;
        } else {
            parallelism.chunks = fewest_chunks(model, parallelism.pp);
            assumptions.add("/parallelism/chunks", "chunks of a rank", parallelism.chunks,
                            "the fewest that divide its layers; not stated");
        }
        if (parallelism.chunks == 1) parallelism.schedule = Schedule::one_f_one_b;
    } else if (parallelism.schedule == Schedule::zb_v || parallelism.schedule == Schedule::dualpipe ||
               parallelism.schedule == Schedule::dualpipe_v) {
        parallelism.chunks = 2;
    }
    const std::string& method = run.parallel.vocabulary_method;
    if (method.empty() || method == "baseline" || method == "redis") return;
    if (method == "vocab-1") {
        parallelism.vocabulary_parallel = program::VocabularyParallel::two_barriers;
    } else if (method == "vocab-2") {
        parallelism.vocabulary_parallel = program::VocabularyParallel::one_barrier;
    } else if (method == "interlaced") {
        parallelism.vocabulary_parallel = program::VocabularyParallel::interlaced;
    } else {
        throw NotExpressible("vocabulary layers spread over pipeline stages as \"" + method + "\" are not modelled");
    }
}

void set_context_parallel(const PublishedRun& run, Parallelism& parallelism, Assumptions& assumptions) {
    if (parallelism.cp == 1) return;
    if (run.parallel.context_parallel == "a2a") {
        parallelism.context_parallel = program::ContextParallel::ulysses;
    } else if (run.parallel.context_parallel == "all_gather") {
        parallelism.context_parallel = program::ContextParallel::all_gather;
    } else {
        assumptions.add("/parallelism/context_parallel", "context parallelism", "ring",
                        "TransformerEngine's default, p2p; not stated");
    }
}

void set_experts(const PublishedRun& run, const models::ModelSpec& model, Parallelism& parallelism,
                 Assumptions& assumptions) {
    if (!model.has_experts()) return;
    parallelism.ep = run.parallel.ep.value_or(1);
    if (run.parallel.etp) {
        parallelism.etp = *run.parallel.etp;
    } else {
        parallelism.etp = parallelism.tp;
        const std::int64_t ranks = parallelism.tp * parallelism.cp * parallelism.dp;
        if (ranks % (parallelism.ep * parallelism.etp) != 0) {
            parallelism.etp = 1;
            assumptions.add("/parallelism/etp", "etp", parallelism.etp,
                            "the only one that ep leaves room for; not stated");
        } else if (parallelism.tp > 1) {
            assumptions.add("/parallelism/etp", "etp", parallelism.etp, "tp, Megatron's default; not stated");
        }
    }
}

}  // namespace

Parallelism parallelism_of(const PublishedRun& run, const models::ModelSpec& model,
                           const models::Implementation& implementation, Assumptions& assumptions) {
    const PublishedRun::Parallel& published = run.parallel;
    Parallelism parallelism;
    parallelism.tp = required(published.tp, "parallel.tp");
    parallelism.pp = required(published.pp, "parallel.pp");
    parallelism.cp = published.cp.value_or(1);
    const std::int64_t gpus = required(run.hardware.gpus, "hardware.num_gpus");
    const std::int64_t copy = parallelism.tp * parallelism.pp * parallelism.cp;
    parallelism.dp = published.dp.value_or(std::max<std::int64_t>(1, gpus / copy));
    if (parallelism.world_size() != gpus) {
        throw NotExpressible("tp * pp * dp * cp = " + std::to_string(parallelism.world_size()) + " is not the " +
                             std::to_string(gpus) + " GPUs");
    }
    if (published.sequence_parallel) {
        parallelism.sequence_parallel = *published.sequence_parallel && parallelism.tp > 1;
    } else if (parallelism.tp > 1) {
        // Megatron-Core refuses experts without it.
        parallelism.sequence_parallel = model.has_experts() || implementation.name == "nemo";
        assumptions.add("/parallelism/sequence_parallel", "sequence parallelism",
                        parallelism.sequence_parallel ? "on" : "off",
                        "as usual with " + implementation.name + "; not stated");
    }
    set_schedule(run, model, parallelism, assumptions);
    set_data_parallel(run, implementation, parallelism, assumptions);
    set_context_parallel(run, parallelism, assumptions);
    set_experts(run, model, parallelism, assumptions);
    parallelism.stage_layers = stage_layers_of(run, model, implementation, parallelism, assumptions);
    return parallelism;
}

}  // namespace orrery::published
