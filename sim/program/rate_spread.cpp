#include "sim/program/rate_spread.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>

#include "core/embedded.h"
#include "sim/program/rate_fields.h"
#include "sim/program/work_rates.h"

namespace orrery {
std::span<const EmbeddedFile> spread_files();
}

namespace orrery::program {
namespace {

constexpr const char* kSpreadSchema = "orrery.rate_spread/1";

}  // namespace

double RateSpread::correlation(const std::string& a, const std::string& b) const {
    if (a == b) return 1;
    const auto place_a = std::find(names.begin(), names.end(), a), place_b = std::find(names.begin(), names.end(), b);
    if (place_a == names.end() || place_b == names.end()) return 0;
    const auto i = static_cast<std::size_t>(std::max(place_a, place_b) - names.begin());
    const auto j = static_cast<std::size_t>(std::min(place_a, place_b) - names.begin());
    return correlations[i * (i - 1) / 2 + j];
}

double RateSpread::memory_sd_of(const std::string& implementation) const {
    const auto known = memory_sd_of_stack.find(implementation);
    return known != memory_sd_of_stack.end() ? known->second : memory_sd;
}

double sd_of_key(double prior_sd, const std::vector<double>& fitted) {
    double sum = kPriorWeight * prior_sd * prior_sd;
    for (const double logarithm : fitted) sum += logarithm * logarithm;
    return std::sqrt(sum / (kPriorWeight + static_cast<double>(fitted.size())));
}

RateSpread spread_from_json_text(const std::string& text, const std::string& file) {
    const JsonReader reader = JsonReader::parse(text, file);
    reader.expect_schema(kSpreadSchema);
    RateSpread spread;
    read_fields(reader, spread);
    const std::size_t names = spread.names.size();
    if (spread.correlations.size() != (names == 0 ? 0 : names * (names - 1) / 2)) {
        reader.fail("correlations", "one number for each pair of names");
    }
    reader.finish();
    return spread;
}

std::string to_json_text(const RateSpread& spread) {
    std::string text = "{\n  \"schema\": \"" + std::string(kSpreadSchema) +
                       "\",\n  \"residual_sd\": " + orrery::field_json(spread.residual_sd).text() +
                       ",\n  \"memory_sd\": " + orrery::field_json(spread.memory_sd).text() +
                       ",\n  \"memory_sd_of_stack\": " + orrery::field_json(spread.memory_sd_of_stack).text() +
                       ",\n  \"sd_of_key\": " + orrery::field_json(spread.sd_of_key).text() + ",\n  \"names\": [";
    for (std::size_t i = 0; i < spread.names.size(); ++i) {
        text += (i == 0 ? "\n    " : ",\n    ") + orrery::field_json(spread.names[i]).text();
    }
    text += "\n  ],\n  \"correlations\": [";
    for (std::size_t i = 1, place = 0; i < spread.names.size(); ++i) {
        text += i == 1 ? "\n    " : ",\n    ";
        for (std::size_t j = 0; j < i; ++j, ++place) {
            text += (j == 0 ? "" : ",") + orrery::field_json(std::round(spread.correlations[place] * 1e3) / 1e3).text();
        }
    }
    return text + "\n  ]\n}\n";
}

const RateSpread& built_in_spread() {
    static const RateSpread spread = [] {
        const EmbeddedFile& file = spread_files().front();
        return spread_from_json_text(std::string(file.content), "rates " + std::string(file.name));
    }();
    return spread;
}

std::map<std::string, double> rate_slopes(const Plan& plan, const Sensitivity& sensitivity, double step_time_s) {
    std::map<std::string, double> slopes;
    for (const auto& [cell, seconds] : sensitivity) {
        for (const RateUse& use : rates_of(cell, plan.parallelism, plan.cluster.devices_per_node)) {
            const std::string& name = plan.rates.of(use.key).name;
            if (!name.empty()) slopes[name] += use.power * seconds / step_time_s;
        }
    }
    return slopes;
}

std::map<std::string, double> rate_sds(const Rates& rates, const RateSpread& spread) {
    std::map<std::string, double> spreads;
    for (const RateRow& row : rate_rows()) {
        const Rates::Resolved& resolved = rates.of(row.key);
        if (resolved.name.empty()) continue;
        const Rate& rate = resolved.rate;
        const auto of_key = spread.sd_of_key.find(std::string(row.name));
        const bool uses_rate = rate.kind == topologies::Provenance::fitted || of_key == spread.sd_of_key.end();
        spreads[resolved.name] = uses_rate ? rate.sd * std::sqrt(1 - rate.information) : of_key->second;
    }
    return spreads;
}

double rates_variance(const std::map<std::string, double>& slopes, const std::map<std::string, double>& sds,
                      const RateSpread& spread) {
    double variance = 0;
    for (const auto& [name, slope] : slopes) {
        for (const auto& [other, other_slope] : slopes) {
            const double correlation = spread.correlation(name, other);
            if (correlation != 0) variance += slope * sds.at(name) * other_slope * sds.at(other) * correlation;
        }
    }
    return std::max(variance, 0.0);
}

double step_time_sd(const Plan& plan, const Sensitivity& sensitivity, double step_time_s, const RateSpread& spread) {
    const double variance =
        rates_variance(rate_slopes(plan, sensitivity, step_time_s), rate_sds(plan.rates, spread), spread);
    constexpr double kScale = kNormalQuantile90 / kStudentQuantile90;
    return std::hypot(kScale * std::sqrt(variance), spread.residual_sd);
}

StepInterval interval90(double step_time_s, double sd) {
    const double factor = std::exp(kStudentQuantile90 * sd);
    return {step_time_s / factor, step_time_s * factor};
}

double student4_below(double t) {
    const double part = 1 + t * t / 4;
    return 0.5 + 0.375 * t / std::sqrt(part) * (1 - t * t / part / 12);
}

MemoryOutlook memory_outlook(double in_use_gib, const Plan& plan, const RateSpread& spread) {
    const topologies::DeviceProfile& device = plan.cluster.device;
    const double capacity_gib = device.memory_capacity_gib.value;
    const double sd = device.host_runs_compute ? 0 : spread.memory_sd_of(plan.implementation.name);
    if (sd == 0 || in_use_gib <= 0) return {in_use_gib, in_use_gib, in_use_gib <= capacity_gib ? 1.0 : 0.0};
    const double factor = std::exp(kStudentQuantile90 * sd);
    return {in_use_gib / factor, in_use_gib * factor, student4_below(std::log(capacity_gib / in_use_gib) / sd)};
}

}  // namespace orrery::program
