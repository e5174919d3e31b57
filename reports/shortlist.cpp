#include "reports/shortlist.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/json_reader.h"
#include "reports/table.h"

namespace orrery::reports {
namespace {

using json = nlohmann::ordered_json;

constexpr const char* kSchema = "orrery.shortlist/1";
constexpr IntegerRange kNumbers{1, 32};

json optional_json(const std::string& text) {
    return text.empty() ? json(nullptr) : json(text);
}

std::string optional_string(const JsonReader& reader, const std::string& key) {
    return reader.is_null(key) ? "" : reader.string(key);
}

/// A file of the folder. Throws InputError if it has a path.
std::string file_name(const JsonReader& reader, const std::string& key) {
    std::string name = reader.string(key);
    if (name.empty() || name.find('/') != std::string::npos || name.front() == '.') {
        reader.fail(key, "the name of a file in the shortlist's folder");
    }
    return name;
}

ShortlistChoice read_choice(const JsonReader& reader) {
    ShortlistChoice choice{.number = reader.integer("choice", kNumbers),
                           .plan_name = reader.string("plan"),
                           .implementation = reader.string("implementation"),
                           .strategy = reader.string("strategy"),
                           .step_time_s = reader.number("predicted_step_time_s", kPositive),
                           .peak_memory_gib = reader.number("peak_memory_gib", kNotNegative),
                           .distance = reader.number("distance_from_first", kNotNegative),
                           .plan_file = file_name(reader, "plan_file"),
                           .launch_file = optional_string(reader, "launch_file"),
                           .why_not_run = optional_string(reader, "why_not_run"),
                           .record_file = file_name(reader, "record_file")};
    if (reader.has("predicted_step_time_interval90_s")) {
        const std::vector<double> interval = reader.numbers("predicted_step_time_interval90_s", kPositive);
        if (interval.size() != 2) reader.fail("predicted_step_time_interval90_s", "two numbers");
        choice.step_time_low_s = interval[0];
        choice.step_time_high_s = interval[1];
    }
    reader.finish();
    return choice;
}

}  // namespace

std::string shortlist_text(const Shortlist& shortlist, const std::string& folder) {
    Table table({{"#"},
                 {"stack", Align::left},
                 {"strategy", Align::left},
                 {"distance"},
                 {"step time"},
                 {"against the first"},
                 {"peak GiB"},
                 {"launch", Align::left}});
    bool all_run = true;
    std::string why;
    for (const ShortlistChoice& one : shortlist.choices) {
        table.add_row({std::to_string(one.number), one.implementation, one.strategy, format_fixed(one.distance, 1),
                       format_seconds(one.step_time_s),
                       format_signed_percent(one.step_time_s / shortlist.choices.front().step_time_s - 1),
                       format_fixed(one.peak_memory_gib, 1), one.launch_file.empty() ? "-" : one.launch_file});
        if (!one.launch_file.empty()) continue;
        all_run = false;
        why += fmt::format("choice {} has no launch script: {}\n", one.number, one.why_not_run);
    }
    std::string text = fmt::format("\nShortlist in {}: the fastest plan of each kind\n{}", folder, table.to_text(2));
    text +=
        "  distance: from the first, in factors of two between degrees, and one each for another stack, schedule or "
        "kind of sharding\n";
    return text + why +
           fmt::format("{}; then orrery plan --pick {}/*.record.json\n",
                       all_run ? "run the launch scripts" : "run the launch scripts that there are", folder);
}

std::string shortlist_json(const Shortlist& shortlist) {
    json choices = json::array();
    for (const ShortlistChoice& one : shortlist.choices) {
        json object{{"choice", one.number},
                    {"plan", one.plan_name},
                    {"implementation", one.implementation},
                    {"strategy", one.strategy},
                    {"predicted_step_time_s", one.step_time_s}};
        if (one.step_time_high_s > 0) {
            object["predicted_step_time_interval90_s"] = {one.step_time_low_s, one.step_time_high_s};
        }
        object["peak_memory_gib"] = one.peak_memory_gib;
        object["distance_from_first"] = one.distance;
        object["plan_file"] = one.plan_file;
        object["launch_file"] = optional_json(one.launch_file);
        object["why_not_run"] = optional_json(one.why_not_run);
        object["record_file"] = one.record_file;
        choices.push_back(std::move(object));
    }
    const json document{{"schema", kSchema},
                        {"model", shortlist.model},
                        {"cluster", shortlist.cluster},
                        {"devices", shortlist.devices},
                        {"global_batch_size", shortlist.global_batch},
                        {"sequence_length", shortlist.sequence_length},
                        {"measured_steps", shortlist.steps},
                        {"choices", std::move(choices)}};
    return document.dump(2) + "\n";
}

Shortlist shortlist_from_json_text(const std::string& text, const std::string& file) {
    const JsonReader reader = JsonReader::parse(text, file);
    reader.expect_schema(kSchema);
    Shortlist shortlist{.model = reader.string("model"),
                        .cluster = reader.string("cluster"),
                        .devices = reader.integer("devices", kPositiveInteger),
                        .global_batch = reader.integer("global_batch_size", kPositiveInteger),
                        .sequence_length = reader.integer("sequence_length", kPositiveInteger),
                        .steps = reader.integer("measured_steps", kPositiveInteger)};
    for (const JsonReader& one : reader.objects("choices")) shortlist.choices.push_back(read_choice(one));
    if (shortlist.choices.empty()) reader.fail("choices", "at least one plan");
    reader.finish();
    return shortlist;
}

const MeasuredChoice& Picked::fastest() const {
    const MeasuredChoice* fastest = nullptr;
    for (const MeasuredChoice& one : choices) {
        if (!one.step_time_s) continue;
        if (fastest == nullptr || *one.step_time_s < *fastest->step_time_s) fastest = &one;
    }
    ORRERY_CHECK(fastest != nullptr, "a choice among no records");
    return *fastest;
}

std::optional<double> Picked::regret_avoided() const {
    const auto first = std::min_element(choices.begin(), choices.end(), [](const auto& a, const auto& b) {
        return a.choice.step_time_s < b.choice.step_time_s;
    });
    if (!first->step_time_s) return {};
    return *first->step_time_s / *fastest().step_time_s - 1;
}

std::string picked_text(const Picked& picked) {
    const char* const how = picked.is_measured ? "measured" : "simulated";
    const MeasuredChoice& fastest = picked.fastest();
    Table table({{"#"},
                 {"stack", Align::left},
                 {"strategy", Align::left},
                 {"predicted"},
                 {how},
                 {"error"},
                 {"against the fastest", Align::left}});
    for (const MeasuredChoice& one : picked.choices) {
        const ShortlistChoice& choice = one.choice;
        std::vector<std::string> row{std::to_string(choice.number),
                                     choice.implementation,
                                     choice.strategy,
                                     format_seconds(choice.step_time_s),
                                     "-",
                                     "-",
                                     one.why_not};
        if (one.step_time_s) {
            row[4] = format_seconds(*one.step_time_s);
            row[5] = format_signed_percent(choice.step_time_s / *one.step_time_s - 1);
            row[6] = format_signed_percent(*one.step_time_s / *fastest.step_time_s - 1);
        }
        table.add_row(std::move(row));
    }
    std::string text = table.to_text();
    text += fmt::format("picked: choice {} ({}), step {} {}\n", fastest.choice.number, fastest.choice.plan_file,
                        format_seconds(*fastest.step_time_s), how);
    if (!picked.is_measured) text += "these records are predictions: nothing was measured\n";
    const std::optional<double> regret = picked.regret_avoided();
    if (!regret) return text + "the plan predicted to be the fastest has no complete record\n";
    return text + (*regret > 0
                       ? fmt::format("the plan predicted to be the fastest is {} slower: this regret is avoided\n",
                                     format_percent(*regret))
                       : std::string("the plan predicted to be the fastest is the fastest\n"));
}

std::string picked_json(const Picked& picked) {
    json choices = json::array();
    for (const MeasuredChoice& one : picked.choices) {
        choices.push_back({{"choice", one.choice.number},
                           {"plan", one.choice.plan_name},
                           {"plan_file", one.choice.plan_file},
                           {"predicted_step_time_s", one.choice.step_time_s},
                           {"step_time_s", one.step_time_s ? json(*one.step_time_s) : json(nullptr)},
                           {"why_not", optional_json(one.why_not)}});
    }
    const std::optional<double> regret = picked.regret_avoided();
    const json document{{"schema", "orrery.pick/1"},
                        {"maker", picked.is_measured ? "executed" : "simulated"},
                        {"picked", picked.fastest().choice.number},
                        {"regret_avoided", regret ? json(*regret) : json(nullptr)},
                        {"choices", std::move(choices)}};
    return document.dump(2) + "\n";
}

}  // namespace orrery::reports
