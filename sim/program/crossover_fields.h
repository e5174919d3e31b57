// The fields of a crossover's file (core/json_fields.h).
#pragma once

#include "sim/program/crossover.h"
#include "sim/program/scaling_fields.h"

namespace orrery::program {

template <Either<CrossoverRange> Object>
void visit_fields(Object& r, auto&& visit) {
    visit("low", r.low, kRequired, kPositive);
    visit("high", r.high, kRequired, kPositive);
    visit("plan", r.plan, kRequired);
    visit("at_low", r.at_low, kRequired);
    visit("at_high", r.at_high, kRequired);
}

template <Either<Crossover> Object>
void visit_fields(Object& c, auto&& visit) {
    visit("model", c.model, kRequired);
    visit("cluster", c.cluster, kRequired);
    visit("path", c.path, kRequired);
    visit("plans", c.plans, kRequired);
    visit("replans", c.replans, kRequired);
    visit("ranges", c.ranges, kRequired);
    visit("accuracy", c.accuracy, kRequired, kPositive);
}

}  // namespace orrery::program
