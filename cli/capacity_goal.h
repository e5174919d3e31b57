// Amounts and dates on the command line of `orrery capacity`.
#pragma once

#include <string>

namespace orrery::cli {

/// A number of tokens such as "15T", "300B", "1.4e12" or "500M". Throws InputError naming the option.
[[nodiscard]] double tokens_named(const std::string& text, const std::string& option);

/// A time such as "90d", "12w" or "36h" in days; 0: the text is a date. Throws InputError naming the option.
[[nodiscard]] double days_named(const std::string& text, const std::string& option);
/// Days from one date, such as 2026-12-01, to another, at least one. Throws InputError naming the option.
[[nodiscard]] double days_between(const std::string& start, const std::string& by);
/// The date so many days after the start, rounded up.
[[nodiscard]] std::string date_after(const std::string& start, double days);

}  // namespace orrery::cli
