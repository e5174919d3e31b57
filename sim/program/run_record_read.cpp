#include <algorithm>
#include <cmath>
#include <map>

#include "core/error.h"
#include "core/json_reader.h"
#include "core/units.h"
#include "sim/program/run_record.h"

namespace orrery::program {
namespace {

/// At most 11 days: in picoseconds, sums of several such times fit into 64 bits.
constexpr NumberRange kMicroseconds{0, 1e12};
constexpr NumberRange kSeconds{0, 1e6};

std::int64_t picoseconds(double value, double per_unit) {
    return static_cast<std::int64_t>(std::llround(value * per_unit));
}

/// Every instruction of a class by its key.
std::map<std::string, Span> spans_by_key(const Program& program, ClassIndex rank_class) {
    std::map<std::string, Span> result;
    const RankClass& ranks = program.classes[rank_class];
    for (const ActionIndex a : ranks.actions.indices()) {
        const SegmentList& segments = ranks.segment_lists[ranks.actions[a].segments];
        for (const SegmentIndex s : segments.indices()) {
            for (const InstructionIndex i : program.bodies[segments[s].body].instructions.indices()) {
                const Span span{.action = a, .segment = s, .instruction = i};
                result.emplace(key_of(program, rank_class, span), span);
            }
        }
    }
    return result;
}

/// The value of an enumeration whose name is at `key`.
template <typename Enum>
Enum named(const JsonReader& json, const std::string& key, std::size_t count) {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < count; ++i) names.emplace_back(name_of(static_cast<Enum>(i)));
    const std::string name = json.choice(key, names);
    return static_cast<Enum>(std::find(names.begin(), names.end(), name) - names.begin());
}

Span read_span(const JsonReader& json, const std::map<std::string, Span>& known, std::vector<SpanSpread>& spreads) {
    const std::string key = json.string("key");
    const auto entry = known.find(key);
    if (entry == known.end()) json.fail("key", "an instruction of the plan that the record names");
    Span span = entry->second;
    json.skip("stream");
    span.ready_ps = picoseconds(json.number("ready_us", kMicroseconds), 1e6);
    span.begin_ps = picoseconds(json.number("begin_us", kMicroseconds), 1e6);
    span.end_ps = picoseconds(json.number("end_us", kMicroseconds), 1e6);
    if (span.end_ps < span.begin_ps) json.fail("end_us", "at least begin_us");
    if (json.has("steps")) {
        const JsonReader steps = json.object("steps");
        const auto read = [&](const char* name) { return picoseconds(steps.number(name, kMicroseconds), 1e6); };
        spreads.push_back({read("p5_us"), read("median_us"), read("p95_us"), read("median_wait_us")});
        steps.finish();
    }
    json.finish();
    return span;
}

DeviceMemory read_device_memory(const JsonReader& json) {
    const auto bytes = [&](const char* key, std::int64_t least) {
        return json.integer(key, {least, std::int64_t{1} << 60});
    };
    DeviceMemory memory{.workspaces = bytes("workspaces_bytes", 0),
                        .context = bytes("context_bytes", 0),
                        .communicators = bytes("communicators_bytes", 0),
                        .runtime = bytes("runtime_bytes", 0)};
    memory.tensors = bytes("allocated_bytes", memory.workspaces) - memory.workspaces;
    memory.cached = bytes("reserved_bytes", memory.allocated()) - memory.allocated();
    const std::int64_t all = memory.in_use();
    // Derived from the other figures.
    if (json.has("in_use_interval90_bytes")) (void)json.numbers("in_use_interval90_bytes", kNotNegative);
    if (json.has("fit_probability")) (void)json.number("fit_probability", NumberRange{0, 1});
    if (bytes("in_use_bytes", 0) != all) json.fail("in_use_bytes", std::to_string(all) + ", the sum of its parts");
    json.finish();
    return memory;
}

/// Parts of a rank that older records lack.
void read_parts(const JsonReader& json, RankRecord& record) {
    if (json.has("collectives")) {
        for (const JsonReader& one : json.objects("collectives")) {
            record.collectives.push_back({named<Stream>(one, "stream", static_cast<std::size_t>(kStreamCount)),
                                          named<CommKind>(one, "kind", kCommKinds), one.integer("bytes_sent", kCount)});
            one.finish();
        }
    }
    if (json.has("memory")) {
        const JsonReader memory = json.object("memory");
        for (const std::string& part : memory.keys())
            record.memory.push_back({part, memory.integer(part, {0, std::int64_t{1} << 60})});
    }
    if (json.has("device_memory")) record.device_memory = read_device_memory(json.object("device_memory"));
}

RankRecord read_rank(const JsonReader& json, const Program& program,
                     IndexedVector<ClassIndex, std::map<std::string, Span>>& known_spans) {
    RankRecord record;
    record.rank = json.integer("rank", {0, program.world_size() - 1});
    record.multiplicity = json.integer("multiplicity", {1, program.world_size()});
    record.rank_class = program.class_of(record.rank);
    const std::string& name = program.classes[record.rank_class].name;
    if (json.string("class") != name) json.fail("class", name);
    const JsonReader streams = json.object("streams");
    for (const Stream s : kStreams) {
        const std::string key(name_of(s));
        if (s == Stream::side && !streams.has(key)) continue;  // older records do not have this stream
        const JsonReader stream = streams.object(key);
        record.streams[s].busy_ps = picoseconds(stream.number("busy_s", kSeconds), kPicosecondsPerSecond);
        record.streams[s].exposed_ps = picoseconds(stream.number("exposed_s", kSeconds), kPicosecondsPerSecond);
        record.bytes_sent[s] = stream.integer("bytes_sent", kCount);
        stream.finish();
    }
    streams.finish();
    record.memory_peak_bytes = json.integer("memory_peak_bytes", {0, std::int64_t{1} << 60});
    record.memory_live_peak_bytes = json.integer("memory_live_peak_bytes", {0, std::int64_t{1} << 60});
    read_parts(json, record);
    if (json.has("spans")) {
        std::map<std::string, Span>& known = known_spans[record.rank_class];
        if (known.empty()) known = spans_by_key(program, record.rank_class);
        for (const JsonReader& span : json.objects("spans")) {
            record.spans.push_back(read_span(span, known, record.spreads));
        }
        if (!record.spreads.empty() && record.spreads.size() != record.spans.size()) {
            json.fail("spans", "\"steps\" in all spans, or in none");
        }
    }
    json.finish();
    return record;
}

}  // namespace

