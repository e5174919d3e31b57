// The parallelism of a published run.
#include <algorithm>
#include <array>

#include "core/letters.h"
#include "sim/published/stacks.h"
#include "sim/published/translation.h"
#include "sim/published/words.h"

namespace orrery::published {
namespace {

using program::DataParallel;
using program::Parallelism;
using program::Schedule;

/// The number after `mark`; 0 if the mark is missing or no number follows.
std::int64_t number_after(const std::string& text, std::string_view mark) {
    const std::size_t at = text.find(mark);
    if (at == std::string::npos) return 0;
    std::int64_t value = 0;
    for (std::size_t i = at + mark.size(); i < text.size() && value < 1'000'000; ++i) {
        if (text[i] == ' ' && value == 0) continue;
        if (!is_digit(text[i])) break;
        value = value * 10 + (text[i] - '0');
    }
    return value;
}

/// Ranks that share one set of shards, as stated in words: "FSDP 128-way (zero3) x DP 4", "ICI 8-way + DCN FSDP 16",
/// "zero1 sharding group 8", "zero1 group 8", "FSDP 8 inside node", "Megatron-FSDP group 64". 0: not stated.
std::int64_t stated_shard_group(const std::string& words) {
    if (contains(words, "ICI ")) {
        return number_after(words, "ICI ") * std::max<std::int64_t>(1, number_after(words, "DCN FSDP "));
    }
    if (const std::int64_t group = number_after(words, "group "); group > 0) return group;
    return number_after(words, "FSDP ");
}

/// The stated kind; else the kind named by the published words, then by the framework's; else the implementation's
/// default.
std::string data_parallel_of(const PublishedRun& run, const models::Implementation& implementation,
                             Assumptions& assumptions) {
    const std::string& stated = run.parallel.data_parallel;
    static constexpr std::array<std::string_view, 6> kKinds{"dp", "ddp", "zero1", "zero2", "zero3", "hsdp"};
    if (std::find(kKinds.begin(), kKinds.end(), stated) != kKinds.end()) return stated;
    if (implementation.supports.data_parallel == std::vector<std::string>{"dp"}) return "dp";
    const auto assume = [&](std::string_view kind, const std::string& why) {
        assumptions.add("/parallelism/data_parallel", "data parallelism", std::string(kind), why);
        return std::string(kind);
    };
    for (const std::string& words : {stated, run.parallel.data_parallel_words, run.framework}) {
        if (const std::string_view kind = data_parallel_in(Words(words)); !kind.empty()) {
            return assume(kind, "words of '" + words + "'");
        }
    }
    if (!stated.empty()) (void)program::data_parallel_named(stated);  // throws, listing the known kinds
    return assume(implementation.supports.default_data_parallel, "default of " + implementation.name + "; not stated");
}

void set_data_parallel(const PublishedRun& run, const models::Implementation& implementation, Parallelism& parallelism,
                       Assumptions& assumptions) {
    const std::string kind = data_parallel_of(run, implementation, assumptions);
    const std::string& words = run.parallel.data_parallel_words;
    if (kind == "hsdp") {
        parallelism.data_parallel = DataParallel::zero3;
    } else {
        parallelism.data_parallel = program::data_parallel_named(kind);
    }
    // FSDP keeps only shards between steps even if it does not free parameters within a step.
    if (contains(words, "SHARD_GRAD_OP") || contains(run.framework, "SHARD_GRAD_OP")) {
        parallelism.data_parallel = DataParallel::zero3;
        parallelism.reshard_after_forward = false;
    }
    if (parallelism.shards_optimizer()) {
        const std::int64_t group = stated_shard_group(words);
        if (group > 0 && group < parallelism.gradient_ranks()) parallelism.dp_shard = group;
        const std::int64_t node = required(run.hardware.gpus_per_node, "hardware.gpus_per_node");
        if (kind == "hsdp" && group == 0 && node < parallelism.gradient_ranks()) {
            parallelism.dp_shard = node;
            assumptions.add("/parallelism/dp_shard", "shard group", parallelism.dp_shard, "a node; not stated");
        }
    }
    // Neither DeepSpeed's stages 2 and 3 nor any FSDP (PyTorch's, Composer's, XLA's) holds unsharded gradients between
    // micro-batches.
    parallelism.reduces_every_micro_batch = parallelism.shards_gradients();
    if (parallelism.reduces_every_micro_batch) {
        assumptions.add("/parallelism/reduces_every_micro_batch", "gradients", "reduced after each micro-batch",
                        "as " + implementation.name + " does with sharded gradients");
    }
}

/// The smallest number of chunks above one that divides a rank's blocks.
std::int64_t fewest_chunks(const models::ModelSpec& model, std::int64_t pp) {
    const std::int64_t blocks = model.layers / pp;
    for (std::int64_t chunks = 2; chunks <= blocks; ++chunks) {
        if (blocks % chunks == 0) return chunks;
    }
    throw NotExpressible("interleaved-1f1b without a stated number of chunks: " + std::to_string(model.layers) +
                         " layers on " + std::to_string(pp) + " ranks have no even split into chunks");
}

/// The schedule with this name, or the one that publications call so.
Schedule schedule_of(const std::string& name, bool has_chunks) {
    for (int i = 0; i < program::kScheduleCount; ++i) {
        if (name_of(static_cast<Schedule>(i)) == name) return static_cast<Schedule>(i);
    }
    const Words words(name);
    // Names of later schedules may contain those of earlier ones.
    for (int i = program::kScheduleCount; i-- > 0;) {
        const program::ScheduleRow& known = row_of(static_cast<Schedule>(i));
        if (known.published_as.empty() || !words.name_any(known.published_as)) continue;
        const bool plain = known.schedule == Schedule::one_f_one_b;
        return plain && has_chunks ? Schedule::interleaved : known.schedule;
    }
    return program::schedule_named(name);  // throws, listing the known schedules
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
        parallelism.schedule = schedule_of(name, run.parallel.chunks.value_or(1) > 1);
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
    } else {
        parallelism.chunks = row_of(parallelism.schedule).chunks;
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
            assumptions.add("/parallelism/etp", "etp", parallelism.etp, "tp does not fit beside ep; not stated");
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
        // Megatron-Core refuses experts without sequence parallelism; in torchtitan and nanotron it is part of tensor
        // parallelism.
        parallelism.sequence_parallel = model.has_experts() || is_kind_of(implementation, "nemo") ||
                                        is_kind_of(implementation, "torchtitan") ||
                                        is_kind_of(implementation, "nanotron");
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
