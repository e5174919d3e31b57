// What the record of a run must say about the Program that was run.
#pragma once

#include "sim/program/run_record.h"

namespace orrery::parity {

/// Bytes that each rank handed to MPI are those of the Program: exactly, or for all-reduces whose elements the ranks
/// cannot share equally, up to the ring's unequal blocks; and exactly in the sum over all ranks.
void expect_bytes_of_program(const program::Program& program, const program::RunRecord& record);

/// Each rank ran each stream's instructions in the Program's order, one after the other, none before what it waits for.
void expect_order_of_program(const program::Program& program, const program::RunRecord& record);

}  // namespace orrery::parity
