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

float* Fp32Copies::copy_of(void* operand, std::int64_t elements, bool written) {
    auto* original = static_cast<std::uint16_t*>(operand);
    std::size_t i = 0;
    for (; i < copies_.size(); ++i) {
        Copy& copy = copies_[i];
        if (copy.original == original && copy.elements == elements) {
            copy.written |= written;
            return values_.at(i).data();
        }
        ORRERY_CHECK(original + elements <= copy.original || copy.original + copy.elements <= original,
                     "operands overlap in part");
    }
    copies_.push_back({original, elements, written});
    std::vector<float>& values = values_.at(i);
    if (values.size() < static_cast<std::size_t>(elements)) values.resize(static_cast<std::size_t>(elements));
    // What is written too: it may be added to, or written in part.
    kernels::cast_from_bf16(elements, original, values.data());
    return values.data();
}

OperatorPointers Fp32Copies::make(const OperatorPointers& at) {
    copies_.clear();
    OperatorPointers result = at;
    const auto replace = [&](void*& pointer, DType& dtype, std::int64_t elements, bool written) {
        if (pointer == nullptr || dtype != DType::bf16) return;
        pointer = copy_of(pointer, elements, written);
        dtype = DType::fp32;
    };
    for (std::size_t i = 0; i < models::kMaxOperands; ++i) {
        replace(result.in.at(i), result.in_dtype.at(i), at.in_elements.at(i), false);
        replace(result.out.at(i), result.out_dtype.at(i), at.out_elements.at(i), true);
    }
    return result;
}

void Fp32Copies::write_back() const {
    for (std::size_t i = 0; i < copies_.size(); ++i) {
        const Copy& copy = copies_[i];
        if (copy.written) kernels::cast_to_bf16(copy.elements, values_.at(i).data(), copy.original);
    }
}

}  // namespace orrery::exec
