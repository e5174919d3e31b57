#include "sim/program/tornado.h"

#include <algorithm>
#include <cmath>

#include "sim/program/tornado_fields.h"

namespace orrery::program {
namespace {

constexpr const char* kTornadoSchema = "orrery.tornado/1";

}  // namespace

double TornadoBar::effect() const {
    double effect = 0;
    for (const SweepPoint* point : {&less, &more}) {
        if (point->point.is_found()) effect = std::max(effect, std::abs(point->speed - 1));
    }
    return effect;
}

void rank(Tornado& tornado) {
    std::stable_sort(tornado.bars.begin(), tornado.bars.end(),
                     [](const TornadoBar& a, const TornadoBar& b) { return a.effect() > b.effect(); });
}

std::string to_json_text(const Tornado& tornado) {
    JsonValue json = JsonValue::object();
    json.set("schema", JsonValue(kTornadoSchema));
    write_fields(json, tornado);
    return json.text(2) + "\n";
}

Tornado tornado_from_json_text(const std::string& text, const std::string& file) {
    const JsonReader reader = JsonReader::parse(text, file);
    reader.expect_schema(kTornadoSchema);
    Tornado tornado;
    read_fields(reader, tornado);
    reader.finish();
    return tornado;
}

}  // namespace orrery::program
