// Programs of one action with instructions and spans written by hand, in picoseconds.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/reports/sample.h"

namespace orrery::reports::tiny {

/// Divides time among operators evenly.
inline double same_weight(const models::Operator&) {
    return 1;
}

/// An instruction and when it ran.
struct Timed {
    program::Instruction instruction;
    std::int64_t ready = 0, begin = 0, end = 0;
};

inline program::Instruction on(program::Stream stream, const std::string& name,
                               std::vector<program::InstructionIndex> after = {}) {
    program::Instruction instruction;
    instruction.name = name;
    instruction.stream = stream;
    instruction.after = std::move(after);
    return instruction;
}

inline program::Instruction group(program::Stream stream, program::GroupAxis axis, program::CommKind kind,
                                  std::vector<program::InstructionIndex> after = {}) {
    program::Instruction instruction = on(stream, std::string(program::name_of(axis)), std::move(after));
    instruction.is_communication = true;
    instruction.communication.kind = kind;
    instruction.communication.axis = axis;
    return instruction;
}

inline Timed compute(std::int64_t begin, std::int64_t end, std::vector<program::InstructionIndex> after = {}) {
    return {on(program::Stream::compute, "compute", std::move(after)), begin, begin, end};
}

/// A Program of one rank class whose only action runs one body, and its record.
struct Step {
    program::Program program;
    program::RunRecord record;
};

inline Step step(std::int64_t period_ps, const std::vector<Timed>& timed, double launch_us = 0) {
    program::Plan plan = sample::plan();
    plan.parallelism.pp = 1;
    plan.cluster.device.launch_us.value = launch_us;
    Step result;
    result.program.plan = std::make_shared<const program::Plan>(plan);
    program::Body body;
    body.phase = program::Phase::forward;
    body.layer_kind = models::LayerKind::block;
    program::RankRecord rank;
    rank.multiplicity = 2;
    for (const Timed& one : timed) {
        rank.spans.push_back({0, 0, body.instructions.add(one.instruction), one.ready, one.begin, one.end});
    }
    program::count_streams(body);
    result.program.bodies = {body};
    program::RankClass ranks;
    ranks.name = "stage 0";
    ranks.segment_lists = {{program::Segment{}}};
    ranks.actions = {program::Action{.kind = program::ActionKind::forward, .micro_batch = 0}};
    result.program.classes = {ranks};
    result.record.plan_name = plan.name;
    result.record.step_time_s = static_cast<double>(period_ps) * 1e-12;
    result.record.ranks = {rank};
    return result;
}

}  // namespace orrery::reports::tiny
