#include "reports/time_part.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <tuple>

#include "core/enum_names.h"
#include "core/error.h"
#include "sim/program/sensitivity.h"

namespace orrery::reports {
namespace {

using models::Operator;
using models::OpKind;
using models::WorkClass;
using program::Body;
using program::Phase;

bool computes(const program::Instruction& instruction) {
    return instruction.stream == program::Stream::compute || instruction.stream == program::Stream::side;
}

/// The part of an operator, without regard to recomputation.
TimePart part_of(const Operator& op, const Body& body) {
    if (body.phase == Phase::optimizer || body.phase == Phase::gradient_sync) return TimePart::optimizer;
    const bool at_an_end =
        body.layer_kind == models::LayerKind::embedding || body.layer_kind == models::LayerKind::head;
    if (is_pass(body.phase) && at_an_end) return TimePart::embedding_and_head;
    switch (program::cell_of(op, body.phase).work) {
        case WorkClass::product:
            return TimePart::products;
        case WorkClass::expert_product:
            return TimePart::expert_products;
        case WorkClass::attention:
        case WorkClass::attention_product:
        case WorkClass::attention_memory:
            return TimePart::attention;
        case WorkClass::cast:
            return TimePart::casts;
        case WorkClass::optimizer:
            return TimePart::optimizer;
        case WorkClass::routing:
            return TimePart::expert_routing;
        default:
            return TimePart::elementwise;
    }
}

/// Layer kind, operator kind and name of the slot written. A recomputed layer output goes to a slot with the suffix
/// ".again".
using Written = std::tuple<models::LayerKind, OpKind, std::string>;
Written written_by(const Operator& op, const Body& body) {
    static const std::string again = ".again";
    std::string name;
    if (op.out[0] != models::kNoSlot) name = body.slots.at(op.out[0]).decl.name;
    if (name.ends_with(again)) name.resize(name.size() - again.size());
    return {body.layer_kind, op.kind, name};
}

TimePart part_of(const program::Communication& communication, program::Stream stream) {
    using program::GroupAxis;
    if (program::is_pair(communication.axis)) return TimePart::pp;
    if (stream == program::Stream::dp_gather) return TimePart::dp_gather;
    switch (communication.axis) {
        case GroupAxis::tp:
            return TimePart::tp;
        case GroupAxis::kv:
            return TimePart::kv;
        case GroupAxis::cp:
            return TimePart::cp;
        case GroupAxis::ep:
            return TimePart::ep;
        case GroupAxis::etp:
            return TimePart::etp;
        case GroupAxis::dp:
        case GroupAxis::dp_shard:
            return TimePart::dp;
        case GroupAxis::dp_replicate:
            return TimePart::dp_replicate;
        case GroupAxis::edp:
            return TimePart::edp;
        case GroupAxis::embedding:
            return TimePart::embedding;
        case GroupAxis::pipeline:
            return TimePart::pipeline;
        case GroupAxis::model:
            return TimePart::model;
        case GroupAxis::world:
            return TimePart::world;
        case GroupAxis::down_forward:
        case GroupAxis::down_backward:
        case GroupAxis::up_forward:
        case GroupAxis::up_backward:
            break;
    }
    return TimePart::pp;
}

}  // namespace

std::string_view name_of(TimePart part) {
    static constexpr auto kNames = name_table<TimePart::idle>({"attention",
                                                               "products",
                                                               "expert_products",
                                                               "expert_routing",
                                                               "elementwise",
                                                               "casts",
                                                               "embedding_and_head",
                                                               "recomputation",
                                                               "optimizer",
                                                               "tp",
                                                               "kv",
                                                               "cp",
                                                               "ep",
                                                               "etp",
                                                               "dp",
                                                               "edp",
                                                               "dp_gather",
                                                               "dp_replicate",
                                                               "embedding",
                                                               "pipeline",
                                                               "model",
                                                               "world",
                                                               "pp",
                                                               "bubble",
                                                               "host",
                                                               "copies",
                                                               "idle"});
    return kNames[part];
}

PartTable::PartTable(const program::Program& program, const OperatorWeight& weight) : program_(program) {
    std::set<Written> forward;
    for (const Body& body : program.bodies) {
        if (body.phase != Phase::forward) continue;
        for (const Operator& op : body.operators) forward.insert(written_by(op, body));
    }
    for (const Body& body : program.bodies) {
        const bool goes_back = is_pass(body.phase) && body.phase != Phase::forward;
        auto& parts = operators_.emplace_back();
        for (const Operator& op : body.operators) {
            const bool again = goes_back && op.out[0] != models::kNoSlot && forward.contains(written_by(op, body));
            parts.push_back(again ? TimePart::recomputation : part_of(op, body));
        }
        auto& weights = weights_.emplace_back(body.operators.size());
        for (const program::Instruction& instruction : body.instructions) {
            if (!computes(instruction)) continue;
            for (std::int32_t o = 0; o < instruction.operator_count; ++o) {
                const program::OperatorIndex op = instruction.first_operator + o;
                weights[op] = weight(body.operators.at(op));
                ORRERY_CHECK(std::isfinite(weights[op]) && weights[op] >= 0, "an operator's weight is not a number");
            }
        }
    }
}

TimePart PartTable::of_instruction(program::BodyId body, program::InstructionIndex instruction) const {
    const program::Instruction& it = program_.bodies[body].instructions[instruction];
    if (it.is_communication) return part_of(it.communication, it.stream);
    if (it.stream == program::Stream::host) return TimePart::host;
    if (!computes(it)) return TimePart::copies;
    if (it.operator_count == 0) return TimePart::elementwise;
    const auto first = weights_[body].begin() + it.first_operator.value();
    const auto heaviest = std::max_element(first, first + it.operator_count);
    return operators_[body][program::OperatorIndex::of(heaviest - weights_[body].begin())];
}

void PartTable::add_compute(program::BodyId body, program::InstructionIndex instruction, std::int64_t picoseconds,
                            PartTimes& times) const {
    const program::Instruction& it = program_.bodies[body].instructions[instruction];
    double all = 0;
    for (std::int32_t o = 0; o < it.operator_count; ++o) all += weights_[body][it.first_operator + o];
    if (!(all > 0)) {
        times[of_instruction(body, instruction)] += picoseconds;
        return;
    }
    // Rounds running sums instead of parts, so that the last sum is exactly the total.
    double sum = 0;
    std::int64_t given = 0;
    for (std::int32_t o = 0; o < it.operator_count; ++o) {
        const program::OperatorIndex op = it.first_operator + o;
        sum += weights_[body][op];
        const bool last = o + 1 == it.operator_count;
        const std::int64_t until =
            last ? picoseconds : std::llround(static_cast<double>(picoseconds) * std::min(1.0, sum / all));
        times[operators_[body][op]] += until - given;
        given = until;
    }
}

std::string label_of(TimePart part) {
    switch (part) {
        case TimePart::products:
            return "matrix products";
        case TimePart::elementwise:
            return "norms, element-wise";
        case TimePart::embedding_and_head:
            return "embedding, head, loss";
        case TimePart::bubble:
            return "pipeline bubble";
        case TimePart::idle:
            return "idle, end of step";
        default:
            break;
    }
    std::string label(name_of(part));
    if (is_communication(part)) return label;
    std::replace(label.begin(), label.end(), '_', ' ');
    return label;
}

std::string part_label(const std::string& name) {
    for (const TimePart part : kTimeParts) {
        if (name_of(part) == name) return (is_communication(part) ? "exposed " : "") + label_of(part);
    }
    return name;
}

}  // namespace orrery::reports
