// The table-driven twins of the roofline: given durations instead of formulas, for tests and for replaying recordings.
#pragma once

#include <array>
#include <map>
#include <string>

#include "sim/cost/cost_model.h"

namespace orrery::sim {

/// One duration for each kind of action. The first compute instruction of the action takes all of it, the rest none, so
/// that closed forms in F, I and W hold to the picosecond.
class ActionTableCost final : public CostModel {
  public:
    /// Kinds that are not in the table take no time.
    explicit ActionTableCost(const std::map<program::ActionKind, Picoseconds>& durations);

    [[nodiscard]] Picoseconds instruction_time(const InstructionContext& where) const override;
    [[nodiscard]] bool depends_on_action() const override { return true; }
    [[nodiscard]] std::vector<std::string> notes(const program::Program&) const override { return {}; }

  private:
    std::map<program::ActionKind, Picoseconds> durations_;
};

/// One duration for each instruction key (program::key_of).
class KeyTableCost final : public CostModel {
  public:
    /// Instructions that are not in the table take no time, and notes() counts them.
    explicit KeyTableCost(std::map<std::string, Picoseconds> durations) : durations_(std::move(durations)) {}

    [[nodiscard]] Picoseconds instruction_time(const InstructionContext& where) const override;
    [[nodiscard]] bool depends_on_action() const override { return true; }
    [[nodiscard]] std::vector<std::string> notes(const program::Program& program) const override;

  private:
    [[nodiscard]] static std::string key_at(const InstructionContext& where);
    std::map<std::string, Picoseconds> durations_;
};

}  // namespace orrery::sim
