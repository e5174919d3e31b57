// Where the tokens of a training run come from. Every sample can be computed alone, by any rank.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/random.h"

namespace orrery::exec {

/// Deterministic token sequences by global sample index (of step s: s * global_batch + j).
///
/// "synthetic": the first token is uniform; each next one is (5 * previous + 7) mod vocab, except that with probability
/// 1/8 it is uniform. All randomness comes from the stream "data" at counter sample * 2^32 + position. A perfect model
/// of it reaches a loss of about 0.375 + 0.12 ln(vocab).
///
/// A path: the file's bytes (at most 4 GiB) are the tokens; sample i starts at (i * sequence) mod (size - sequence -
/// 1).
class TokenSource {
  public:
    /// `source` is "synthetic" or a path. Throws InputError when the file cannot be read, is too short for one sequence
    /// or the vocabulary has fewer than 256 tokens.
    TokenSource(const std::string& source, std::uint64_t seed, std::int64_t vocab, std::int64_t sequence);

    [[nodiscard]] std::int64_t sequence() const { return sequence_; }
    /// "synthetic", or of which bytes the text is: sources of one identity give equal tokens for equal settings.
    [[nodiscard]] std::string identity() const;
    /// Writes sequence + 1 tokens: inputs are [0, sequence), targets [1, sequence].
    void tokens_for(std::int64_t sample, std::span<std::int32_t> tokens) const;

  private:
    RandomStream stream_;
    std::int64_t vocab_;
    std::int64_t sequence_;
    bool synthetic_;
    std::string text_;
};

}  // namespace orrery::exec
