// Checks the record of a run against its Program.
#pragma once

#include "sim/program/run_record.h"

namespace orrery::parity {

/// Expects that each rank sent the bytes of the Program: exactly, or, for all-reduces whose elements do not divide
/// equally, up to the ring's unequal blocks; and that the sum over all ranks is exact.
void expect_bytes_of_program(const program::Program& program, const program::RunRecord& record);

/// Expects that each rank ran each stream's instructions in the Program's order, one after the other, and none before
/// its dependencies. `resolution_ps`: of the clock, by which a time may be off.
void expect_order_of_program(const program::Program& program, const program::RunRecord& record,
                             std::int64_t resolution_ps = 0);

}  // namespace orrery::parity
