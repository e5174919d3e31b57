// Tables in device memory that are made on first use and kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "kernels/cuda/stream.h"
#include "models/model_spec.h"

namespace orrery::exec {

class DeviceTables {
  public:
    using Allocate = std::function<std::byte*(std::int64_t bytes)>;
    /// `allocate` returns device memory that outlives this object, or null; `small` never null, for a few values.
    DeviceTables(Allocate allocate, Allocate small);

    struct Rotary {
        const float* cosines = nullptr;
        const float* sines = nullptr;
    };
    /// For heads of which `width` elements are rotated.
    [[nodiscard]] Rotary rotary(kernels::cuda::StreamHandle stream, const models::ModelSpec& model,
                                std::int64_t positions, std::int64_t width);
    /// A copy of a few values; null if there are none.
    [[nodiscard]] const float* copy_of(kernels::cuda::StreamHandle stream, const std::vector<float>& values);

  private:
    Allocate allocate_, small_;
    std::map<std::pair<std::int64_t, std::int64_t>, Rotary> rotary_;  // by positions and width
    std::map<std::vector<float>, const float*> copies_;
};

}  // namespace orrery::exec
