// Which rates hold for which work.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "sim/program/plan.h"
#include "sim/program/rates.h"
#include "sim/program/sensitivity.h"

namespace orrery::program {

/// A rate that multiplies a cell's time, with the power in which it does.
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
/// The one rule by which rates hold: what a cell's time is multiplied by. Both the cost of work and the derivatives of
/// a step in the rates go by it.
[[nodiscard]] RateUses rates_of(const WorkCell& cell, const Parallelism& parallelism, std::int64_t devices_per_node);
/// Of work whose rates do not depend on the mesh: all but the host's.
[[nodiscard]] RateUses rates_of(const WorkCell& cell);
[[nodiscard]] double factor_of(const WorkCell& cell, const Rates& rates);
/// Whether it is a piece of a gather or a reduce-scatter that goes on beside its product.
[[nodiscard]] bool is_piece(CommKind kind, GroupAxis axis);
/// What a communication takes beyond that: its members reach a sum over tensor-parallel ranks at different times, so
/// all wait for the last one. A gather follows a sum closely and has no wait of its own.
[[nodiscard]] double wait_s(const WorkCell& communication, const Rates& rates);
/// The cell of that wait.
[[nodiscard]] WorkCell wait_cell(const WorkCell& communication);

/// Which share of the device is the communication's own while it runs, beyond the units of its kernel: that of
/// gradients and parameters, of pieces of a product; none of others, since nothing is computed beside them.
[[nodiscard]] std::optional<RateKey> hidden_key(const WorkCell& communication);
/// The cell of what it takes longer by.
[[nodiscard]] WorkCell hidden_cell(const WorkCell& communication);

/// What the host needs for a block's pass, forward or backward, beyond issuing its instructions.
struct HostTime {
    double layer_s = 0;     // of any block
    double tp_layer_s = 0;  // of one that is cut over tensor-parallel ranks
};
[[nodiscard]] HostTime host_time(const Plan& plan);

}  // namespace orrery::program
