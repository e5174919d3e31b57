// An operator outside of any plan, with operands of any type and shape.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "sim/program/program.h"

namespace orrery::exec {

struct BareOperator {
    program::Body body;
    models::Operator op;

    explicit BareOperator(models::Operator without_operands) : op(std::move(without_operands)) {}
    /// Appends an operand, which is absent without a shape.
    BareOperator& in(DType dtype, std::vector<std::int64_t> shape) {
        op.in[ins_] = slot("in", ins_, dtype, std::move(shape));
        ++ins_;
        return *this;
    }
    BareOperator& out(DType dtype, std::vector<std::int64_t> shape) {
        op.out[outs_] = slot("out", outs_, dtype, std::move(shape));
        ++outs_;
        return *this;
    }
    /// The next output is this input.
    BareOperator& in_place(std::size_t input) {
        op.out[outs_++] = op.in[input];
        return *this;
    }

  private:
    models::SlotIndex slot(const char* kind, std::size_t position, DType dtype, std::vector<std::int64_t> shape) {
        if (shape.empty()) return models::kNoSlot;
        program::Slot one{.decl = {.name = kind + std::to_string(position), .dtype = dtype, .shape = std::move(shape)}};
        one.bytes = one.decl.bytes();
        return body.slots.add(std::move(one));
    }
    std::size_t ins_ = 0, outs_ = 0;
};

}  // namespace orrery::exec
