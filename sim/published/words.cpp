#include "sim/published/words.h"

#include <algorithm>
#include <array>

#include "core/letters.h"

namespace orrery::published {
namespace {

bool ends_clause(std::string_view text, std::size_t at) {
    if (std::string_view(",;+()[]\n").find(text[at]) != std::string_view::npos) return true;
    return text[at] == '.' && at + 1 < text.size() && text[at + 1] == ' ';
}

template <std::size_t Count>
bool is_one_of(std::string_view word, const std::array<std::string_view, Count>& words) {
    return std::find(words.begin(), words.end(), word) != words.end();
}

constexpr std::array<std::string_view, 5> kDenials{"no", "not", "without", "non", "disable"};
constexpr std::array<std::string_view, 4> kOff{"off", "false", "disabled", "none"};
constexpr std::array<std::string_view, 6> kNotSaid{"stated", "published", "specified",
                                                   "given",  "mentioned", "reported"};

/// Calls `use` for each part of `names` between separators.
template <typename Use>
void each_part(std::string_view names, char separator, Use use) {
    while (!names.empty()) {
        const std::size_t end = std::min(names.find(separator), names.size());
        use(names.substr(0, end));
        names.remove_prefix(std::min(end + 1, names.size()));
    }
}

}  // namespace

Words::Words(std::string_view text) {
    std::int64_t clause = 0;
    for (std::size_t i = 0; i < text.size();) {
        if (!is_letter(text[i]) && !is_digit(text[i])) {
            if (ends_clause(text, i)) ++clause;
            ++i;
            continue;
        }
        const bool letters = is_letter(text[i]);
        Piece piece{.clause = clause};
        for (; i < text.size() && (letters ? is_letter(text[i]) : is_digit(text[i])); ++i) {
            if (letters && !piece.text.empty() && is_capital(text[i]) && !is_capital(text[i - 1])) break;
            piece.text += lower_case(text[i]);
        }
        const bool before_digit = i < text.size() && is_digit(text[i]);
        if (letters && before_digit && piece.text.ends_with('v')) piece.text.pop_back();
        if (piece.text.empty()) continue;
        pieces_.push_back(std::move(piece));
    }
}

std::size_t Words::end_of(std::string_view name, std::size_t at) const {
    for (; at < pieces_.size() && !name.empty(); ++at) {
        if (!name.starts_with(pieces_[at].text)) return 0;
        name.remove_prefix(pieces_[at].text.size());
    }
    return name.empty() ? at : 0;
}

Words::Says Words::verdict(std::size_t begin, std::size_t end) const {
    const std::int64_t clause = pieces_[begin].clause;
    for (std::size_t i = begin; i > 0 && begin - i < 2 && pieces_[i - 1].clause == clause; --i) {
        if (is_one_of(pieces_[i - 1].text, kDenials)) return Says::no;
        if (i > 1 && pieces_[i - 1].text == "o" && pieces_[i - 2].text == "w") return Says::no;  // "w/o"
    }
    for (std::size_t i = end; i < pieces_.size() && i < end + 2 && pieces_[i].clause == clause; ++i) {
        if (is_one_of(pieces_[i].text, kOff)) return Says::no;
        if (pieces_[i].text != "not") continue;
        return i + 1 < pieces_.size() && is_one_of(pieces_[i + 1].text, kNotSaid) ? Says::nothing : Says::no;
    }
    return Says::yes;
}

Words::Says Words::says(std::string_view name) const {
    for (std::size_t at = 0; at < pieces_.size(); ++at) {
        if (const std::size_t end = end_of(name, at); end > 0) {
            if (const Says verdict = this->verdict(at, end); verdict != Says::nothing) return verdict;
        }
    }
    return Says::nothing;
}

Words::Says Words::says_any(std::string_view names) const {
    Says result = Says::nothing;
    each_part(names, '|', [&](std::string_view name) {
        if (result == Says::nothing) result = says(name);
    });
    return result;
}

bool Words::name_any(std::string_view names) const {
    bool any = false;
    each_part(names, '|', [&](std::string_view name) {
        bool all = true;
        each_part(name, '&', [&](std::string_view part) { all = all && says(part) == Says::yes; });
        any = any || all;
    });
    return any;
}

std::vector<std::int64_t> Words::years() const {
    std::vector<std::int64_t> years;
    for (const Piece& piece : pieces_) {
        if (piece.text.size() != 4 || !is_digit(piece.text[0])) continue;
        const std::int64_t year = std::stoll(piece.text);
        if (year >= 1990 && year <= 2099) years.push_back(year);
    }
    return years;
}

}  // namespace orrery::published
