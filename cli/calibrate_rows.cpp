#include "cli/calibrate_rows.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "cli/commands.h"
#include "cli/parallel.h"
#include "core/error.h"
#include "core/file.h"
#include "core/units.h"
#include "reports/error_summary.h"
#include "reports/sweep_summary.h"
#include "reports/table.h"
#include "sim/planner/planner.h"
#include "sim/program/rate_check.h"
#include "sim/program/rate_spread.h"
#include "sim/program/validated.h"
#include "sim/published/measured_memory.h"
#include "sim/published/plan_of.h"
#include "sim/published/run_groups.h"
#include "sim/refine/rate_fit.h"

namespace orrery::cli {
namespace {

using program::Rate;
using program::RateCatalogue;
using published::PublishedRow;
using topologies::Provenance;

/// For each pass, how far the logarithm of a rate may move before the runs are simulated again.
constexpr std::array<double, 6> kReach{1.0, 0.7, 0.5, 0.5, 0.3, 0.2};
/// The last passes drop rates with too little information; in the earlier ones, of which there is at least one, all
/// rates are free. The first dropping pass requires a margin of information, so that the later ones rarely drop more.
constexpr std::size_t kPassesThatDrop = 3;
constexpr double kMarginOfFirstDrop = 0.05;
/// Of the rates with too little information, one in this many is dropped at a time.
constexpr std::size_t kPartOfUninformed = 6;
/// Number of passes of each fit with a part left out.
constexpr std::size_t kPassesOfFold = 5, kPassesOfSource = 3;

struct Row {
    const PublishedRow* published = nullptr;
    program::Plan plan;
    std::string group;
    std::uint32_t fold = 0;
    double step_s = 0;
    double sd = 0;            // of the logarithm of step_s; 0: not computed
    double memory_error = 0;  // log(predicted / measured) of the measured kind; 0: not measured
    double memory_sd = 0;     // of memory_error
    program::Sensitivity sensitivity;
};

double memory_error(const program::Plan& plan, const published::PublishedMeasurement& measured) {
    if (!measured.peak_memory_gib) return 0;
    const std::int64_t bytes = published::memory_as_measured(program::lower(plan), measured);
    return std::log(to_gib(Bytes(bytes)) / *measured.peak_memory_gib);
}

/// Scored rows that can be expressed as plans.
std::vector<Row> rows_of(const std::vector<PublishedRow>& published) {
    std::vector<Row> rows;
    for (const PublishedRow& row : published) {
        if (!row.refused.empty() || !row.run.scored || !row.measured.step_time_s) continue;
        published::PlanOfRun translated = published::plan_of(row.run);
        if (!translated.plan) continue;
        refuse_long_step(*translated.plan, row.run.id, "--rows");
        rows.push_back({.published = &row,
                        .plan = std::move(*translated.plan),
                        .group = published::group_of(row.run),
                        .fold = published::fold_of(row.run)});
    }
    in_parallel("counting memory", rows.size(),
                [&](std::size_t i) { rows[i].memory_error = memory_error(rows[i].plan, rows[i].published->measured); });
    return rows;
}

/// Simulates the chosen rows. The others get the catalogue's rates too, since all rows of a problem refer to the same
/// figures, but keep their times.
void simulate(std::vector<Row>& rows, const RateCatalogue& catalogue, bool derivatives,
              const std::vector<bool>& chosen = {}) {
    in_parallel(derivatives ? "simulating with derivatives" : "simulating", rows.size(), [&](std::size_t i) {
        Row& row = rows[i];
        row.plan.rates = program::resolve_rates(row.plan.implementation, row.plan.cluster, catalogue);
        if (!chosen.empty() && !chosen[i]) return;
        const topologies::Cluster cluster(row.plan.cluster);
        sim::Evaluation evaluation = sim::evaluate(program::lower(row.plan), cluster, {.derivatives = derivatives});
        row.step_s = evaluation.record.step_time_s;
        row.sensitivity = std::move(evaluation.sensitivity);
    });
}

sim::RateProblem problem_of(const std::vector<Row>& rows) {
    sim::RateProblem problem;
    for (const Row& row : rows) {
        problem.add(row.plan, row.sensitivity,
                    {.source = row.published->run.source,
                     .group = row.group,
                     .measured_s = *row.published->measured.step_time_s,
                     .predicted_s = row.step_s});
    }
    return problem;
}

bool is_informed(const sim::FittedRate& rate, double least_information = program::kLeastInformation) {
    return rate.information >= least_information && rate.groups >= program::kFewestGroups;
}

std::string source_text(const sim::FittedRate& rate) {
    std::string text =
        fmt::format("orrery calibrate --rows: {} runs of {} groups move it, of ", rate.runs, rate.groups);
    for (std::size_t i = 0; i < rate.sources.size(); ++i) text += (i == 0 ? "" : "; ") + rate.sources[i];
    return text;
}

/// The fitted figures; dropped rates keep their priors.
RateCatalogue catalogue_of(const sim::RateFit& fit, const RateCatalogue& priors, const std::set<std::string>& dropped) {
    RateCatalogue catalogue = priors;
    for (const sim::FittedRate& rate : fit.rates) {
        if (dropped.contains(rate.name)) continue;
        catalogue[rate.name] = {.value = rate.value,
                                .kind = Provenance::fitted,
                                .source = source_text(rate),
                                .prior = rate.prior,
                                .sd = rate.sd,
                                .information = rate.information};
    }
    return catalogue;
}

/// Holds dropped rates at their priors and removes them from the problem.
void hold(sim::RateProblem& problem, const std::set<std::string>& dropped) {
    for (sim::RunToFit& run : problem.runs) {
        for (sim::RunToFit::Term& term : run.terms) {
            const auto is_dropped = [&](const sim::RunToFit::Term::Use& use) {
                return dropped.contains(problem.rates[use.rate].name);
            };
            for (const sim::RunToFit::Term::Use& use : term.uses) {
                if (!is_dropped(use)) continue;
                const sim::FittedRate& rate = problem.rates[use.rate];
                const double factor = std::pow(rate.prior / rate.start, use.power);
                run.predicted_s += term.seconds * (factor - 1);
                term.seconds *= factor;
            }
            std::erase_if(term.uses, is_dropped);
        }
    }
}

/// Fits the rates within `reach`. Rates with less than `least_information` are added to `dropped`, until all remaining
/// ones have enough; nullopt: no rate is dropped.
sim::RateFit move(sim::RateProblem problem, double reach, const std::vector<bool>& chosen,
                  std::optional<double> least_information, std::set<std::string>& dropped) {
    hold(problem, dropped);
    while (true) {
        sim::RateFit found = sim::fit_rates(problem, reach, chosen);
        if (!least_information) return found;
        std::vector<const sim::FittedRate*> uninformed;
        for (const sim::FittedRate& rate : found.rates) {
            if (!dropped.contains(rate.name) && !is_informed(rate, *least_information)) uninformed.push_back(&rate);
        }
        if (uninformed.empty()) return found;
        // Rates can substitute for one another, so dropping one gives the others more information. Rates with too few
        // groups are dropped first, then those with the least information.
        const auto end_of_few = std::partition(uninformed.begin(), uninformed.end(), [](const sim::FittedRate* rate) {
            return rate->groups < program::kFewestGroups;
        });
        auto some = static_cast<std::size_t>(end_of_few - uninformed.begin());
        if (some == 0) {
            some = (uninformed.size() + kPartOfUninformed - 1) / kPartOfUninformed;
            std::partial_sort(uninformed.begin(), uninformed.begin() + static_cast<std::ptrdiff_t>(some),
                              uninformed.end(),
                              [](const auto* a, const auto* b) { return a->information < b->information; });
        }
        for (std::size_t i = 0; i < some; ++i) dropped.insert(uninformed[i]->name);
        hold(problem, dropped);
    }
}

/// Fits to the chosen rows by alternating moves of the rates and simulations. A move after which the simulated rows are
/// worse is reverted, and the next one goes half as far. On return the chosen rows are simulated with the result.
RateCatalogue fit(std::vector<Row>& rows, const RateCatalogue& priors, const std::vector<bool>& chosen,
                  std::size_t passes, sim::RateFit& result) {
    RateCatalogue best = priors;
    std::vector<Row> best_rows = rows;
    std::set<std::string> dropped;
    double least = sim::rate_objective(problem_of(rows), chosen);
    double shorter = 1;
    for (std::size_t pass = 0; pass < passes; ++pass) {
        const std::size_t dropped_before = dropped.size();
        const std::size_t first_drop = passes - std::min(kPassesThatDrop, passes - 1);
        std::optional<double> least_information;
        if (pass >= first_drop) {
            least_information = program::kLeastInformation + (pass == first_drop ? kMarginOfFirstDrop : 0);
        }
        sim::RateFit found = move(problem_of(best_rows), kReach.at(pass) * shorter, chosen, least_information, dropped);
        const RateCatalogue catalogue = catalogue_of(found, priors, dropped);
        simulate(rows, catalogue, true, chosen);
        const double objective = sim::rate_objective(problem_of(rows), chosen);
        // A larger objective is accepted if rates were dropped, since fewer rates explain less.
        if (objective >= least && dropped.size() == dropped_before) {
            shorter /= 2;
            continue;
        }
        least = objective;
        best = catalogue;
        best_rows = rows;
        result = std::move(found);
    }
    rows = std::move(best_rows);
    return best;
}

/// Errors, sweeps and interval coverage of predicted rows.
struct Score {
    std::vector<double> all;
    std::map<std::string, std::vector<double>> by_source;
    std::vector<reports::SweepRun> sweeps;
    struct Coverage {
        std::size_t held = 0, all = 0;
        void add(double error, double sd) {
            ++all;
            if (std::abs(error) <= program::kStudentQuantile90 * sd) ++held;
        }
        [[nodiscard]] double share() const {
            return static_cast<double>(held) / static_cast<double>(std::max<std::size_t>(1, all));
        }
    };
    Coverage steps, memory;
    std::map<std::string, Coverage> steps_by_source;

