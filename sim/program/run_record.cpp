#include "sim/program/run_record.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/units.h"
#include "sim/program/memory_spread.h"

namespace orrery::program {
namespace {

using nlohmann::ordered_json;

std::string layer_label(const Program& program, std::int32_t layer) {
    if (layer < 0) return "embedding";
    if (layer >= program.plan->model.layers) return "head";
    std::string label = "layers.";
    return label.append(std::to_string(layer));
}

template <typename I, typename T>
const T& at(const IndexedVector<I, T>& list, I index, const char* what) {
    ORRERY_CHECK(index >= 0 && index < list.next_index(), "a span refers to " + std::string(what) + " " +
                                                              std::to_string(index.value()) + " of " +
                                                              std::to_string(list.size()));
    return list[index];
}

double microseconds(std::int64_t picoseconds) {
    return static_cast<double>(picoseconds) / 1e6;
}

double seconds(std::int64_t picoseconds) {
    return static_cast<double>(picoseconds) / kPicosecondsPerSecond;
}

/// JSON cannot express NaN and infinity; a record that contains one is a bug of its maker.
double finite(double value, const char* what) {
    ORRERY_CHECK(std::isfinite(value), std::string("a run record has a ") + what + " that is not finite");
    return value;
}

ordered_json finite_list(const std::vector<double>& values, const char* what) {
    ordered_json list = ordered_json::array();
    for (const double value : values) list.push_back(finite(value, what));
    return list;
}

ordered_json span_json(const Program& program, ClassIndex rank_class, const Span& span) {
    const RankClass& ranks = program.classes[rank_class];
    const Action& action = at(ranks.actions, span.action, "action");
    const Segment& segment = at(at(ranks.segment_lists, action.segments, "segment list"), span.segment, "segment");
    const Instruction& instruction =
        at(at(program.bodies, segment.body, "body").instructions, span.instruction, "instruction");
    ordered_json json;
    json["key"] = key_of(program, rank_class, span);
    json["stream"] = name_of(instruction.stream);
    json["ready_us"] = microseconds(span.ready_ps);
    json["begin_us"] = microseconds(span.begin_ps);
    json["end_us"] = microseconds(span.end_ps);
    return json;
}

ordered_json spread_json(const SpanSpread& spread) {
    return {{"p5_us", microseconds(spread.p5_ps)},
            {"median_us", microseconds(spread.median_ps)},
            {"p95_us", microseconds(spread.p95_ps)},
            {"median_wait_us", microseconds(spread.median_wait_ps)}};
}

ordered_json device_memory_json(const DeviceMemory& memory, const Plan& plan) {
    const MemoryOutlook outlook = memory_outlook(to_gib(Bytes(memory.in_use())), plan);
    return {{"allocated_bytes", memory.allocated()},
            {"workspaces_bytes", memory.workspaces},
            {"reserved_bytes", memory.reserved()},
            {"context_bytes", memory.context},
            {"communicators_bytes", memory.communicators},
            {"runtime_bytes", memory.runtime},
            {"in_use_bytes", memory.in_use()},
            {"in_use_interval90_bytes",
             {std::llround(outlook.low_gib * kGibibyte), std::llround(outlook.high_gib * kGibibyte)}},
            {"fit_probability", outlook.fit_probability}};
}

ordered_json rank_json(const Program& program, const RankRecord& record) {
    const RankClass& ranks = at(program.classes, record.rank_class, "class");
    ordered_json json;
    json["rank"] = record.rank;
    json["multiplicity"] = record.multiplicity;
    json["class"] = ranks.name;
    ordered_json streams = ordered_json::object();
    for (const Stream s : kStreams) {
        ordered_json stream;
        stream["busy_s"] = seconds(record.streams[s].busy_ps);
        stream["exposed_s"] = seconds(record.streams[s].exposed_ps);
        stream["bytes_sent"] = record.bytes_sent[s];
        streams[std::string(name_of(s))] = stream;
    }
    json["streams"] = streams;
    json["memory_peak_bytes"] = record.memory_peak_bytes;
    json["memory_live_peak_bytes"] = record.memory_live_peak_bytes;
    json["collectives"] = ordered_json::array();
    for (const KindBytes& one : record.collectives) {
        json["collectives"].push_back(
            {{"stream", name_of(one.stream)}, {"kind", name_of(one.kind)}, {"bytes_sent", one.bytes_sent}});
    }
    json["memory"] = ordered_json::object();
    for (const MemoryPart& one : record.memory) json["memory"][one.part] = one.bytes;
    if (record.device_memory != DeviceMemory{}) {
        json["device_memory"] = device_memory_json(record.device_memory, *program.plan);
    }
    if (record.spans.empty()) return json;
    ORRERY_CHECK(record.spreads.empty() || record.spreads.size() == record.spans.size(),
                 "a run record must have a spread for each span, or none");
    json["spans"] = ordered_json::array();
    for (std::size_t i = 0; i < record.spans.size(); ++i) {
        json["spans"].push_back(span_json(program, record.rank_class, record.spans[i]));
        if (!record.spreads.empty()) json["spans"].back()["steps"] = spread_json(record.spreads[i]);
    }
    return json;
}

bool updates(const Body& body) {
    return std::any_of(body.operators.begin(), body.operators.end(),
                       [](const models::Operator& op) { return op.is_update(); });
}

}  // namespace

std::string key_of(const Program& program, ClassIndex rank_class, const Span& span) {
    const RankClass& ranks = at(program.classes, rank_class, "class");
    const Action& action = at(ranks.actions, span.action, "action");
    const Segment& segment = at(at(ranks.segment_lists, action.segments, "segment list"), span.segment, "segment");
    const Body& body = at(program.bodies, segment.body, "body");
    const Instruction& instruction = at(body.instructions, span.instruction, "instruction");
    std::string where = "c";
    where.append(std::to_string(action.chunk.value())).append("/mb").append(std::to_string(action.micro_batch));
    std::string key;
    switch (body.phase) {
        case Phase::forward:
        case Phase::backward:
        case Phase::backward_input:
        case Phase::backward_weight:
            key = layer_label(program, segment.layer);
            key.append("/").append(name_of(body.phase)).append("/").append(where);
            return key.append("/").append(instruction.name);
        case Phase::gather:
        case Phase::reduce:
        case Phase::offload:
        case Phase::prepare:
        case Phase::exchange:  // the action's kind tells those of forward and backward apart
            key = layer_label(program, segment.layer);
            key.append("/").append(name_of(body.phase)).append("/").append(name_of(action.kind)).append("/");
            return key.append(where).append("/").append(instruction.name);
        case Phase::transfer:
            key.append("transfer/").append(where).append("/").append(name_of(action.kind));
            break;
        case Phase::gradient_sync:
            return key.append("step/gradient_sync/").append(instruction.name);
        case Phase::optimizer:
            key.append(updates(body) ? "step/optimizer" : "step/gradient_norm");
            break;
    }
    // The only instruction of a body needs no name of its own.
    if (body.instructions.size() > 1) key.append("/").append(instruction.name);
    return key;
}

double percentile(std::vector<double> values, double share) {
    ORRERY_CHECK(!values.empty() && share >= 0 && share <= 1,
                 "a percentile needs at least one value, and a share from 0 to 1");
    std::sort(values.begin(), values.end());
    const double place = share * static_cast<double>(values.size() - 1);
    const auto below = static_cast<std::size_t>(place);
    const std::size_t above = std::min(below + 1, values.size() - 1);
    return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
}

double exposed_seconds(const RunRecord& record) {
    double total = 0, ranks = 0;
    for (const RankRecord& rank : record.ranks) {
        const auto weight = static_cast<double>(rank.multiplicity);
        for (const Stream stream :
             {Stream::tp, Stream::cp, Stream::ep, Stream::dp, Stream::dp_gather, Stream::dp_replicate}) {
            total += weight * to_seconds(Picoseconds(rank.streams[stream].exposed_ps));
        }
        ranks += weight;
    }
    return ranks > 0 ? total / ranks : 0;
}

double bubble_fraction(const Plan& plan, double idle_fraction, double exposed_fraction) {
    return plan.parallelism.pp > 1 ? std::max(0.0, idle_fraction - exposed_fraction) : 0;
}

void summarise_steps(RunRecord& record) {
    record.step_time_s = percentile(record.step_seconds, 0.5);
    record.step_time_p5_s = percentile(record.step_seconds, 0.05);
    record.step_time_p95_s = percentile(record.step_seconds, 0.95);
}

std::vector<MemoryPart> memory_parts(const MemoryFootprint& memory) {
    std::vector<MemoryPart> parts{{"parameters", memory.parameters},         {"gathered", memory.gathered},
                                  {"gradients", memory.gradients},           {"reductions", memory.reductions},
                                  {"optimizer", memory.optimizer_states},    {"offload window", memory.offload_window},
                                  {"activations", memory.activations_arena}, {"transients", memory.transients_arena},
                                  {"boundaries", memory.boundaries_arena},   {"host memory", memory.host},
                                  {"framework", memory.framework},           {"conversions", memory.conversions}};
    std::erase_if(parts, [](const MemoryPart& part) { return part.bytes == 0; });
    return parts;
}

std::string to_json_text(const RunRecord& record, const Program& program) {
    ordered_json json;
    json["schema"] = "orrery.run_record/1";
    json["plan"] = record.plan_name;
    json["maker"] = record.maker == Maker::simulated ? "simulated" : "executed";
    json["step_time_s"] = finite(record.step_time_s, "step time");
    if (record.step_time_high_s > 0) {
        json["step_time_interval90_s"] = {finite(record.step_time_low_s, "step time"),
                                          finite(record.step_time_high_s, "step time")};
    }
    json["step_seconds"] = finite_list(record.step_seconds, "step time");
    json["step_time_p5_s"] = finite(record.step_time_p5_s, "step time");
    json["step_time_p95_s"] = finite(record.step_time_p95_s, "step time");
    if (record.memory_allowed_bytes > 0) {
        json["memory"] = {{"needed_bytes", record.memory_needed_bytes},
                          {"allowed_bytes", record.memory_allowed_bytes},
                          {"fits", record.memory_needed_bytes <= record.memory_allowed_bytes}};
    }
    json["idle_fraction"] = finite(record.idle_fraction, "idle fraction");
    json["losses"] = finite_list(record.losses, "loss");
    if (record.first_step > 0) json["first_step"] = record.first_step;
    if (!record.checkpoint_seconds.empty()) {
        json["checkpoints"] = {{"bytes", record.checkpoint_bytes},
                               {"seconds", finite_list(record.checkpoint_seconds, "checkpoint time")}};
    }
    json["ranks"] = ordered_json::array();
    for (const RankRecord& rank : record.ranks) json["ranks"].push_back(rank_json(program, rank));
    json["notes"] = record.notes;
    json["environment"] = ordered_json::object();
    for (const auto& [key, value] : record.environment) json["environment"][key] = value;
    return json.dump(2) + "\n";
}

}  // namespace orrery::program
