// The fields of a tornado's file (core/json_fields.h).
#pragma once

#include "sim/program/sweep_fields.h"
#include "sim/program/tornado.h"

namespace orrery::program {

/// A number, or no value and no key.
struct IfKnown {};
inline void read_field(const JsonReader& reader, const std::string& key, std::optional<double>& field, const IfKnown&) {
    field = reader.number(key, kShares);
}
[[nodiscard]] inline JsonValue field_json(const std::optional<double>& field, const IfKnown&) {
    return field ? JsonValue(*field) : JsonValue();
}

template <Either<TornadoBar> Object>
void visit_fields(Object& b, auto&& visit) {
    visit("path", b.path, kRequired);
    visit("value", b.value, kRequired);
    visit("elasticity", b.elasticity, Presence{}, IfKnown{});
    visit("less", b.less, kRequired);
    visit("more", b.more, kRequired);
}

template <Either<Tornado> Object>
void visit_fields(Object& t, auto&& visit) {
    visit("model", t.model, kRequired);
    visit("cluster", t.cluster, kRequired);
    visit("plan", t.plan, kRequired);
    visit("replans", t.replans, kRequired);
    visit("change", t.change, kRequired, NumberRange{0, 1, true});
    visit("base", t.base, kRequired);
    visit("bars", t.bars, kRequired);
}

}  // namespace orrery::program
