// The fields of rates, of their spread and of their accuracy in files (core/json_fields.h).
#pragma once

#include "core/json_fields.h"
#include "sim/program/rate_spread.h"
#include "sim/program/rates.h"
#include "sim/program/validated.h"
#include "topologies/profile_names.h"

namespace orrery::program {

inline constexpr NumberRange kDeviation{0, 5};

template <Either<Rate> Object>
void visit_fields(Object& r, auto&& visit) {
    visit("value", r.value, kRequired, kNotNegative);
    visit("kind", r.kind, kRequired);
    visit("source", r.source, kRequired);
    visit("prior", r.prior, kRequired, kNotNegative);
    visit("sd", r.sd, kRequired, kDeviation);
    visit("information", r.information, kIfChanged, kFraction);
}

template <Either<Rates::Resolved> Object>
void visit_fields(Object& r, auto&& visit) {
    visit("name", r.name, kRequired);
    visit_fields(r.rate, visit);
}

/// The rates in a plan: a rate and its full name for each key. Keys that are missing stay neutral.
template <Either<Rates> Object>
void visit_fields(Object& rates, auto&& visit) {
    for (const RateRow& row : rate_rows()) {
        Rates::Resolved resolved = rates.of(row.key);
        visit(row.name.data(), resolved, Presence{.written = !resolved.name.empty()});
        if constexpr (!std::is_const_v<Object>) rates.set(row.key, std::move(resolved));
    }
}

template <Either<RateSpread> Object>
void visit_fields(Object& s, auto&& visit) {
    visit("residual_sd", s.residual_sd, kRequired, kDeviation);
    visit("memory_sd", s.memory_sd, kRequired, kDeviation);
    visit("memory_sd_of_stack", s.memory_sd_of_stack, kRequired, kDeviation);
    visit("sd_of_key", s.sd_of_key, kRequired, kDeviation);
    visit("names", s.names, kRequired);
    visit("correlations", s.correlations, kRequired, NumberRange{-1, 1});
}

template <Either<ValidatedStack> Object>
void visit_fields(Object& s, auto&& visit) {
    visit("runs", s.runs, kRequired, kPositiveInteger);
    visit("median", s.median, kRequired, kNotNegative);
    visit("mean", s.mean, kRequired, kNotNegative);
    visit("bias", s.bias, kRequired, NumberRange{-1, kLargestNumber});
}

}  // namespace orrery::program
