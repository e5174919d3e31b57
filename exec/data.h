// The tokens of a training run. Any rank can compute any sample without the others.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/random.h"

namespace orrery::exec {

/// Deterministic token sequences, indexed by global sample (sample j of step s has index s * global_batch + j).
///
/// "synthetic": the first token is uniform. Each following one is (5 * previous + 7) mod vocab, except that with
/// probability 1/8 it is uniform. All randomness comes from the stream "data" at counter sample * 2^32 + position. A
/// perfect model of it reaches a loss of about 0.375 + 0.12 ln(vocab).
///
/// A path: the tokens are the bytes of the file (at most 4 GiB). Sample i starts at
/// (i * sequence) mod (size - sequence - 1).
class TokenSource {
  public:
    /// `source` is "synthetic" or a path. For a path it throws InputError if the file cannot be read or is shorter than
    /// sequence + 2 bytes, or if the vocabulary has fewer than 256 tokens.
    TokenSource(const std::string& source, std::uint64_t seed, std::int64_t vocab, std::int64_t sequence);

    [[nodiscard]] std::int64_t sequence() const { return sequence_; }
    /// "synthetic", or size and checksum of the text. Sources with the same identity give the same tokens under the
    /// same settings.
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
