// Cost model with given durations instead of the roofline's formulas, for tests and for published times.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sim/cost/cost_model.h"

namespace orrery::sim {

/// Given durations of actions, such as published times of a stage's forward, backward_input and backward_weight. The
/// first instruction with operators on the compute stream (or the first instruction there if none has operators) takes
/// the whole time of the action, and all others take none, so that closed forms in F, I and W hold to the picosecond.
/// Parts of a pass take equal times.
/// Kinds missing from a table take no time.
class ActionTableCost final : public CostModel {
  public:
    using Durations = std::map<program::ActionKind, Picoseconds>;
    /// One table for all ranks and chunks.
    explicit ActionTableCost(Durations durations);
    /// Tables by rank class, then chunk of the class. Throws BugError for a Program with more of either.
    [[nodiscard]] static ActionTableCost of_chunks(std::vector<std::vector<Durations>> durations);
    /// Tables by Chunk::virtual_stage; both copies of a stage (dualpipe) share one. Throws BugError for a Program with
    /// more stages.
    [[nodiscard]] static ActionTableCost of_virtual_stages(std::vector<Durations> durations);

    [[nodiscard]] Picoseconds instruction_time(const InstructionContext& where) const override;
    [[nodiscard]] bool depends_on_action() const override { return true; }
    [[nodiscard]] std::vector<std::string> notes(const program::Program&) const override { return {}; }

  private:
    enum class Key : std::uint8_t { none, chunk, virtual_stage };
    ActionTableCost(Key key, std::vector<std::vector<Durations>> tables) : key_(key), tables_(std::move(tables)) {}
    [[nodiscard]] const Durations& durations_at(const InstructionContext& where) const;

    Key key_ = Key::none;
    std::vector<std::vector<Durations>> tables_;  // [class][chunk], [virtual stage][0] or [0][0]
};

}  // namespace orrery::sim
