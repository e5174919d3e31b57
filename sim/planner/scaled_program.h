// Private to the planner: a Program at any micro-batch size, from lowerings at two sizes.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/program/program.h"

namespace orrery::sim {

/// The bodies of two Programs that differ in the micro-batch size alone have the same instructions, operators and
/// slots, and each of their sizes (rows, elements, FLOPs, bytes, places in a frame) is an affine function of the
/// micro-batch size. The layout of transients is not, and is left as it is in the first Program.
class ScaledProgram {
  public:
    /// Lowerings with micro-batches of two different sizes.
    ScaledProgram(program::Program one, std::int64_t size_of_one, program::Program other, std::int64_t size_of_other);

    /// Whether the two Programs have the same instructions, operators and slots. If not, at() must not be called.
    [[nodiscard]] bool is_scalable() const { return is_scalable_; }
    /// With micro-batches of this size: operators, messages, the bytes of slots, frames and the places of segments in
    /// them. Everything else is that of the first Program, without names and declarations.
    [[nodiscard]] const program::Program& at(std::int64_t size);

  private:
    /// A number that depends on the size.
    template <typename Number>
    struct Varying {
        Number* number = nullptr;  // in program_
        double at_one = 0, slope = 0;
    };

    program::Program program_;
    std::int64_t size_of_one_ = 0;
    bool is_scalable_ = false;
    std::vector<Varying<std::int64_t>> counts_;
    std::vector<Varying<double>> amounts_;
};

}  // namespace orrery::sim
