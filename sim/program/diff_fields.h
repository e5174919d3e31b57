// The fields of a diff's file (core/json_fields.h).
#pragma once

#include <limits>

#include "core/json_fields.h"
#include "sim/program/plan_diff.h"

namespace orrery::program {

inline constexpr IntegerRange kAnyCount{0, std::numeric_limits<std::int64_t>::max()};

template <Either<DiffRow> Object>
void visit_fields(Object& r, auto&& visit) {
    visit("what", r.what, kRequired);
    visit("before", r.before, kRequired, kAnyCount);
    visit("after", r.after, kRequired, kAnyCount);
}

template <Either<ChangedInput> Object>
void visit_fields(Object& i, auto&& visit) {
    visit("path", i.path, kRequired);
    visit("before", i.before, kRequired);
    visit("after", i.after, kRequired);
}

template <Either<PlanDiff> Object>
void visit_fields(Object& d, auto&& visit) {
    visit("before", d.before, kRequired);
    visit("after", d.after, kRequired);
    visit("measured", d.measured, kRequired);
    visit("step_before_s", d.step_before_s, kRequired, kPositive);
    visit("step_after_s", d.step_after_s, kRequired, kPositive);
    visit("tokens_per_s_before", d.tokens_per_s_before, kRequired, kPositive);
    visit("tokens_per_s_after", d.tokens_per_s_after, kRequired, kPositive);
    visit("time_ps", d.time_ps, kRequired);
    visit("memory_bytes", d.memory_bytes, kRequired);
    visit("inputs", d.inputs, kRequired);
}

}  // namespace orrery::program
