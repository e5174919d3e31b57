#include "reports/page/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/json_reader.h"
#include "reports/page/sections.h"
#include "reports/plan_words.h"
#include "sim/program/run_record.h"

namespace orrery::reports {
namespace {

/// Results that hold more than the page shows.
template <typename Facts>
Result facts_from_json_text(const std::string& text, const std::string& file) {
    Facts facts;
    read_fields(JsonReader::parse(text, file, JsonPolicy::lenient), facts);
    return facts;
}

struct ResultKind {
    const char* schema;
    Result (*read)(const std::string& text, const std::string& file);
};
constexpr ResultKind kResultKinds[] = {
    {"orrery.scaling/1", [](const std::string& text,
                            const std::string& file) { return Result(program::scaling_from_json_text(text, file)); }},
    {"orrery.whatif/1", [](const std::string& text,
                           const std::string& file) { return Result(program::sweep_from_json_text(text, file)); }},
    {"orrery.tornado/1", [](const std::string& text,
                            const std::string& file) { return Result(program::tornado_from_json_text(text, file)); }},
    {"orrery.crossover/1",
     [](const std::string& text, const std::string& file) {
         return Result(program::crossover_from_json_text(text, file));
     }},
    {"orrery.techniques/1",
     [](const std::string& text, const std::string& file) {
         return Result(program::techniques_from_json_text(text, file));
     }},
    {"orrery.capacity/1", [](const std::string& text,
                             const std::string& file) { return Result(program::capacity_from_json_text(text, file)); }},
    {"orrery.diff/1",
     [](const std::string& text, const std::string& file) { return Result(program::diff_from_json_text(text, file)); }},
    {"orrery.run_record/1",
     [](const std::string& text, const std::string& file) {
         const Result run = facts_from_json_text<RunFacts>(text, file);
         program::check_timed(std::get<RunFacts>(run).environment, file);
         return run;
     }},
    {"orrery.explanation/1", facts_from_json_text<StepFacts>},
    {"orrery.comparison/1", facts_from_json_text<ValidationFacts>},
    {"orrery.row_predictions/1", facts_from_json_text<PublishedFacts>},
};

/// What a result is about, for the list of files: "llama3-8b on dgx-h100".
struct SubjectOf {
    std::string operator()(const program::ScalingCurve& curve) const { return curve.model + " on " + curve.cluster; }
    std::string operator()(const program::InputSweep& sweep) const {
        return fmt::format("{}, {} on {}", sweep.plan, sweep.model, sweep.cluster);
    }
    std::string operator()(const program::Tornado& tornado) const {
        return fmt::format("{}, {} on {}", tornado.plan, tornado.model, tornado.cluster);
    }
    std::string operator()(const program::TechniqueCurves& curves) const {
        return curves.model + " on " + curves.cluster;
    }
    std::string operator()(const program::Crossover& crossover) const {
        return crossover.model + " on " + crossover.cluster;
    }
    std::string operator()(const program::Capacity& capacity) const {
        std::string clusters;
        for (const program::CapacityAnswer& answer : capacity.answers) {
            clusters += (clusters.empty() ? "" : ", ") + answer.cluster;
        }
        return capacity.goal.model + " on " + clusters;
    }
    std::string operator()(const program::PlanDiff& diff) const { return diff.before + " and " + diff.after; }
    std::string operator()(const RunFacts& run) const { return run.plan; }
    std::string operator()(const StepFacts& step) const { return step.plan_name; }
    std::string operator()(const ValidationFacts& validation) const {
        return fmt::format("{} plans that ran", validation.comparisons.size());
    }
    std::string operator()(const PublishedFacts& published) const {
        return fmt::format("{} published runs", published.rows.size());
    }
};

struct SectionOf {
    const ReportWords& words;
    PageSection operator()(const program::ScalingCurve& curve) const { return scaling_section(curve); }
    PageSection operator()(const program::InputSweep& sweep) const { return sweep_section(sweep); }
    PageSection operator()(const program::Tornado& tornado) const { return tornado_section(tornado); }
    PageSection operator()(const program::Crossover& crossover) const { return crossover_section(crossover); }
    PageSection operator()(const program::TechniqueCurves& curves) const { return technique_section(curves); }
    PageSection operator()(const program::Capacity& capacity) const {
        return capacity_section(capacity, words.date_after);
    }
    PageSection operator()(const program::PlanDiff& diff) const { return diff_section(diff); }
    PageSection operator()(const RunFacts& run) const { return run_section(run); }
    PageSection operator()(const StepFacts& step) const { return step_section(step); }
    PageSection operator()(const ValidationFacts& validation) const { return validation_section(validation); }
    PageSection operator()(const PublishedFacts& published) const { return published_section(published); }
};

/// Curves of the same job are compared before each has its section.
void add_comparisons(const std::vector<ResultFile>& files, ReportPage& page) {
    std::vector<std::vector<program::ScalingCurve>> jobs;
    for (const ResultFile& file : files) {
        const auto* const curve = std::get_if<program::ScalingCurve>(&file.result);
        if (curve == nullptr) continue;
        const auto job =
            std::find_if(jobs.begin(), jobs.end(), [&](const auto& one) { return are_of_one_job(one[0], *curve); });
        if (job == jobs.end()) {
            jobs.push_back({*curve});
        } else {
            job->push_back(*curve);
        }
    }
    for (const auto& job : jobs) {
        if (job.size() > 1) page.sections.push_back(scaling_comparison(job));
    }
}

std::vector<FigureUsed> figures_of(const Result& result) {
    if (const auto* const curve = std::get_if<program::ScalingCurve>(&result)) {
        return figures_used(curve->figures, curve->cluster);
    }
    if (const auto* const techniques = std::get_if<program::TechniqueCurves>(&result)) {
        return figures_used(techniques->figures, techniques->cluster);
    }
    std::vector<FigureUsed> figures;
    if (const auto* const capacity = std::get_if<program::Capacity>(&result)) {
        for (const program::CapacityAnswer& answer : capacity->answers) {
            const std::vector<FigureUsed> of_answer = figures_used(answer.figures, answer.cluster);
            figures.insert(figures.end(), of_answer.begin(), of_answer.end());
        }
        const std::vector<FigureUsed> of_faults = figures_used(capacity->faults);
        figures.insert(figures.end(), of_faults.begin(), of_faults.end());
    }
    return figures;
}

/// Of a page: each once.
PageTable figures_table(const std::vector<ResultFile>& files) {
    PageTable table{
        .title = "Figures used",
        .columns = {{"figure", "", true}, {"value"}, {"unit", "", true}, {"as of", "", true}, {"source", "", true}},
        .rows = {},
        .row_kind = "figures"};
    std::vector<FigureUsed> seen;
    for (const ResultFile& file : files) {
        for (const FigureUsed& used : figures_of(file.result)) {
            if (std::find(seen.begin(), seen.end(), used) != seen.end()) continue;
            seen.push_back(used);
            table.rows.push_back({text_cell(used.what), number_cell(used.figure.value, NumberStyle::exact),
                                  text_cell(used.unit), text_cell(used.figure.as_of.empty() ? "-" : used.figure.as_of),
                                  text_cell(used.figure.source)});
        }
    }
    return table;
}

PageTable rates_table(const std::vector<ResultFile>& files) {
    PageTable table{.title = "Rates used",
                    .columns = {{"rate", "", true}, {"value"}, {"kind", "", true}, {"source", "", true}},
                    .rows = {},
                    .row_kind = "rates"};
    for (const ResultFile& file : files) {
        const auto* const step = std::get_if<StepFacts>(&file.result);
        if (step == nullptr) continue;
        for (const RateUsed& rate : step->rates) {
            table.rows.push_back(
                {text_cell(rate.name), number_cell(rate.value), text_cell(rate.kind), text_cell(rate.source)});
        }
    }
    return table;
}

PageSection sources_section(const std::vector<ResultFile>& files, const ReportWords& words) {
    PageTable inputs{.title = "Result files",
                     .columns = {{"file", "", true}, {"schema", "", true}, {"about", "", true}},
                     .rows = {},
                     .row_kind = "files"};
    bool is_priced = false;
    for (const ResultFile& file : files) {
        inputs.rows.push_back(
            {text_cell(file.name), text_cell(file.schema), text_cell(std::visit(SubjectOf{}, file.result))});
        is_priced = is_priced || !figures_of(file.result).empty();
    }
    PageSection section{
        .title = "Assumptions and sources",
        .lead = fmt::format("This page was written by orrery {} from the files below and holds no other "
                            "numbers than theirs.",
                            words.version),
        .tables = {std::move(inputs)}};
    for (PageTable& table : std::vector<PageTable>{figures_table(files), rates_table(files)}) {
        if (!table.rows.empty()) section.tables.push_back(std::move(table));
    }
    section.notes = {
        "An interval of 90% holds the measured step time in 9 of 10 cases, as known from published runs; "
        "docs/accuracy.md of Orrery has the errors."};
    if (is_priced) {
        section.notes.emplace_back("Prices hold for the month stated; offers of providers differ by 2 to 5 times.");
    }
    section.notes.emplace_back("1 GiB is 2^30 bytes; all other prefixes are decimal.");
    return section;
}

std::string title_of(const std::vector<ResultFile>& files) {
    std::string subject = std::visit(SubjectOf{}, files.front().result);
    for (const ResultFile& file : files) {
        if (std::visit(SubjectOf{}, file.result) != subject) return "Distributed training report";
    }
    return subject;
}

std::string kind_of_numbers(const std::vector<ResultFile>& files) {
    const bool measured = std::any_of(files.begin(), files.end(), [](const ResultFile& file) {
        const auto* const run = std::get_if<RunFacts>(&file.result);
        const auto* const diff = std::get_if<program::PlanDiff>(&file.result);
        return (run != nullptr && run->is_measured()) || (diff != nullptr && diff->measured) ||
               std::holds_alternative<ValidationFacts>(file.result) ||
               std::holds_alternative<PublishedFacts>(file.result);
    });
    return measured ? "Predictions and measurements" : "Predictions";
}

}  // namespace

std::vector<std::string> schemas_shown() {
    std::vector<std::string> schemas;
    for (const ResultKind& kind : kResultKinds) schemas.emplace_back(kind.schema);
    return schemas;
}

ResultFile result_from_json_text(const std::string& text, const std::string& file) {
    const std::string schema = JsonReader::parse(text, file, JsonPolicy::lenient).choice("schema", schemas_shown());
    for (const ResultKind& kind : kResultKinds) {
        if (schema == kind.schema) return {file, schema, kind.read(text, file)};
    }
    throw_bug(__FILE__, __LINE__, "a known schema", schema);
}

ReportPage report_of(const std::vector<ResultFile>& files, const ReportWords& words) {
    ORRERY_CHECK(!files.empty(), "a report needs results");
    ReportPage page{.title = words.title.empty() ? title_of(files) : words.title, .sections = {}};
    add_comparisons(files, page);
    for (const ResultFile& file : files) page.sections.push_back(std::visit(SectionOf{words}, file.result));
    page.subtitle = fmt::format("{} of distributed training, from {}", kind_of_numbers(files),
                                files.size() == 1 ? "one result" : fmt::format("{} results", files.size()));
    page.sections.push_back(sources_section(files, words));
    return page;
}

}  // namespace orrery::reports
