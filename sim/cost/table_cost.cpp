#include "sim/cost/table_cost.h"

#include <utility>

#include "core/error.h"

namespace orrery::sim {

namespace {

/// The instruction that takes the whole time of the action, as (segment, instruction); (-1, -1) if the action computes
/// nothing.
std::pair<std::int32_t, std::int32_t> timed_instruction_of(const InstructionContext& where) {
    std::pair<std::int32_t, std::int32_t> first{-1, -1};
    const std::vector<program::Segment>& segments = where.segments_here();
    for (std::size_t s = 0; s < segments.size(); ++s) {
        const program::Body& body = where.program.bodies[static_cast<std::size_t>(segments[s].body)];
        for (std::size_t i = 0; i < body.instructions.size(); ++i) {
            const program::Instruction& instruction = body.instructions[i];
            if (instruction.is_communication || instruction.stream != program::Stream::compute) continue;
            const std::pair at{static_cast<std::int32_t>(s), static_cast<std::int32_t>(i)};
            if (instruction.operator_count > 0) return at;
            if (first.first < 0) first = at;
        }
    }
    return first;
}

}  // namespace

ActionTableCost::ActionTableCost(Durations durations) : tables_{{std::move(durations)}} {}

ActionTableCost ActionTableCost::of_chunks(std::vector<std::vector<Durations>> durations) {
    return {Key::chunk, std::move(durations)};
}

ActionTableCost ActionTableCost::of_virtual_stages(std::vector<Durations> durations) {
    std::vector<std::vector<Durations>> tables;
    tables.reserve(durations.size());
    for (Durations& stage : durations) tables.push_back({std::move(stage)});
    return {Key::virtual_stage, std::move(tables)};
}

const ActionTableCost::Durations& ActionTableCost::durations_at(const InstructionContext& where) const {
    if (key_ == Key::none) return tables_[0][0];
    const auto chunk = static_cast<std::size_t>(where.action_here().chunk);
    const program::RankClass& rank_class = where.program.classes[static_cast<std::size_t>(where.rank_class)];
    std::size_t row = static_cast<std::size_t>(where.rank_class);
    std::size_t column = chunk;
    if (key_ == Key::virtual_stage) {
        ORRERY_CHECK(chunk < rank_class.chunks.size(), rank_class.name + " has no chunk " + std::to_string(chunk));
        row = static_cast<std::size_t>(rank_class.chunks[chunk].virtual_stage);
        column = 0;
    }
    ORRERY_CHECK(row < tables_.size() && column < tables_[row].size(),
                 "no durations for chunk " + std::to_string(chunk) + " of " + rank_class.name);
    return tables_[row][column];
}

Picoseconds ActionTableCost::instruction_time(const InstructionContext& where) const {
    const program::ActionKind kind = where.action_here().kind;
    // Other actions, such as the optimizer, belong to no particular chunk.
    const bool is_computation = kind == program::ActionKind::forward || kind == program::ActionKind::backward ||
                                kind == program::ActionKind::backward_input ||
                                kind == program::ActionKind::backward_weight;
    if (key_ != Key::none && !is_computation) return Picoseconds(0);
    const Durations& durations = durations_at(where);
    const auto entry = durations.find(kind);
    if (entry == durations.end()) return Picoseconds(0);
    return timed_instruction_of(where) == std::pair{where.segment, where.instruction} ? entry->second : Picoseconds(0);
}

}  // namespace orrery::sim
