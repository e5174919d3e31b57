#include "reports/explanation.h"

#include "reports/span_place.h"
#include "reports/summary.h"

namespace orrery::reports {
namespace {

std::vector<RateShown> rates_of(const program::Plan& plan, const std::map<std::string, double>& slopes) {
    std::vector<RateShown> shown;
    for (const program::RateRow& row : program::rate_rows()) {
        const program::Rates::Resolved& rate = plan.rates.of(row.key);
        if (rate.name.empty()) continue;
        shown.push_back({.rate = rate});
        if (slopes.empty()) continue;
        const auto slope = slopes.find(rate.name);
        shown.back().elasticity = slope == slopes.end() ? 0 : slope->second;
    }
    return shown;
}

}  // namespace

Explanation explain(const program::Program& program, const program::RunRecord& record, const OperatorWeight& weight,
                    const std::vector<PathElement>& path, const std::map<std::string, double>& slopes) {
    const PartTable table(program, weight);
    Explanation result{.plan_name = record.plan_name,
                       .strategy = strategy_of(*program.plan),
                       .maker = record.maker,
                       .time = breakdown_of(program, record, table),
                       .path = critical_path_of(program, record, table, path),
                       .micro_batches = program.plan->micro_batches(),
                       .notes = record.notes,
                       .rates = rates_of(*program.plan, slopes)};
    for (const program::ClassIndex rank_class : program.classes.indices()) {
        const program::RankClass& ranks = program.classes[rank_class];
        ClassMemory memory{.rank_class = rank_class,
                           .name = ranks.name,
                           .footprint = ranks.memory,
                           .peak = program::peak_contents(program, rank_class)};
        if (memory.peak.action >= 0) memory.peak_action = label_of(ranks.actions.at(memory.peak.action));
        result.memory.push_back(std::move(memory));
    }
    return result;
}

}  // namespace orrery::reports
