// ASCII letters and digits, independent of the locale.
#pragma once

#include <string>
#include <string_view>

namespace orrery {

[[nodiscard]] constexpr bool is_digit(char c) {
    return c >= '0' && c <= '9';
}
[[nodiscard]] constexpr char lower_case(char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}
[[nodiscard]] constexpr bool is_capital(char c) {
    return c >= 'A' && c <= 'Z';
}
[[nodiscard]] constexpr bool is_letter(char c) {
    return lower_case(c) >= 'a' && lower_case(c) <= 'z';
}
[[nodiscard]] inline std::string lower_case(std::string_view text) {
    std::string result(text);
    for (char& c : result) c = lower_case(c);
    return result;
}

}  // namespace orrery