    void add(const Row& row) {
        const published::PublishedRun& run = row.published->run;
        const double measured = *row.published->measured.step_time_s;
        const double error = row.step_s / measured - 1;
        all.push_back(error);
        by_source[run.source].push_back(error);
        sweeps.push_back({published::sweep_of(run), row.step_s, measured});
        if (row.sd > 0) {
            steps.add(std::log(row.step_s / measured), row.sd);
            steps_by_source[run.source].add(std::log(row.step_s / measured), row.sd);
        }
        if (row.memory_error != 0) memory.add(row.memory_error, row.memory_sd);
    }
};

std::string score_text(const Score& score) {
    reports::Table table({{"source", reports::Align::left}, {"rows"}, {"median"}, {"mean"}, {"p90"}, {"bias"}});
    const auto add = [&table](const std::string& name, const std::vector<double>& values) {
        std::vector<std::string> cells{name.substr(0, 52)};
        for (std::string& cell : reports::error_cells(reports::error_summary(values))) cells.push_back(std::move(cell));
        table.add_row(std::move(cells));
    };
    for (const auto& [source, values] : score.by_source) add(source, values);
    table.add_rule();
    add("all", score.all);
    std::string text = table.to_text() + reports::sweep_text(reports::sweep_summary(score.sweeps));
    // Errors of runs of one source are correlated if its rates are unknown. So coverage is also averaged over sources,
    // each counted once.
    double sum = 0;
    for (const auto& [source, coverage] : score.steps_by_source) sum += coverage.share();
    const double mean = sum / static_cast<double>(std::max<std::size_t>(1, score.steps_by_source.size()));
    return text + fmt::format(
                      "90% intervals hold {} of the measured steps ({} as the mean of the sources) and {} of the "
                      "measured memory.\n",
                      reports::format_percent(score.steps.share()), reports::format_percent(mean),
                      reports::format_percent(score.memory.share()));
}

std::string rates_text(const sim::RateFit& fit) {
    reports::Table table(
        {{"rate", reports::Align::left}, {"value"}, {"prior"}, {"sd"}, {"information"}, {"runs"}, {"groups"}});
    std::vector<sim::FittedRate> informed;
    std::copy_if(fit.rates.begin(), fit.rates.end(), std::back_inserter(informed),
                 [](const sim::FittedRate& rate) { return is_informed(rate); });
    std::sort(informed.begin(), informed.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    for (const sim::FittedRate& rate : informed) {
        table.add_row({rate.name, reports::format_fixed(rate.value, 3), reports::format_fixed(rate.prior, 3),
                       reports::format_fixed(rate.sd, 2), reports::format_fixed(rate.information, 2),
                       std::to_string(rate.runs), std::to_string(rate.groups)});
    }
    return table.to_text() + fmt::format("{} rates are fitted; the runs give too little information on {} more.\n",
                                         informed.size(), fit.rates.size() - informed.size());
}

/// A stack with at least this many published memory figures has its own spread; others get that of the worst stack.
constexpr std::size_t kFewestMemories = 8;

/// A robust standard deviation, from the median absolute error.
double sd_of(std::vector<double> errors) {
    if (errors.empty()) return 0;
    for (double& error : errors) error = std::abs(error);
    constexpr double kOfMedian = 1.4826;  // sd over median absolute deviation of a normal distribution
    const auto middle = errors.begin() + static_cast<std::ptrdiff_t>(errors.size() / 2);
    std::nth_element(errors.begin(), middle, errors.end());
    return kOfMedian * *middle;
}

program::RateSpread spread_of(const std::vector<Row>& rows, const sim::RateFit& fit, const std::vector<bool>& chosen) {
    std::vector<double> steps;
    std::vector<double> all_memories;
    std::map<std::string, std::vector<double>> memories;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        if (!chosen.empty() && !chosen[i]) continue;
        steps.push_back(std::log(fit.predicted_s[i] / *rows[i].published->measured.step_time_s));
        if (rows[i].memory_error == 0) continue;
        all_memories.push_back(rows[i].memory_error);
        memories[rows[i].plan.implementation.name].push_back(rows[i].memory_error);
    }
    program::RateSpread spread{.residual_sd = sd_of(std::move(steps))};
    for (auto& [stack, errors] : memories) {
        if (errors.size() < kFewestMemories) continue;
        const double sd = sd_of(std::move(errors));
        spread.memory_sd_of_stack[stack] = sd;
        spread.memory_sd = std::max(spread.memory_sd, sd);
    }
    if (spread.memory_sd_of_stack.empty()) spread.memory_sd = sd_of(std::move(all_memories));
    std::vector<std::size_t> informed;
    for (std::size_t r = 0; r < fit.rates.size(); ++r) {
        if (is_informed(fit.rates[r])) informed.push_back(r);
    }
    const auto covariance = [&](std::size_t a, std::size_t b) { return fit.covariance[a * fit.rates.size() + b]; };
    for (const std::size_t a : informed) {
        for (const std::size_t b : informed) {
            if (b == a) break;
            spread.correlations.push_back(
                std::clamp(covariance(a, b) / std::sqrt(covariance(a, a) * covariance(b, b)), -1.0, 1.0));
        }
        spread.names.push_back(fit.rates[a].name);
    }
    for (const program::RateRow& row : program::rate_rows()) {
        const std::string ending = "/" + std::string(row.name);
        std::vector<double> fitted;
        for (const std::size_t r : informed) {
            const sim::FittedRate& rate = fit.rates[r];
            if (rate.name.ends_with(ending)) fitted.push_back(std::log(rate.value / rate.prior));
        }
        spread.sd_of_key[std::string(row.name)] = program::sd_of_key(row.sd, fitted);
    }
    return spread;
}

void write_rates(const std::string& folder, const RateCatalogue& catalogue, const program::RateSpread& spread) {
    RateCatalogue fitted = catalogue;
    std::erase_if(fitted, [](const auto& entry) { return entry.second.kind != Provenance::fitted; });
    std::filesystem::create_directories(folder);
    write_file_atomically(folder + "/fitted.json", program::to_json_text(fitted));
    write_file_atomically(folder + "/spread.json", program::to_json_text(spread));
}

/// `parts`: for each row the folder with the rates that predict it.
void write_predictions(const std::string& folder, const std::vector<Row>& rows, const std::vector<std::string>& parts) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (std::size_t i = 0; i < rows.size(); ++i) {
        list.push_back({{"id", rows[i].published->run.id},
                        {"source", rows[i].published->run.source},
                        {"rates", parts[i]},
                        {"measured_s", *rows[i].published->measured.step_time_s},
                        {"predicted_s", rows[i].step_s},
                        {"log_sd", rows[i].sd}});
    }
    write_file_atomically(folder + "/predictions.json", list.dump(1) + "\n");
}

/// Errors by implementation, for rows predicted with rates that were fitted without them.
void write_validated(const std::string& folder, const std::vector<Row>& rows) {
    std::map<std::string, std::vector<double>> errors;
    for (const Row& row : rows) {
        errors[row.plan.implementation.name].push_back(row.step_s / *row.published->measured.step_time_s - 1);
    }
    program::ValidatedStacks stacks;
    for (const auto& [name, of_stack] : errors) {
        const reports::ErrorSummary summary = reports::error_summary(of_stack);
        stacks[name] = {.runs = static_cast<std::int64_t>(summary.rows),
                        .median = summary.median,
                        .mean = summary.mean,
                        .bias = summary.bias};
    }
    write_file_atomically(folder + "/validated.json", program::to_json_text(stacks));
}

/// Predicts each part of the rows with rates fitted to the other parts; `part_of` gives the part of a row. Writes the
/// rates of each part and all predictions to the folder `output` (empty: nowhere).
template <typename PartOf>
Score left_out(std::vector<Row>& rows, const RateCatalogue& priors, std::size_t passes, const std::string& output,
               const PartOf& part_of) {
    const std::vector<Row> at_priors = rows;
    std::set<std::string> parts;
    for (const Row& row : rows) parts.insert(part_of(row));
    std::vector<Row> tested(rows.size());
    std::vector<std::string> folders(rows.size());
    for (const std::string& part : parts) {
        const std::string folder = fmt::format("without-{}", std::distance(parts.begin(), parts.find(part)));
        rows = at_priors;
        std::vector<bool> learns(rows.size()), is_tested(rows.size());
        for (std::size_t i = 0; i < rows.size(); ++i) {
            is_tested[i] = part_of(rows[i]) == part;
            learns[i] = !is_tested[i];
        }
        sim::RateFit result;
        const RateCatalogue catalogue = fit(rows, priors, learns, passes, result);
        const program::RateSpread spread = spread_of(rows, result, learns);
        if (!output.empty()) write_rates(output + "/" + folder, catalogue, spread);
        simulate(rows, catalogue, true, is_tested);
        for (std::size_t i = 0; i < rows.size(); ++i) {
            if (!is_tested[i]) continue;
            rows[i].sd = program::step_time_sd(rows[i].plan, rows[i].sensitivity, rows[i].step_s, spread);
            rows[i].memory_sd = spread.memory_sd_of(rows[i].plan.implementation.name);
            tested[i] = rows[i];
            folders[i] = folder;
        }
    }
    Score score;
    for (const Row& row : tested) score.add(row);
    if (!output.empty()) {
        write_predictions(output, tested, folders);
        write_validated(output, tested);
        print(fmt::format(
            "predictions.json and validated.json written to {0}, the rates of each part to {0}/without-0 and so on\n",
            output));
    }
    return score;
}

/// "76 runs of 70 groups" from a source text that calibrate wrote; other texts are returned unchanged.
std::string runs_text(const std::string& source) {
    const std::size_t begin = source.find(": "), end = source.find(" move it");
    if (begin == std::string::npos || end == std::string::npos || end < begin) return source;
    return source.substr(begin + 2, end - begin - 2);
}

std::string fitted_text(const RateCatalogue& catalogue) {
    reports::Table table({{"rate", reports::Align::left},
                          {"value"},
                          {"prior"},
                          {"sd"},
                          {"information"},
                          {"fitted to", reports::Align::left}});
    for (const auto& [name, rate] : catalogue) {
        if (rate.kind != Provenance::fitted) continue;
        table.add_row({name, reports::format_fixed(rate.value, 3), reports::format_fixed(rate.prior, 3),
                       reports::format_fixed(rate.sd, 2), reports::format_fixed(rate.information, 2),
                       runs_text(rate.source)});
    }
    return table.to_text();
}

std::string keys_text() {
    reports::Table table({{"key", reports::Align::left},
                          {"prior"},
                          {"sd"},
                          {"of each", reports::Align::left},
                          {"what", reports::Align::left}});
    constexpr std::array kOwners{"stack", "device", "kernel", "fabric", "everybody"};
    for (const program::RateRow& row : program::rate_rows()) {
        table.add_row({std::string(row.name), reports::format_fixed(row.prior, 3), reports::format_fixed(row.sd, 2),
                       kOwners.at(static_cast<std::size_t>(row.owner)), std::string(row.what)});
    }
    return table.to_text();
}

/// Rates that have a prior of their own instead of their key's.
std::string priors_text() {
    reports::Table table({{"rate with a prior of its own", reports::Align::left},
                          {"prior"},
                          {"sd"},
                          {"kind", reports::Align::left},
                          {"source", reports::Align::left}});
    for (const auto& [name, rate] : program::built_in_priors()) {
        table.add_row({name, reports::format_fixed(rate.prior, 3), reports::format_fixed(rate.sd, 2),
                       topologies::name_of(rate.kind), rate.source});
    }
    return table.to_text();
}

}  // namespace

