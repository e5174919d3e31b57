#include "reports/rate_differences.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "reports/table.h"

namespace orrery::reports {
namespace {

struct Count {
    std::int64_t all = 0, corners = 0, held = 0;
    double worst = 0;  // absolute difference of slopes

    void add(const program::RateDifference& one) {
        ++all;
        if (one.has_corner()) {
            ++corners;
            return;
        }
        if (one.holds()) ++held;
        worst = std::max(worst, std::abs(one.slope - (one.above + one.below) / 2));
    }
    [[nodiscard]] std::vector<std::string> cells(const std::string& name) const {
        const std::int64_t smooth = all - corners;
        return {name,
                format_integer(all),
                format_integer(corners),
                format_integer(smooth - held),
                smooth == 0 ? "-" : format_percent(static_cast<double>(held) / static_cast<double>(smooth)),
                format_fixed(worst, 4)};
    }
};

}  // namespace

std::string rate_differences_text(std::span<const program::RateDifference> differences) {
    Table table({{"key", Align::left}, {"pairs"}, {"corners"}, {"off"}, {"within 1%"}, {"largest deviation"}});
    std::map<std::string, Count> keys;
    Count all;
    for (const program::RateDifference& one : differences) {
        keys[one.rate.substr(one.rate.rfind('/') + 1)].add(one);
        all.add(one);
    }
    for (const auto& [key, count] : keys) table.add_row(count.cells(key));
    table.add_rule();
    table.add_row(all.cells("all"));
    return table.to_text() +
           fmt::format(
               "A pair: a run and a rate that affects its step time. Corners: a rate 0.1% higher and 0.1% lower "
               "changes the\nstep time by different slopes, so there is no derivative; {} of the pairs.\n",
               format_percent(static_cast<double>(all.corners) /
                              static_cast<double>(std::max<std::int64_t>(1, all.all))));
}

}  // namespace orrery::reports
