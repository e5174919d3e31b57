#include "cli/device_counts.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "core/error.h"

namespace orrery::cli {
namespace {

constexpr std::int64_t kMostDevices = std::int64_t{1} << 20;
constexpr const char* kDeviceCounts =
    "numbers from 1 to 1048576 separated by commas, or a range such as 64..4096 whose numbers double";

std::optional<std::int64_t> count_of(std::string_view text) {
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size() || number < 1 || number > kMostDevices) return {};
    return number;
}

}  // namespace

std::vector<std::int64_t> device_counts(const std::string& text, const std::string& option) {
    std::vector<std::int64_t> counts;
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find(',', begin), text.size());
        const std::string_view item = std::string_view(text).substr(begin, end - begin);
        const std::size_t dots = item.find("..");
        const std::optional<std::int64_t> low = count_of(item.substr(0, dots));
        const std::optional<std::int64_t> high = dots == std::string_view::npos ? low : count_of(item.substr(dots + 2));
        if (!low || !high || *low > *high) throw InputError("command line", option, text, kDeviceCounts);
        for (std::int64_t count = *low; count < *high; count *= 2) counts.push_back(count);
        counts.push_back(*high);
        begin = end + 1;
    }
    std::sort(counts.begin(), counts.end());
    counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
    return counts;
}

}  // namespace orrery::cli
