// The fields of a rate in a file (core/json_fields.h).
#pragma once

#include "core/json_fields.h"
#include "sim/program/rates.h"
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

}  // namespace orrery::program
