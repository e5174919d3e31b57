#include "cli/capacity_goal.h"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <cmath>
#include <map>
#include <optional>
#include <string_view>

#include "core/error.h"

namespace orrery::cli {
namespace {

/// A number followed by one of the units, times what the unit stands for.
std::optional<double> amount_of(const std::string& text, const std::map<std::string_view, double>& units) {
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || !std::isfinite(number)) return {};
    const auto unit = units.find(std::string_view(end, static_cast<std::size_t>(text.data() + text.size() - end)));
    if (unit == units.end()) return {};
    return number * unit->second;
}

std::optional<std::chrono::sys_days> date_of(const std::string& text) {
    int year = 0;
    unsigned month = 0, day = 0;
    if (text.size() != 10 || text[4] != '-' || text[7] != '-') return {};
    const auto read = [&text](std::size_t begin, std::size_t count, auto& number) {
        const char* const last = text.data() + begin + count;
        const auto [end, error] = std::from_chars(text.data() + begin, last, number);
        return error == std::errc() && end == last;
    };
    if (!read(0, 4, year) || !read(5, 2, month) || !read(8, 2, day)) return {};
    const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(month), std::chrono::day(day)};
    if (!date.ok()) return {};
    return std::chrono::sys_days(date);
}

std::chrono::sys_days required_date(const std::string& text, const std::string& option) {
    const std::optional<std::chrono::sys_days> date = date_of(text);
    if (!date) throw InputError("command line", option, text, "a date such as 2027-03-31");
    return *date;
}

}  // namespace

double tokens_named(const std::string& text, const std::string& option) {
    constexpr double kMostTokens = 1e17;
    const std::optional<double> tokens = amount_of(text, {{"", 1}, {"M", 1e6}, {"B", 1e9}, {"T", 1e12}});
    if (!tokens || *tokens < 1 || *tokens > kMostTokens) {
        throw InputError("command line", option, text, "a number of tokens up to 1e17, such as 300B, 15T or 1.4e12");
    }
    return *tokens;
}

double days_named(const std::string& text, const std::string& option) {
    if (date_of(text)) return 0;
    constexpr double kMostDays = 36500;
    const std::optional<double> days = amount_of(text, {{"d", 1}, {"w", 7}, {"h", 1.0 / 24}});
    if (!days || *days <= 0 || *days > kMostDays) {
        throw InputError("command line", option, text,
                         "a time of at most 36500 days, such as 90d, 12w or 36h, or a date such as 2027-03-31");
    }
    return *days;
}

double days_between(const std::string& start, const std::string& by) {
    const auto days = (required_date(by, "--by") - required_date(start, "--start")).count();
    if (days < 1) throw InputError("command line", "--by", by, "a date after --start, " + start);
    return static_cast<double>(days);
}

std::string date_after(const std::string& start, double days) {
    const std::chrono::year_month_day date(required_date(start, "--start") +
                                           std::chrono::days(static_cast<int>(std::ceil(days))));
    return fmt::format("{:04}-{:02}-{:02}", static_cast<int>(date.year()), static_cast<unsigned>(date.month()),
                       static_cast<unsigned>(date.day()));
}

}  // namespace orrery::cli
