// Maps work to the rates that apply to it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "sim/program/plan.h"
#include "sim/program/rates.h"
#include "sim/program/sensitivity.h"

namespace orrery::program {

/// A rate that multiplies a cell's time, raised to a power.
struct RateUse {
    RateKey key{};
    double power = 1;
};
struct RateUses {
    std::array<RateUse, 8> uses{};
    std::size_t count = 0;
    void add(RateKey key, double power = 1) { uses[count++] = {key, power}; }
    [[nodiscard]] const RateUse* begin() const { return uses.data(); }
    [[nodiscard]] const RateUse* end() const { return uses.data() + count; }
};
/// The rates by which a cell's time is multiplied. Both the cost of work and the derivatives of a step by its rates
/// follow this rule.
[[nodiscard]] RateUses rates_of(const WorkCell& cell, const Parallelism& parallelism, std::int64_t devices_per_node);
/// The same for work whose rates do not depend on the mesh: all classes but WorkClass::tp_layer.
[[nodiscard]] RateUses rates_of(const WorkCell& cell);
/// The product of the cell's rates.
[[nodiscard]] double factor_of(const WorkCell& cell, const Rates& rates);
/// Whether the communication is a piece of an all-gather or reduce-scatter that runs while its GEMM runs.
[[nodiscard]] bool is_piece(CommKind kind, GroupAxis axis);
/// Additional time of a reduction over tensor-parallel ranks: its members reach it at different times, and all wait for
/// the last one. A gather follows closely on a reduction and has no such wait.
[[nodiscard]] double wait_s(const WorkCell& communication, const Rates& rates);
/// The cell to which that wait belongs.
[[nodiscard]] WorkCell wait_cell(const WorkCell& communication);

/// The cell whose factor is the share of the device that the communication takes from concurrent computation, beyond
/// the compute units of its kernel, and to which the resulting slowdown of the computation belongs. Only gradients,
/// parameters and pieces of a GEMM have one, since no computation runs beside other communication.
[[nodiscard]] std::optional<WorkCell> hidden_cell(const WorkCell& communication);

/// Host time of one pass over a block, forward or backward, beyond the launches of its instructions.
struct HostTime {
    double layer_s = 0;     // for each block
    double tp_layer_s = 0;  // in addition, if tp > 1
};
[[nodiscard]] HostTime host_time(const Plan& plan);

}  // namespace orrery::program
