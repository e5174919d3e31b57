#include "exec/fused_operators.h"

#include "core/error.h"

namespace orrery::exec {
namespace {

using models::Operator;
using models::OpKind;

/// One operand of a part: its slot, and all that OperatorPointers tell about it.
struct Operand {
    models::SlotIndex slot = models::kNoSlot;
    void* pointer = nullptr;
    DType dtype = DType::fp32;
    std::int64_t width = 0, elements = 0;
};

/// Makes one of the parts.
class Part {
  public:
    Part(OpKind kind, const Operator& whole, const OperatorPointers& at) : whole_(whole), at_(at), part_{whole, {}} {
        part_.op.kind = kind;
        part_.op.in = part_.op.out = {};
        part_.op.flops = part_.op.bytes_read = part_.op.bytes_written = 0;
    }
    /// The operands of the whole, by position.
    Part& reads(std::initializer_list<std::size_t> ins) {
        for (const std::size_t i : ins) {
            read({whole_.in[i], at_.in.at(i), at_.in_dtype.at(i), at_.in_width.at(i), at_.in_elements.at(i)});
        }
        return *this;
    }
    Part& reads_out(std::size_t i) {
        read({whole_.out[i], at_.out.at(i), at_.out_dtype.at(i), at_.out_width.at(i), at_.out_elements.at(i)});
        return *this;
    }
    Part& writes(std::initializer_list<std::size_t> outs) {
        for (const std::size_t i : outs) {
            part_.op.out[outs_] = whole_.out[i];
            part_.at.out.at(outs_) = at_.out.at(i);
            part_.at.out_dtype.at(outs_) = at_.out_dtype.at(i);
            part_.at.out_width.at(outs_) = at_.out_width.at(i);
            part_.at.out_elements.at(outs_++) = at_.out_elements.at(i);
        }
        return *this;
    }
    [[nodiscard]] const OperatorPart& get() const { return part_; }

  private:
    void read(const Operand& operand) {
        part_.op.in[ins_] = operand.slot;
        part_.at.in.at(ins_) = operand.pointer;
        part_.at.in_dtype.at(ins_) = operand.dtype;
        part_.at.in_width.at(ins_) = operand.width;
        part_.at.in_elements.at(ins_++) = operand.elements;
    }
    const Operator& whole_;
    const OperatorPointers& at_;
    OperatorPart part_;
    std::size_t ins_ = 0, outs_ = 0;
};

}  // namespace

std::array<OperatorPart, 2> parts_of_fused(const Operator& op, const OperatorPointers& at) {
    switch (op.kind) {
        case OpKind::layer_norm_forward:
        case OpKind::rms_norm_forward:
            return {Part(OpKind::residual_add, op, at).reads({0, 3, 4}).writes({2}).get(),
                    Part(op.kind, op, at).reads_out(2).reads({1, 2}).writes({0, 1}).get()};
        case OpKind::linear_forward: {
            OperatorPart gelu = Part(OpKind::gelu_forward, op, at).reads_out(0).writes({1}).get();
            gelu.op.to_column = 0;
            return {Part(op.kind, op, at).reads({0, 1, 2}).writes({0}).get(), gelu};
        }
        case OpKind::cross_entropy_sum:
            return {Part(OpKind::cross_entropy_max, op, at).reads({0}).writes({2}).get(),
                    Part(op.kind, op, at).reads({0}).reads_out(2).reads({2}).writes({0}).get()};
        default:
            throw_bug(__FILE__, __LINE__, "OpKind", std::string(name_of(op.kind)) + " is never fused");
    }
}

}  // namespace orrery::exec
