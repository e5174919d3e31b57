// Which known implementation is nearest to the stack that published words describe, and what those words change of it.
// Private to the translation of published runs.
#pragma once

#include <string>
#include <string_view>

#include "models/implementation.h"
#include "sim/published/translation.h"
#include "sim/published/words.h"

namespace orrery::published {

struct NearestStack {
    std::string implementation;  // a name of models::implementation_names()
    std::string why;             // not empty: the choice is an assumption
};

/// By the table of known stacks, of which the first entry whose words the framework has is taken; then by the words for
/// the way in which data-parallel ranks share; then, when no word is known, by the parallelism itself. Throws
/// NotExpressible for a stack of accelerators that are no GPUs.
[[nodiscard]] NearestStack nearest_stack(const PublishedRun& run);

/// The Megatron-Core fork of the paper on vocabulary parallelism, whose training script its runs leave unsaid.
[[nodiscard]] bool is_vocabulary_fork(const PublishedRun& run);

/// What the framework's words switch on or off: compilation, the attention kernel, fused kernels, overlap. Each change
/// is an assumption with the words that made it.
void heed_stack_words(const PublishedRun& run, models::Implementation& implementation, Assumptions& assumptions);

/// The attention kernel that words name: "flash-1", "flash-2", "flash-3", "flash" (no version), "cudnn", "triton",
/// "xformers", "flex", "sdpa", or "unfused", which they also say by denying one; "": none.
[[nodiscard]] std::string_view attention_kernel_in(const Words& words);

/// Of the words of a stack and of its data parallelism, the kind of data parallelism: "ddp", "zero1", "zero2", "zero3",
/// "hsdp"; "": they name none.
[[nodiscard]] std::string_view data_parallel_in(const Words& words);

}  // namespace orrery::published
