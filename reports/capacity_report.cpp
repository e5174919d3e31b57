#include "reports/capacity_report.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "core/json_reader.h"
#include "reports/plan_words.h"
#include "reports/scaling_report.h"
#include "reports/table.h"

namespace orrery::reports {
namespace {

using program::Capacity;
using program::CapacityAnswer;
using program::CapacityLimit;
using program::CapacitySize;

std::string days_text(double days) {
    return format_fixed(days, days < 10 ? 2 : 1);
}

std::string dollars_text(const std::optional<double>& usd) {
    if (!usd) return "-";
    if (*usd >= 1e6) return format_fixed(*usd / 1e6, 2) + " M";
    return format_integer(std::llround(*usd));
}

std::string optional_text(const std::optional<double>& value, int decimals) {
    return value ? format_fixed(*value, decimals) : "-";
}

std::string limit_text(const CapacityAnswer& answer) {
    switch (answer.limit) {
        case CapacityLimit::deadline:
            return "the deadline";
        case CapacityLimit::memory:
            return "memory";
        case CapacityLimit::usd:
            return "no: --max-usd";
        case CapacityLimit::megawatts:
            return "no: --max-mw";
        case CapacityLimit::devices:
            return "no: --gpus-at-most";
        case CapacityLimit::scaling:
            return "no: scaling";
        case CapacityLimit::none:
            return "no plan";
    }
    return "";
}

/// "tp 4 x pp 16 x dp 64".
std::string product_text(const program::Parallelism& p) {
    std::vector<std::string> factors;
    const auto add = [&](const char* name, std::int64_t degree) {
        if (degree > 1) factors.push_back(fmt::format("{} {}", name, degree));
    };
    add("tp", p.tp);
    add("cp", p.cp);
    add("pp", p.pp);
    add("dp", p.dp);
    return factors.empty() ? "one device" : fmt::format("{}", fmt::join(factors, " x "));
}

Table table_of(const Capacity& capacity) {
    Table table({{"cluster", Align::left},
                 {"devices"},
                 {"used"},
                 {"spares"},
                 {"plan", Align::left},
                 {"step time"},
                 {"tokens/s"},
                 {"goodput"},
                 {"days p10"},
                 {"p50"},
                 {"p90"},
                 {"USD"},
                 {"MWh"},
                 {"MW"},
                 {"set by", Align::left}});
    for (const CapacityAnswer& answer : capacity.answers) {
        const CapacitySize& size = answer.best;
        if (!size.is_found()) {
            table.add_row(
                {answer.cluster, "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", limit_text(answer)});
            continue;
        }
        table.add_row({answer.cluster, format_integer(size.devices), format_integer(size.point.devices_used),
                       format_integer(size.devices - size.point.devices_used), plan_words(size.point.plan),
                       format_seconds(size.point.step_time_s), format_integer(std::llround(size.point.tokens_per_s)),
                       format_percent(size.goodput), days_text(size.days_p10), days_text(size.days_p50),
                       days_text(size.days_p90), dollars_text(size.usd), optional_text(size.megawatt_hours, 0),
                       optional_text(size.megawatts, 2), limit_text(answer)});
    }
    return table;
}

std::string parts_text(const CapacitySize& size) {
    return fmt::format("{} devices = {} used ({}) + {} spare\n", format_integer(size.devices),
                       format_integer(size.point.devices_used), product_text(size.point.plan.parallelism),
                       format_integer(size.devices - size.point.devices_used));
}

std::string faults_text(const CapacitySize& size) {
    return fmt::format(
        "an interruption every {} h on average; a checkpoint of {} takes {} and is saved after {} of work; recovery "
        "takes {}: {} of the time is work that lasts\n",
        format_fixed(size.hours_between_interruptions, size.hours_between_interruptions < 10 ? 2 : 0),
        format_bytes(size.checkpoint_gb * 1e9), format_seconds(size.checkpoint_s),
        format_seconds(size.checkpoint_interval_s), format_seconds(size.recovery_s), format_percent(size.goodput));
}

std::string why_text(const Capacity& capacity, const CapacityAnswer& answer) {
    const CapacitySize& size = answer.best;
    const program::CapacityGoal& goal = capacity.goal;
    switch (answer.limit) {
        case CapacityLimit::deadline:
            return "the deadline sets the size: fewer devices that were looked at take longer\n";
        case CapacityLimit::memory:
            return "memory sets the size: no plan was found on fewer devices that were looked at\n";
        case CapacityLimit::usd:
            return fmt::format("--max-usd {} is too low: the job costs {} USD\n", shortest(goal.max_usd),
                               dollars_text(size.usd));
        case CapacityLimit::megawatts:
            return fmt::format("--max-mw {} is too low: the job would be done in {} days\n",
                               shortest(goal.max_megawatts), days_text(size.days_needed));
        case CapacityLimit::devices:
            return fmt::format("{} devices are too few: the job would be done in {} days\n",
                               format_integer(goal.max_devices), days_text(size.days_needed));
        case CapacityLimit::scaling:
            return fmt::format("more devices hardly make it faster: the job would be done in {} days\n",
                               days_text(size.days_needed));
        case CapacityLimit::none:
            return size.reason + "\n";
    }
    return "";
}

std::string explored_text(const Capacity& capacity, const CapacityAnswer& answer) {
    Table table({{"devices"},
                 {"spares"},
                 {"plan", Align::left},
                 {"MFU"},
                 {"goodput"},
                 {"days p50"},
                 {fmt::format("p{:.0f}", capacity.goal.probability * 100)},
                 {"USD"}});
    for (const CapacitySize& size : answer.explored) {
        if (!size.is_found()) continue;
        table.add_row({format_integer(size.devices), format_integer(size.devices - size.point.devices_used),
                       plan_words(size.point.plan), format_percent(size.point.mfu), format_percent(size.goodput),
                       days_text(size.days_p50), days_text(size.days_needed), dollars_text(size.usd)});
    }
    return table.row_count() == 0 ? "" : "sizes looked at:\n" + table.to_text(2);
}

std::string figure_text(const char* what, const std::optional<program::DatedFigure>& figure) {
    if (!figure) return "";
    return fmt::format("  {}: {} ({})\n", what, shortest(figure->value), origin_words(*figure));
}

std::string fault_figures_text(const program::FaultFigures& figures) {
    return "figures of failures:\n" +
           figure_text("device-hours per interruption", figures.device_hours_per_interruption) +
           figure_text("interruptions after which a node is replaced", figures.replaced_share) +
           figure_text("detection s", figures.detection_s) + figure_text("restart s", figures.restart_s) +
           figure_text("repair hours", figures.repair_hours) +
           figure_text("checkpoint GB/s a node", figures.checkpoint_gb_per_s_per_node) +
           figure_text("checkpoint bytes a parameter", figures.checkpoint_bytes_per_parameter);
}

}  // namespace

std::string tokens_text(double tokens) {
    if (tokens >= 1e12) return shortest(tokens / 1e12) + " T";
    if (tokens >= 1e9) return shortest(tokens / 1e9) + " B";
    return format_integer(std::llround(tokens));
}

std::string capacity_text(const Capacity& capacity, std::string (*date_after)(const std::string& start, double days)) {
    const program::CapacityGoal& goal = capacity.goal;
    std::string text = fmt::format(
        "{} tokens in {} days{}, with a probability of {}\n", tokens_text(goal.tokens), shortest(goal.days),
        goal.start.empty() ? "" : fmt::format(" ({} to {})", goal.start, goal.by), format_percent(goal.probability, 0));
    text += table_of(capacity).to_text();
    const CapacityAnswer& first = capacity.answers.front();
    const CapacitySize& size = first.best;
    text += "\n" + first.cluster + ": ";
    if (!size.is_found()) return text + size.reason + "\n" + fault_figures_text(capacity.faults);
    text += parts_text(size);
    if (!goal.start.empty()) {
        text += fmt::format("done on {} (p10 {}, p90 {})\n", date_after(goal.start, size.days_p50),
                            date_after(goal.start, size.days_p10), date_after(goal.start, size.days_p90));
    }
    text += why_text(capacity, first) + faults_text(size) + explored_text(capacity, first);
    text +=
        "days: with failures, over the interval of the predicted step time; USD, MWh and MW: of all devices, for "
        "the median\n";
    return text + cost_figures_text(first.figures) + fault_figures_text(capacity.faults);
}

}  // namespace orrery::reports
