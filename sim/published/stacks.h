// Finds the known implementation nearest to a published software stack, and the changes that the published words make
// to it. Private to the translation of published runs.
#pragma once

#include <string>
#include <string_view>

#include "models/implementation.h"
#include "sim/published/translation.h"
#include "sim/published/words.h"

namespace orrery::published {

struct NearestStack {
    std::string implementation;  // a name of models::implementation_names()
    std::string why;             // not empty: the choice is an assumption, with this reason
};

/// The first entry of the table of known stacks whose words occur in the framework. Some entries then choose by the
/// words for data parallelism or by the year. If no word is known, the parallelism decides. Throws NotExpressible for
/// stacks of accelerators that are not GPUs.
[[nodiscard]] NearestStack nearest_stack(const PublishedRun& run);

/// Whether the run used the Megatron-Core fork of the paper on vocabulary parallelism, which does not state its
/// training script's settings.
[[nodiscard]] bool is_vocabulary_fork(const PublishedRun& run);

/// Applies what the framework's words switch on or off: compilation, the attention kernel, fused kernels, overlap, how
/// tokens travel to experts. Each change is recorded as an assumption with those words.
void apply_stack_words(const PublishedRun& run, models::Implementation& implementation, Assumptions& assumptions);

/// The attention kernel that the words name: "flash-1", "flash-2", "flash-3", "flash" (no version), "cudnn", "triton",
/// "xformers", "flex", "sdpa", or "unfused" (also if they deny a fused kernel); "": none.
[[nodiscard]] std::string_view attention_kernel_in(const Words& words);

/// The kind of data parallelism that the words name: "ddp", "zero1", "zero2", "zero3", "hsdp"; "": none.
[[nodiscard]] std::string_view data_parallel_in(const Words& words);

}  // namespace orrery::published