RunRecord run_record_from_json_text(const std::string& text, const std::string& file, const Program& program) {
    const JsonReader json = JsonReader::parse(text, file);
    json.expect_schema("orrery.run_record/1");
    RunRecord record;
    record.plan_name = json.string("plan");
    if (record.plan_name != program.plan->name) json.fail("plan", "the plan \"" + program.plan->name + "\"");
    record.maker = json.choice("maker", {"simulated", "executed"}) == "simulated" ? Maker::simulated : Maker::executed;
    record.step_time_s = json.number("step_time_s", kNotNegative);
    if (json.has("step_time_interval90_s")) {
        const std::vector<double> interval = json.numbers("step_time_interval90_s", kNotNegative);
        if (interval.size() != 2) json.fail("step_time_interval90_s", "two numbers");
        record.step_time_low_s = interval[0];
        record.step_time_high_s = interval[1];
    }
    record.step_seconds = json.numbers("step_seconds", kNotNegative);
    record.step_time_p5_s = json.number_or("step_time_p5_s", kNotNegative, record.step_time_s);
    record.step_time_p95_s = json.number_or("step_time_p95_s", kNotNegative, record.step_time_s);
    if (json.has("memory")) {
        const JsonReader memory = json.object("memory");
        record.memory_needed_bytes = memory.integer("needed_bytes", {0, std::int64_t{1} << 60});
        record.memory_allowed_bytes = memory.integer("allowed_bytes", {1, std::int64_t{1} << 60});
        const bool fits = record.memory_needed_bytes <= record.memory_allowed_bytes;
        if (memory.boolean("fits") != fits)
            memory.fail("fits", std::string(fits ? "true" : "false") + ", because of needed_bytes and allowed_bytes");
        memory.finish();
    }
    record.idle_fraction =
        json.number(json.has("idle_fraction") ? "idle_fraction" : "bubble_fraction", {-1, 1});  // its former name
    record.losses = json.numbers("losses", {-kLargestNumber, kLargestNumber});
    record.first_step = json.integer_or("first_step", kCount, 0);
    if (json.has("checkpoints")) {
        const JsonReader checkpoints = json.object("checkpoints");
        record.checkpoint_bytes = checkpoints.integer("bytes", kPositiveInteger);
        record.checkpoint_seconds = checkpoints.numbers("seconds", kNotNegative);
        checkpoints.finish();
    }
    IndexedVector<ClassIndex, std::map<std::string, Span>> known(program.classes.size());
    for (const JsonReader& rank : json.objects("ranks")) record.ranks.push_back(read_rank(rank, program, known));
    record.notes = json.strings("notes");
    const JsonReader environment = json.object("environment");
    for (const std::string& key : environment.keys()) record.environment[key] = environment.string(key);
    json.finish();
    return record;
}

}  // namespace orrery::program
