#include "core/error.h"
#include "sim/program/issue_trace.h"
#include "sim/program/run_record_fields.h"

namespace orrery::program {
namespace {

constexpr const char* kRunRecordSchema = "orrery.run_record/1";

/// Every instruction of a class by its key.
std::map<std::string, Span> spans_by_key(const Program& program, ClassIndex rank_class) {
    std::map<std::string, Span> result;
    for (const Call& call : trace_of(program, rank_class).calls) {
        const Span span{.action = call.action, .segment = call.segment, .instruction = call.instruction};
        result.emplace(key_of(program, rank_class, span), span);
    }
    return result;
}

}  // namespace

std::string_view name_of(Maker maker) {
    static constexpr auto kNames = name_table<Maker::executed>({"simulated", "executed"});
    return kNames[maker];
}

void read_field(const JsonReader& reader, const std::string& key, std::vector<MemoryPart>& parts) {
    const JsonReader memory = reader.object(key);
    for (const std::string& part : memory.keys()) parts.push_back({part, memory.integer(part, kMemoryBytes)});
}

JsonValue field_json(const std::vector<MemoryPart>& parts) {
    JsonValue json = JsonValue::object();
    for (const MemoryPart& one : parts) json.set(one.part, JsonValue(one.bytes));
    return json;
}

void read_field(const JsonReader& reader, const std::string& key, const SpansOf<RankRecord>& spans,
                const Recorded& recorded) {
    RankRecord& rank = spans.rank;
    std::map<std::string, Span>& known = recorded.spans[rank.rank_class];
    if (known.empty()) known = spans_by_key(recorded.program, rank.rank_class);
    for (const JsonReader& item : reader.objects(key)) {
        const auto found = known.find(item.string("key"));
        if (found == known.end()) item.fail("key", "an instruction of the plan that the record names");
        SpanEntry entry{.key = {}, .stream = {}, .span = found->second, .steps = {}};
        read_fields(item, entry);
        if (entry.span.end_ps < entry.span.begin_ps) item.fail("end_us", "at least begin_us");
        item.finish();
        rank.spans.push_back(entry.span);
        if (entry.steps) rank.spreads.push_back(*entry.steps);
    }
    if (!rank.spreads.empty() && rank.spreads.size() != rank.spans.size()) {
        reader.fail(key, "\"steps\" in all spans, or in none");
    }
}

JsonValue field_json(const SpansOf<const RankRecord>& spans, const Recorded& recorded) {
    const RankRecord& rank = spans.rank;
    ORRERY_CHECK(rank.spreads.empty() || rank.spreads.size() == rank.spans.size(),
                 "a run record must have a spread for each span, or none");
    std::vector<SpanEntry> entries;
    for (const Span& span : rank.spans) {
        const Instruction& instruction = instruction_of(recorded.program, rank.rank_class, span);
        entries.push_back(
            {key_of(recorded.program, rank.rank_class, span), std::string(name_of(instruction.stream)), span, {}});
        if (!rank.spreads.empty()) entries.back().steps = rank.spreads[entries.size() - 1];
    }
    return orrery::field_json(entries);
}

std::string to_json_text(const RunRecord& record, const Program& program) {
    JsonValue json = JsonValue::object();
    json.set("schema", JsonValue(kRunRecordSchema));
    const Recorded recorded(program);
    write_fields(json, fields_of(record, recorded));
    return json.text(2) + "\n";
}

RunRecord run_record_from_json_text(const std::string& text, const std::string& file, const Program& program) {
    const JsonReader json = JsonReader::parse(text, file);
    json.expect_schema(kRunRecordSchema);
    if (json.string("plan") != program.plan->name) json.fail("plan", "the plan \"" + program.plan->name + "\"");
    RunRecord record;
    const Recorded recorded(program);
    const auto fields = fields_of(record, recorded);
    read_fields(json, fields);
    // Older records have fewer figures, and the idle fraction under its former name.
    if (!json.has("idle_fraction")) record.idle_fraction = json.number("bubble_fraction", kIdleFraction);
    if (!json.has("step_time_p5_s")) record.step_time_p5_s = record.step_time_s;
    if (!json.has("step_time_p95_s")) record.step_time_p95_s = record.step_time_s;
    json.finish();
    return record;
}

}  // namespace orrery::program
