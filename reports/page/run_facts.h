// What a page shows of results that name instructions of a plan or come from measurements. The files hold more, which
// is left unread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/json_fields.h"

namespace orrery::reports {

/// A number that may be null.
struct OrNull {
    NumberRange range;
};
inline void read_field(const JsonReader& reader, const std::string& key, std::optional<double>& field,
                       const OrNull& limits) {
    field = reader.is_null(key) ? std::nullopt : std::optional(reader.number(key, limits.range));
}

inline constexpr IntegerRange kAnyBytes{0, std::int64_t{1} << 60};
/// Eleven days in picoseconds, so that sums of parts fit into 64 bits.
inline constexpr IntegerRange kAnyPicoseconds{0, std::int64_t{1} << 60};

struct StreamFacts {
    double busy_s = 0, exposed_s = 0;
    std::int64_t bytes_sent = 0;
};
template <Either<StreamFacts> Object>
void visit_fields(Object& s, auto&& visit) {
    visit("busy_s", s.busy_s, kRequired, kNotNegative);
    visit("exposed_s", s.exposed_s, kRequired, kNotNegative);
    visit("bytes_sent", s.bytes_sent, kRequired, kAnyBytes);
}

struct RankFacts {
    std::int64_t rank = 0, multiplicity = 1, memory_peak_bytes = 0;
    std::string rank_class;
    std::map<std::string, StreamFacts> streams;
    std::map<std::string, std::int64_t> memory;  // by part
};
template <Either<RankFacts> Object>
void visit_fields(Object& r, auto&& visit) {
    visit("rank", r.rank, kRequired, kCount);
    visit("multiplicity", r.multiplicity, kRequired, kPositiveInteger);
    visit("class", r.rank_class, kRequired);
    visit("streams", r.streams, kRequired);
    visit("memory_peak_bytes", r.memory_peak_bytes, kRequired, kAnyBytes);
    visit("memory", r.memory, Presence{}, kAnyBytes);
}

struct MemoryLimit {
    std::int64_t needed_bytes = 0, allowed_bytes = 0;
};
template <Either<MemoryLimit> Object>
void visit_fields(Object& m, auto&& visit) {
    visit("needed_bytes", m.needed_bytes, kRequired, kAnyBytes);
    visit("allowed_bytes", m.allowed_bytes, kRequired, kAnyBytes);
}

/// Of orrery.run_record/1.
struct RunFacts {
    std::string plan, maker;
    double step_time_s = 0;
    std::vector<double> step_time_interval90_s, step_seconds, losses;
    std::int64_t first_step = 0;
    double idle_fraction = 0;
    std::optional<MemoryLimit> memory;
    std::vector<RankFacts> ranks;
    std::vector<std::string> notes;
    std::map<std::string, std::string> environment;
    [[nodiscard]] bool is_measured() const { return maker == "executed"; }
};
template <Either<RunFacts> Object>
void visit_fields(Object& r, auto&& visit) {
    visit("plan", r.plan, kRequired);
    visit("maker", r.maker, kRequired, OneOf{{"simulated", "executed"}});
    visit("step_time_s", r.step_time_s, kRequired, kNotNegative);
    visit("step_time_interval90_s", r.step_time_interval90_s, Presence{}, kPositive);
    visit("step_seconds", r.step_seconds, kRequired, kNotNegative);
    visit("idle_fraction", r.idle_fraction, Presence{}, kAnyNumber);
    visit("losses", r.losses, kRequired, kAnyNumber);
    visit("first_step", r.first_step, Presence{}, kCount);
    visit("memory", r.memory);
    visit("ranks", r.ranks, kRequired);
    visit("notes", r.notes, kRequired);
    visit("environment", r.environment, kRequired);
}

using PartsByName = std::map<std::string, std::int64_t>;

struct ClassTime {
    std::string rank_class;
    std::int64_t ranks = 1;
    PartsByName parts_ps;
};
template <Either<ClassTime> Object>
void visit_fields(Object& c, auto&& visit) {
    visit("class", c.rank_class, kRequired);
    visit("ranks", c.ranks, kRequired, kPositiveInteger);
    visit("parts_ps", c.parts_ps, kRequired, kAnyPicoseconds);
}
struct MeanTime {
    PartsByName parts_ps;
};
template <Either<MeanTime> Object>
void visit_fields(Object& m, auto&& visit) {
    visit("parts_ps", m.parts_ps, kRequired, kAnyPicoseconds);
}
struct ClassBytes {
    std::string rank_class;
    std::int64_t live_peak_bytes = 0, arena_bytes = 0;
    PartsByName bytes;
};
template <Either<ClassBytes> Object>
void visit_fields(Object& c, auto&& visit) {
    visit("class", c.rank_class, kRequired);
    visit("live_peak_bytes", c.live_peak_bytes, kRequired, kAnyBytes);
    visit("arena_bytes", c.arena_bytes, kRequired, kAnyBytes);
    visit("bytes", c.bytes, kRequired, kAnyBytes);
}
struct RateUsed {
    std::string name, kind, source;
    double value = 0;
    std::optional<double> elasticity;
};
template <Either<RateUsed> Object>
void visit_fields(Object& r, auto&& visit) {
    visit("name", r.name, kRequired);
    visit("value", r.value, kRequired, kNotNegative);
    visit("kind", r.kind, kRequired);
    visit("source", r.source, kRequired);
    visit("elasticity", r.elasticity, kRequired, OrNull{kAnyNumber});
}

/// Of orrery.explanation/1.
struct StepFacts {
    std::string plan_name, strategy, maker;
    std::int64_t step_ps = 0, micro_batches = 1;
    MeanTime mean;
    std::vector<ClassTime> classes;
    std::vector<ClassBytes> memory;
    std::vector<RateUsed> rates;
    std::vector<std::string> notes;
};
template <Either<StepFacts> Object>
void visit_fields(Object& s, auto&& visit) {
    visit("plan_name", s.plan_name, kRequired);
    visit("strategy", s.strategy, kRequired);
    visit("maker", s.maker, kRequired, OneOf{{"simulated", "executed"}});
    visit("step_ps", s.step_ps, kRequired, kAnyPicoseconds);
    visit("micro_batches", s.micro_batches, kRequired, kPositiveInteger);
    visit("mean", s.mean, kRequired);
    visit("classes", s.classes, kRequired);
    visit("memory", s.memory, kRequired);
    visit("rates", s.rates, kRequired);
    visit("notes", s.notes, kRequired);
}

struct ComparedQuantity {
    std::string quantity, scope, stream;
    double predicted = 0, measured = 0;
    std::optional<double> error;
};
template <Either<ComparedQuantity> Object>
void visit_fields(Object& q, auto&& visit) {
    visit("quantity", q.quantity, kRequired);
    visit("scope", q.scope, kRequired);
    visit("stream", q.stream);
    visit("predicted", q.predicted, kRequired, kNotNegative);
    visit("measured", q.measured, kRequired, kNotNegative);
    visit("error", q.error, kRequired, OrNull{kAnyNumber});
}
struct ComparedPart {
    std::string part;
    double predicted_s = 0, measured_s = 0;
};
template <Either<ComparedPart> Object>
void visit_fields(Object& p, auto&& visit) {
    visit("part", p.part, kRequired);
    visit("predicted_s", p.predicted_s, kRequired, kNotNegative);
    visit("measured_s", p.measured_s, kRequired, kNotNegative);
}
struct ComparedPlan {
    std::string plan_name, strategy;
    bool judged = true;
    std::vector<ComparedQuantity> rows;
    std::vector<ComparedPart> parts;
    std::vector<std::string> notes;
};
template <Either<ComparedPlan> Object>
void visit_fields(Object& p, auto&& visit) {
    visit("plan_name", p.plan_name, kRequired);
    visit("strategy", p.strategy, kRequired);
    visit("judged", p.judged, kRequired);
    visit("rows", p.rows, kRequired);
    visit("parts", p.parts, kRequired);
    visit("notes", p.notes, kRequired);
}

/// Of orrery.comparison/1.
struct ValidationFacts {
    std::vector<ComparedPlan> comparisons;
};
template <Either<ValidationFacts> Object>
void visit_fields(Object& v, auto&& visit) {
    visit("comparisons", v.comparisons, kRequired);
}

struct PublishedRun {
    std::string id;
    std::optional<double> predicted_step_time_s, measured_step_time_s, predicted_peak_memory_gib,
        measured_peak_memory_gib;
};
template <Either<PublishedRun> Object>
void visit_fields(Object& r, auto&& visit) {
    visit("id", r.id, kRequired);
    visit("predicted_step_time_s", r.predicted_step_time_s, kRequired, OrNull{kPositive});
    visit("measured_step_time_s", r.measured_step_time_s, kRequired, OrNull{kPositive});
    visit("predicted_peak_memory_gib", r.predicted_peak_memory_gib, kRequired, OrNull{kPositive});
    visit("measured_peak_memory_gib", r.measured_peak_memory_gib, kRequired, OrNull{kPositive});
}
struct ErrorFacts {
    std::int64_t rows = 0;
    double median = 0, mean = 0, p90 = 0, bias = 0;
};
template <Either<ErrorFacts> Object>
void visit_fields(Object& e, auto&& visit) {
    visit("rows", e.rows, kRequired, kCount);
    visit("median_absolute_error", e.median, kRequired, kNotNegative);
    visit("mean_absolute_error", e.mean, kRequired, kNotNegative);
    visit("p90_absolute_error", e.p90, kRequired, kNotNegative);
    visit("bias", e.bias, kRequired, kAnyNumber);
}
inline void read_field(const JsonReader& reader, const std::string& key, std::optional<ErrorFacts>& field) {
    field.reset();
    if (!reader.is_null(key)) read_field(reader, key, field.emplace());
}
struct SourceErrors {
    std::string source;
    std::optional<ErrorFacts> step_time, peak_memory;
};
template <Either<SourceErrors> Object>
void visit_fields(Object& s, auto&& visit) {
    visit("source", s.source);  // of all sources together: none
    visit("step_time", s.step_time, kRequired);
    visit("peak_memory", s.peak_memory, kRequired);
}
struct PublishedSummary {
    SourceErrors all;
    std::vector<SourceErrors> sources;
};
template <Either<PublishedSummary> Object>
void visit_fields(Object& s, auto&& visit) {
    visit("step_time", s.all.step_time, kRequired);
    visit("peak_memory", s.all.peak_memory, kRequired);
    visit("sources", s.sources, kRequired);
}

/// Of orrery.row_predictions/1.
struct PublishedFacts {
    std::vector<PublishedRun> rows;
    PublishedSummary summary;
};
template <Either<PublishedFacts> Object>
void visit_fields(Object& p, auto&& visit) {
    visit("rows", p.rows, kRequired);
    visit("summary", p.summary, kRequired);
}

}  // namespace orrery::reports
