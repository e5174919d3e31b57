// The operator by which a rank updates its parameters: its operands are what training goes on from.
#pragma once

#include "sim/program/program.h"

namespace orrery::exec {

struct UpdateOperator {
    const program::Body* body = nullptr;
    const models::Operator* op = nullptr;  // null where the rank updates nothing (torch DataParallel's replicas)
    /// Of the optimizer's operands, see models::OpKind; null for those that it lacks.
    [[nodiscard]] const program::Slot* out(std::size_t position) const {
        const models::SlotIndex slot = op == nullptr ? models::kNoSlot : op->out[position];
        return slot == models::kNoSlot ? nullptr : &body->slots[slot];
    }
};

[[nodiscard]] UpdateOperator update_operator_of(const program::Program& program, const program::RankClass& rank_class);

}  // namespace orrery::exec
