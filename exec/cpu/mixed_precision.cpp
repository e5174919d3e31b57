#include "exec/cpu/mixed_precision.h"

#include <algorithm>

#include "core/error.h"
#include "kernels/kernels.h"

namespace orrery::exec {

bool has_bf16(const OperatorPointers& at) {
    const auto any = [](const auto& dtypes) {
        return std::find(dtypes.begin(), dtypes.end(), DType::bf16) != dtypes.end();
    };
    return any(at.in_dtype) || any(at.out_dtype);
}

void Fp32Copies::note(void* operand, std::int64_t elements, bool written) {
    auto* original = static_cast<std::uint16_t*>(operand);
    std::int64_t place = 0;
    for (Copy& copy : copies_) {
        if (copy.original == original && copy.elements == elements) {
            copy.written |= written;
            return;
        }
        ORRERY_CHECK(original + elements <= copy.original || copy.original + copy.elements <= original,
                     "operands overlap partially");
        place = copy.place + copy.elements;
    }
    copies_.push_back({original, elements, written, place});
}

float* Fp32Copies::copy_of(const void* operand) {
    const auto copy =
        std::find_if(copies_.begin(), copies_.end(), [&](const Copy& one) { return one.original == operand; });
    return values_.data() + copy->place;
}

OperatorPointers Fp32Copies::make(const OperatorPointers& at) {
    copies_.clear();
    OperatorPointers result = at;
    const auto each = [&](const auto& visit) {
        for (std::size_t i = 0; i < models::kMaxOperands; ++i) {
            visit(result.in.at(i), result.in_dtype.at(i), at.in_elements.at(i), false);
            visit(result.out.at(i), result.out_dtype.at(i), at.out_elements.at(i), true);
        }
    };
    each([&](void* pointer, DType dtype, std::int64_t elements, bool written) {
        if (pointer != nullptr && dtype == DType::bf16) note(pointer, elements, written);
    });
    const std::int64_t needed = copies_.empty() ? 0 : copies_.back().place + copies_.back().elements;
    if (values_.size() < static_cast<std::size_t>(needed)) {
        values_ = {};  // free the old buffer first, so that the two never coexist
        values_.resize(static_cast<std::size_t>(needed));
    }
    // Output operands are copied, too, because an operator may add to them or write only a part.
    for (const Copy& copy : copies_) {
        kernels::cast_from_bf16(copy.elements, copy.original, values_.data() + copy.place);
    }
    each([&](void*& pointer, DType& dtype, std::int64_t /*elements*/, bool /*written*/) {
        if (pointer == nullptr || dtype != DType::bf16) return;
        pointer = copy_of(pointer);
        dtype = DType::fp32;
    });
    return result;
}

void Fp32Copies::write_back() const {
    for (const Copy& copy : copies_) {
        if (copy.written) kernels::cast_to_bf16(copy.elements, values_.data() + copy.place, copy.original);
    }
}

}  // namespace orrery::exec