int run_calibrate_rows(const CalibrateRowsOptions& options, const std::string& output) {
    const std::vector<PublishedRow> published = published::read_published_rows(options.files);
    std::vector<Row> rows = rows_of(published);
    if (rows.empty()) {
        throw InputError(options.files.front(), "--rows", "no row", "scored rows that can be expressed as plans");
    }
    const RateCatalogue& priors = program::built_in_priors();
    simulate(rows, priors, true);
    if (options.cross_validate) {
        print(score_text(
            left_out(rows, priors, kPassesOfFold, output, [](const Row& row) { return std::to_string(row.fold); })));
        print("Each row is predicted with rates fitted without its fold.\n");
        return kExitDone;
    }
    if (options.leave_sources_out) {
        const auto family = [](const Row& row) { return published::source_family(row.published->run.source); };
        print(score_text(left_out(rows, priors, kPassesOfSource, output, family)));
        print("Each row is predicted with rates fitted without the runs of its team.\n");
        return kExitDone;
    }
    sim::RateFit result;
    const RateCatalogue catalogue = fit(rows, priors, {}, kReach.size(), result);
    const program::RateSpread spread = spread_of(rows, result, {});
    Score score;
    for (Row& row : rows) {
        row.sd = program::step_time_sd(row.plan, row.sensitivity, row.step_s, spread);
        row.memory_sd = spread.memory_sd_of(row.plan.implementation.name);
        score.add(row);
    }
    print(rates_text(result) + "\n" + score_text(score));
    if (!output.empty()) {
        write_rates(output, catalogue, spread);
        write_predictions(output, rows, std::vector<std::string>(rows.size(), "."));
        print("fitted.json, spread.json and predictions.json written to " + output + "\n");
    }
    return kExitDone;
}

int run_check_rates() {
    const RateCatalogue& catalogue = program::built_in_rates();
    const std::vector<std::string> faults = program::rate_faults(catalogue);
    std::string text = fitted_text(catalogue) + "\n" + keys_text() + "\n" + priors_text();
    std::string wide;
    for (const program::RateRow& row : program::rate_rows()) {
        if (row.sd > program::kWidestPrior) wide += (wide.empty() ? "" : ", ") + std::string(row.name);
    }
    text += fmt::format("\n{} fitted rates of at most {}. Keys with priors wider than {}: {}.\n",
                        program::fitted_rates(catalogue), program::kMostFittedRates, program::kWidestPrior, wide);
    for (const std::string& fault : faults) text += "FAULT " + fault + "\n";
    print(text);
    return faults.empty() ? kExitDone : kExitJobFailed;
}

}  // namespace orrery::cli
