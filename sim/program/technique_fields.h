// The fields of the file of techniques' curves (core/json_fields.h).
#pragma once

#include "sim/program/scaling_fields.h"
#include "sim/program/technique_curves.h"

namespace orrery::program {

template <Either<TechniquePoint> Object>
void visit_fields(Object& p, auto&& visit) {
    visit("point", p.point, kRequired);
    visit("obstacle", p.obstacle, required_if(!p.point.is_found()));
    visit("losses", p.losses, required_if(p.point.is_found()));
}

template <Either<TechniqueCurve> Object>
void visit_fields(Object& c, auto&& visit) {
    visit("technique", c.technique, kRequired);
    visit("points", c.points, kRequired);
    visit("knee_devices", c.knee_devices, kRequired, kNumber);
}

template <Either<TechniqueCurves> Object>
void visit_fields(Object& c, auto&& visit) {
    visit("model", c.model, kRequired);
    visit("cluster", c.cluster, kRequired);
    visit("devices_per_node", c.devices_per_node, kRequired, kDegreeLimits);
    visit("implementations", c.implementations, kRequired);
    visit("mode", c.mode, kRequired);
    visit("sequence_length", c.sequence_length, kRequired, kSequenceLimits);
    visit("batch", c.batch, kRequired, kBatchLimits);
    visit("figures", c.figures, kRequired);
    visit("base_devices", c.base_devices, kRequired, kNumber);
    visit("base_technique", c.base_technique, required_if(c.base_devices > 0));
    visit("techniques", c.techniques, kRequired);
}

}  // namespace orrery::program
