// Published words as pieces: "Flash-Attention v2.5", "flash_attn 2" and "FlashAttention2" name one thing, and "without
// torch.compile" or "overlap: off" deny what they name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::published {

class Words {
  public:
    enum class Says : std::uint8_t { nothing, yes, no };

    /// Runs of letters, cut before a capital that follows a small one, and runs of digits, all in lower case. A "v"
    /// right before digits is dropped.
    explicit Words(std::string_view text);

    /// Of a name as its pieces without what is between them ("fsdp2", "megatronlm"): whether the text has it, and
    /// whether it says that it is off ("no", "not", "without", "w/o", "non" at most two pieces before it, or "off",
    /// "false", "disabled", "none" up to two pieces after it, in the same clause). "X not stated" says nothing. The
    /// first time that it is said counts.
    [[nodiscard]] Says says(std::string_view name) const;
    /// The first of "a|b|c" that says something.
    [[nodiscard]] Says says_any(std::string_view names) const;
    /// Any of "a|b&c|d" is there and not denied; "b&c" wants both.
    [[nodiscard]] bool name_any(std::string_view names) const;
    /// Numbers from 1990 to 2099, in order.
    [[nodiscard]] std::vector<std::int64_t> years() const;
    [[nodiscard]] bool empty() const { return pieces_.empty(); }

  private:
    struct Piece {
        std::string text;
        std::int64_t clause = 0;  // ",", ";", "+", "(", ")" and ". " end one
    };
    /// Index after the name when it begins at `at`; 0: it does not.
    [[nodiscard]] std::size_t end_of(std::string_view name, std::size_t at) const;
    [[nodiscard]] Says verdict(std::size_t begin, std::size_t end) const;

    std::vector<Piece> pieces_;
};

}  // namespace orrery::published
