#include "sim/program/tornado.h"

#include <algorithm>
#include <cmath>

#include "sim/program/tornado_fields.h"

namespace orrery::program {
namespace {

constexpr const char* kTornadoSchema = "orrery.tornado/1";
constexpr double kLeastEffect = 5e-5;

}  // namespace

double TornadoBar::effect() const {
    double effect = 0;
    for (const SweepPoint* point : {&less, &more}) {
        if (point->point.is_found()) effect = std::max(effect, std::abs(point->speed - 1));
    }
    return effect;
}

bool TornadoBar::matters() const {
    return effect() >= kLeastEffect || !less.point.is_found() || !more.point.is_found();
}

void rank(Tornado& tornado) {
    std::stable_sort(tornado.bars.begin(), tornado.bars.end(),
                     [](const TornadoBar& a, const TornadoBar& b) { return a.effect() > b.effect(); });
}

std::string to_json_text(const Tornado& tornado) {
    return document_text(kTornadoSchema, tornado);
}

Tornado tornado_from_json_text(const std::string& text, const std::string& file) {
    return object_of_document<Tornado>(kTornadoSchema, text, file);
}

}  // namespace orrery::program
