// The fields of an input sweep's file (core/json_fields.h).
#pragma once

#include "sim/program/input_sweep.h"
#include "sim/program/scaling_fields.h"

namespace orrery::program {

template <Either<SweepPoint> Object>
void visit_fields(Object& p, auto&& visit) {
    visit("values", p.values, kRequired);
    visit("point", p.point, kRequired);
    visit("fits", p.fits, kRequired);
    visit("speed", p.speed, kRequired, kNotNegative);
}

template <Either<InputSweep> Object>
void visit_fields(Object& s, auto&& visit) {
    visit("model", s.model, kRequired);
    visit("cluster", s.cluster, kRequired);
    visit("plan", s.plan, kRequired);
    visit("replans", s.replans, kRequired);
    visit("paths", s.paths, kRequired);
    visit("base_values", s.base_values, kRequired);
    visit("base", s.base, kRequired);
    visit("points", s.points, kRequired);
}

}  // namespace orrery::program
