#include "sim/cost/table_cost.h"

#include <optional>
#include <utility>

#include "core/error.h"

namespace orrery::sim {

namespace {

using TimedPlace = std::pair<program::SegmentIndex, program::InstructionIndex>;

/// The instruction that takes the whole time of the action; none if the action computes nothing.
std::optional<TimedPlace> timed_instruction_of(const InstructionContext& where) {
    std::optional<TimedPlace> first;
    const program::SegmentList& segments = where.segments_here();
    for (const program::SegmentIndex s : segments.indices()) {
        const program::Body& body = where.program.bodies[segments[s].body];
        for (const program::InstructionIndex i : body.instructions.indices()) {
            const program::Instruction& instruction = body.instructions[i];
            if (instruction.is_communication || instruction.stream != program::Stream::compute) continue;
            if (instruction.operator_count > 0) return TimedPlace(s, i);
            if (!first) first = {s, i};
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
    const program::ChunkIndex chunk = where.action_here().chunk;
    const program::RankClass& rank_class = where.program.classes[where.rank_class];
    std::size_t row = where.rank_class.position();
    std::size_t column = chunk.position();
    if (key_ == Key::virtual_stage) {
        ORRERY_CHECK(chunk < rank_class.chunks.next_index(),
                     rank_class.name + " has no chunk " + std::to_string(chunk.value()));
        row = static_cast<std::size_t>(rank_class.chunks[chunk].virtual_stage);
        column = 0;
    }
    ORRERY_CHECK(row < tables_.size() && column < tables_[row].size(),
                 "no durations for chunk " + std::to_string(chunk.value()) + " of " + rank_class.name);
    return tables_[row][column];
}

Picoseconds ActionTableCost::instruction_time(const InstructionContext& where) const {
    const program::ActionKind kind = where.action_here().kind;
    // Other actions, such as the optimizer, belong to no particular chunk.
    if (key_ != Key::none && !program::is_pass(kind)) return Picoseconds(0);
    const Durations& durations = durations_at(where);
    const auto entry = durations.find(kind);
    if (entry == durations.end()) return Picoseconds(0);
    if (timed_instruction_of(where) != TimedPlace(where.segment, where.instruction)) return Picoseconds(0);
    const program::Action& action = where.action_here();
    const auto until = [&](std::int64_t parts) { return entry->second.value() * parts / action.part_count; };
    return Picoseconds(until(action.part + 1) - until(action.part));
}

}  // namespace orrery::sim
