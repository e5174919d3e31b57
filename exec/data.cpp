#include "exec/data.h"

#include "core/crc32c.h"
#include "core/error.h"
#include "core/file.h"

namespace orrery::exec {
namespace {

constexpr std::uint64_t kMultiplier = 5;
constexpr std::uint64_t kIncrement = 7;
constexpr std::int64_t kLargestCorpus = std::int64_t{4} << 30;
constexpr std::uint64_t kNoiseMask = 7;  // noise if the three low bits are 0; the token comes from the high bits

}  // namespace

TokenSource::TokenSource(const std::string& source, std::uint64_t seed, std::int64_t vocab, std::int64_t sequence)
    : stream_(seed, "data"), vocab_(vocab), sequence_(sequence), synthetic_(source == "synthetic") {
    ORRERY_CHECK(vocab >= 1 && sequence >= 1, "a token source needs a vocabulary and a sequence length");
    if (synthetic_) return;
    if (vocab < 256) {
        throw InputError(source, "/model/vocab", std::to_string(vocab),
                         "at least 256, because a text file is read as bytes");
    }
    text_ = read_file(source, kLargestCorpus);
    const auto size = static_cast<std::int64_t>(text_.size());
    if (size < sequence + 2) {
        throw InputError(source, "size", std::to_string(size) + " bytes",
                         "at least sequence_length + 2 = " + std::to_string(sequence + 2) + " bytes");
    }
}

std::string TokenSource::identity() const {
    if (synthetic_) return "synthetic";
    return "text of " + std::to_string(text_.size()) + " bytes with CRC-32C " +
           std::to_string(crc32c(text_.data(), text_.size()));
}

void TokenSource::tokens_for(std::int64_t sample, std::span<std::int32_t> tokens) const {
    ORRERY_CHECK(sample >= 0, "negative sample index");
    ORRERY_CHECK(static_cast<std::int64_t>(tokens.size()) == sequence_ + 1, "tokens_for writes sequence + 1 tokens");
    if (!synthetic_) {
        const std::int64_t starts = static_cast<std::int64_t>(text_.size()) - sequence_ - 1;
        const auto start = static_cast<std::size_t>(sample % starts * (sequence_ % starts) % starts);
        for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<unsigned char>(text_[start + i]);
        return;
    }
    const std::uint64_t first_counter = static_cast<std::uint64_t>(sample) << 32;
    const auto vocab = static_cast<std::uint64_t>(vocab_);
    std::uint64_t token = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        const std::uint64_t counter = first_counter + i;
        const bool noise = (stream_.bits(counter) & kNoiseMask) == 0;
        token = i == 0 || noise ? stream_.below(counter, vocab) : (kMultiplier * token + kIncrement) % vocab;
        tokens[i] = static_cast<std::int32_t>(token);
    }
}

}  // namespace orrery::exec
