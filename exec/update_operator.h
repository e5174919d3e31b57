// The operator that updates a rank's parameters. Its operands are the state of the training.
#pragma once

#include "sim/program/program.h"

namespace orrery::exec {

struct UpdateOperator {
    const program::Body* body = nullptr;
    const models::Operator* op = nullptr;  // null if the rank updates nothing (replicas of torch DataParallel)
    /// The slot of an output operand, by position as models::OpKind lists them; null if the operator lacks it.
    [[nodiscard]] const program::Slot* out(std::size_t position) const {
        const models::SlotIndex slot = op == nullptr ? models::kNoSlot : op->out[position];
        return slot == models::kNoSlot ? nullptr : &body->slots[slot];
    }
};

[[nodiscard]] UpdateOperator update_operator_of(const program::Program& program, const program::RankClass& rank_class);

}  // namespace orrery::exec
