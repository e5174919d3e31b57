// The fields of a run record's file (core/json_fields.h). Private to the files that read and write records.
#pragma once

#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json_fields.h"
#include "core/units.h"
#include "sim/program/rate_spread.h"
#include "sim/program/run_record.h"

namespace orrery {

template <>
inline constexpr int kValuesOf<program::Maker> = static_cast<int>(program::Maker::executed) + 1;
template <>
inline constexpr int kValuesOf<program::Stream> = program::kStreamCount;
template <>
inline constexpr int kValuesOf<program::CommKind> = program::kCommKinds;

}  // namespace orrery

namespace orrery::program {

[[nodiscard]] std::string_view name_of(Maker maker);

inline constexpr IntegerRange kMemoryBytes{0, std::int64_t{1} << 60};
inline constexpr IntegerRange kAllowedBytes{1, std::int64_t{1} << 60};
inline constexpr NumberRange kIdleFraction{-1, 1};
inline constexpr NumberRange kLosses{-kLargestNumber, kLargestNumber};

/// Picoseconds, which the file has in another unit.
struct TimeUnit {
    NumberRange range;
    double picoseconds = 1;
};
/// At most 11 days: in picoseconds, sums of several such times fit into 64 bits.
inline constexpr TimeUnit kMicroseconds{{0, 1e12}, 1e6};
inline constexpr TimeUnit kSeconds{{0, 1e6}, kPicosecondsPerSecond};
inline void read_field(const JsonReader& reader, const std::string& key, std::int64_t& time_ps, const TimeUnit& unit) {
    time_ps = static_cast<std::int64_t>(std::llround(reader.number(key, unit.range) * unit.picoseconds));
}
[[nodiscard]] inline JsonValue field_json(std::int64_t time_ps, const TimeUnit& unit) {
    return JsonValue(static_cast<double>(time_ps) / unit.picoseconds);
}

/// Throws BugError if the span is none of the program's.
[[nodiscard]] const Instruction& instruction_of(const Program& program, ClassIndex rank_class, const Span& span);

/// The parts with their names as keys.
void read_field(const JsonReader& reader, const std::string& key, std::vector<MemoryPart>& parts);
[[nodiscard]] JsonValue field_json(const std::vector<MemoryPart>& parts);

template <Either<KindBytes> Object>
void visit_fields(Object& b, auto&& visit) {
    visit("stream", b.stream, kRequired);
    visit("kind", b.kind, kRequired);
    visit("bytes_sent", b.bytes_sent, kRequired, kCount);
}

template <Either<SpanSpread> Object>
void visit_fields(Object& s, auto&& visit) {
    visit("p5_us", s.p5_ps, kRequired, kMicroseconds);
    visit("median_us", s.median_ps, kRequired, kMicroseconds);
    visit("p95_us", s.p95_ps, kRequired, kMicroseconds);
    visit("median_wait_us", s.median_wait_ps, kRequired, kMicroseconds);
}

/// A span as the file has it.
struct SpanEntry {
    std::string key, stream;  // the stream follows from the key
    Span span;
    std::optional<SpanSpread> steps;
};
template <Either<SpanEntry> Object>
void visit_fields(Object& e, auto&& visit) {
    visit("key", e.key, kRequired);
    visit("stream", e.stream);
    visit("ready_us", e.span.ready_ps, kRequired, kMicroseconds);
    visit("begin_us", e.span.begin_ps, kRequired, kMicroseconds);
    visit("end_us", e.span.end_ps, kRequired, kMicroseconds);
    visit("steps", e.steps);
}

/// A program whose records are read or written.
struct Recorded {
    const Program& program;
    /// Of each class that has been needed: its instructions by key.
    mutable IndexedVector<ClassIndex, std::map<std::string, Span>> spans;
    explicit Recorded(const Program& recorded) : program(recorded), spans(recorded.classes.size()) {}
};

/// The file has sums of the kinds. The plan tells what memory is likely in use.
template <Either<DeviceMemory> Memory>
[[nodiscard]] auto fields_of(Memory& m, const Plan& plan) {
    return Group{[&m, &plan](auto&& visit) {
        std::int64_t allocated = m.allocated(), reserved = m.reserved();
        visit("allocated_bytes", allocated, kRequired, kMemoryBytes);
        visit("workspaces_bytes", m.workspaces, kRequired, DependentRange{{0, allocated}, kMemoryBytes});
        visit("reserved_bytes", reserved, kRequired, DependentRange{{allocated, kMemoryBytes.high}, kMemoryBytes});
        if constexpr (!std::is_const_v<Memory>) {
            m.tensors = allocated - m.workspaces;
            m.cached = reserved - allocated;
        }
        visit("context_bytes", m.context, kRequired, kMemoryBytes);
        visit("communicators_bytes", m.communicators, kRequired, kMemoryBytes);
        visit("runtime_bytes", m.runtime, kRequired, kMemoryBytes);
        const Derived<std::int64_t> in_use{m.in_use(), ", the sum of its parts"};
        visit("in_use_bytes", in_use, kRequired, kMemoryBytes);
        MemoryOutlook outlook = memory_outlook(to_gib(Bytes(m.in_use())), plan);
        std::int64_t low = std::llround(outlook.low_gib * kGibibyte), high = std::llround(outlook.high_gib * kGibibyte);
        const Pair interval{low, high};
        visit("in_use_interval90_bytes", interval, Presence{}, kMemoryBytes);
        visit("fit_probability", outlook.fit_probability, Presence{}, kFraction);
    }};
}
/// The spans of a rank, with their spreads.
template <Either<RankRecord> Rank>
struct SpansOf {
    Rank& rank;
};
void read_field(const JsonReader& reader, const std::string& key, const SpansOf<RankRecord>& spans,
                const Recorded& recorded);
[[nodiscard]] JsonValue field_json(const SpansOf<const RankRecord>& spans, const Recorded& recorded);

template <Either<RankRecord> Rank>
[[nodiscard]] auto fields_of(Rank& r, const Recorded& recorded) {
    return Group{[&r, &recorded](auto&& visit) {
        const Program& program = recorded.program;
        visit("rank", r.rank, kRequired, DependentRange{{0, program.world_size() - 1}, kCount});
        visit("multiplicity", r.multiplicity, kRequired, DependentRange{{1, program.world_size()}, kPositiveInteger});
        if constexpr (!std::is_const_v<Rank>) r.rank_class = program.class_of(r.rank);
        const Derived<std::string> name{program.classes.at(r.rank_class).name, ""};
        visit("class", name, kRequired);
        const Group streams{[&r](auto&& each) {
            for (const Stream stream : kStreams) {
                const Group use{[&r, stream](auto&& field) {
                    field("busy_s", r.streams[stream].busy_ps, kRequired, kSeconds);
                    field("exposed_s", r.streams[stream].exposed_ps, kRequired, kSeconds);
                    field("bytes_sent", r.bytes_sent[stream], kRequired, kCount);
                }};
                // Older records do not have the side stream.
                each(name_of(stream).data(), use, Presence{.required = stream != Stream::side});
            }
        }};
        visit("streams", streams, kRequired);
        visit("memory_peak_bytes", r.memory_peak_bytes, kRequired, kMemoryBytes);
        visit("memory_live_peak_bytes", r.memory_live_peak_bytes, kRequired, kMemoryBytes);
        visit("collectives", r.collectives);
        visit("memory", r.memory);
        visit("device_memory", r.device_memory, Presence{.written = r.device_memory != DeviceMemory{}}, *program.plan);
        const SpansOf<Rank> spans{r};
        visit("spans", spans, Presence{.written = !r.spans.empty()}, recorded);
    }};
}

template <Either<RunRecord> Record>
[[nodiscard]] auto fields_of(Record& r, const Recorded& recorded) {
    return Group{[&r, &recorded](auto&& visit) {
        visit("plan", r.plan_name, kRequired);
        visit("maker", r.maker, kRequired);
        visit("step_time_s", r.step_time_s, kRequired, kNotNegative);
        const Pair interval{r.step_time_low_s, r.step_time_high_s};
        visit("step_time_interval90_s", interval, Presence{.written = r.step_time_high_s > 0}, kNotNegative);
        visit("step_seconds", r.step_seconds, kRequired, kNotNegative);
        visit("step_time_p5_s", r.step_time_p5_s, Presence{}, kNotNegative);
        visit("step_time_p95_s", r.step_time_p95_s, Presence{}, kNotNegative);
        const Group memory{[&r](auto&& field) {
            field("needed_bytes", r.memory_needed_bytes, kRequired, kMemoryBytes);
            field("allowed_bytes", r.memory_allowed_bytes, kRequired, kAllowedBytes);
            const Derived<bool> fits{r.memory_needed_bytes <= r.memory_allowed_bytes,
                                     ", because of needed_bytes and allowed_bytes"};
            field("fits", fits, kRequired);
        }};
        visit("memory", memory, Presence{.written = r.memory_allowed_bytes > 0});
        visit("idle_fraction", r.idle_fraction, Presence{}, kIdleFraction);
        visit("losses", r.losses, kRequired, kLosses);
        visit("first_step", r.first_step, Presence{.written = r.first_step > 0}, kCount);
        const Group checkpoints{[&r](auto&& field) {
            field("bytes", r.checkpoint_bytes, kRequired, kPositiveInteger);
            field("seconds", r.checkpoint_seconds, kRequired, kNotNegative);
        }};
        visit("checkpoints", checkpoints, Presence{.written = !r.checkpoint_seconds.empty()});
        visit("ranks", r.ranks, kRequired, recorded);
        visit("notes", r.notes, kRequired);
        visit("environment", r.environment, kRequired);
    }};
}

}  // namespace orrery::program
