// Splits published text into pieces for matching: "Flash-Attention v2.5", "flash_attn 2" and "FlashAttention2" are the
// same name, and "without torch.compile" or "overlap: off" deny the name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::published {

class Words {
  public:
    enum class Says : std::uint8_t { nothing, yes, no };

    /// Pieces are runs of letters, split before a capital that follows a lower-case letter, and runs of digits, all in
    /// lower case. A "v" right before digits is dropped.
    explicit Words(std::string_view text);

    /// Whether the text contains a name, written as its pieces joined ("fsdp2", "megatronlm"), and whether it denies
    /// it: "no", "not", "without", "w/o", "non" or "disable" at most two pieces before it, or "not", "off", "false",
    /// "disabled" or "none" at most two pieces after it, in the same clause. "X not stated" counts as nothing. The
    /// first occurrence that says something counts.
    [[nodiscard]] Says says(std::string_view name) const;
    /// The result for the first name of "a|b|c" about which the text says something.
    [[nodiscard]] Says says_any(std::string_view names) const;
    /// Whether any alternative of "a|b&c|d" occurs and is not denied; "b&c" requires both names.
    [[nodiscard]] bool name_any(std::string_view names) const;
    /// Numbers from 1990 to 2099, in order of occurrence.
    [[nodiscard]] std::vector<std::int64_t> years() const;
    [[nodiscard]] bool empty() const { return pieces_.empty(); }

  private:
    struct Piece {
        std::string text;
        std::int64_t clause = 0;  // ",", ";", "+", brackets, line ends and ". " end a clause
    };
    /// Index after the name if it starts at `at`, else 0.
    [[nodiscard]] std::size_t end_of(std::string_view name, std::size_t at) const;
    [[nodiscard]] Says verdict(std::size_t begin, std::size_t end) const;

    std::vector<Piece> pieces_;
};

}  // namespace orrery::published
