#include "sim/cost/table_cost.h"

#include <set>

#include "sim/program/run_record.h"

namespace orrery::sim {

ActionTableCost::ActionTableCost(const std::map<program::ActionKind, Picoseconds>& durations) : durations_(durations) {}

Picoseconds ActionTableCost::instruction_time(const InstructionContext& where) const {
    const auto entry = durations_.find(where.action_here().kind);
    if (entry == durations_.end()) return Picoseconds(0);
    const std::vector<program::Segment>& segments = where.segments_here();
    for (std::int32_t segment = 0; segment <= where.segment; ++segment) {
        const auto body = static_cast<std::size_t>(segments[static_cast<std::size_t>(segment)].body);
        const std::vector<program::Instruction>& instructions = where.program.bodies[body].instructions;
        for (std::size_t i = 0; i < instructions.size(); ++i) {
            if (instructions[i].is_communication) continue;
            const bool here = segment == where.segment && i == static_cast<std::size_t>(where.instruction);
            return here ? entry->second : Picoseconds(0);
        }
    }
    return Picoseconds(0);
}

std::string KeyTableCost::key_at(const InstructionContext& where) {
    program::Span span;
    span.action = where.action;
    span.segment = where.segment;
    span.instruction = where.instruction;
    return program::key_of(where.program, where.rank_class, span);
}

Picoseconds KeyTableCost::instruction_time(const InstructionContext& where) const {
    const auto entry = durations_.find(key_at(where));
    return entry == durations_.end() ? Picoseconds(0) : entry->second;
}

std::vector<std::string> KeyTableCost::notes(const program::Program& program) const {
    std::set<std::string> missing;
    for (std::size_t c = 0; c < program.classes.size(); ++c) {
        const program::RankClass& rank_class = program.classes[c];
        for (std::size_t a = 0; a < rank_class.actions.size(); ++a) {
            const auto list = static_cast<std::size_t>(rank_class.actions[a].segments);
            for (std::size_t s = 0; s < rank_class.segment_lists[list].size(); ++s) {
                InstructionContext where{program, static_cast<std::int32_t>(c), static_cast<std::int32_t>(a),
                                         static_cast<std::int32_t>(s), 0};
                const std::size_t count = where.body_here().instructions.size();
                for (; where.instruction < static_cast<std::int32_t>(count); ++where.instruction) {
                    if (where.instruction_here().is_communication) continue;
                    std::string key = key_at(where);
                    if (!durations_.contains(key)) missing.insert(std::move(key));
                }
            }
        }
    }
    if (missing.empty()) return {};
    return {std::to_string(missing.size()) + " instructions have no recorded duration and take no time; the first is " +
            *missing.begin()};
}

}  // namespace orrery::sim
