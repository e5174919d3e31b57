// The durations of instructions in a RunRecord. A replay uses them, in either interpreter, instead of a cost model or
// of the real work.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/units.h"
#include "sim/program/program.h"
#include "sim/program/run_record.h"

namespace orrery::program {

/// Picoseconds by rank and by instruction in issue order (IssueOrder), from the moment when all participants are ready
/// to the end. The members of a communication end it together, so that each of them has the longest recorded duration.
struct Durations {
    std::vector<std::vector<std::int64_t>> by_rank;

    [[nodiscard]] const std::vector<std::int64_t>& of_rank(std::int64_t rank) const {
        return by_rank[static_cast<std::size_t>(rank)];
    }
};

/// The durations of every rank of the job, from its own record or from that of the single recorded rank of its class.
/// `factor` > 0 multiplies them all. Throws InputError with `file`, the rank and what is missing if a rank has no
/// record and its class not exactly one, or if a record lacks an instruction.
[[nodiscard]] Durations durations_of(const Program& program, const RunRecord& record, const std::string& file,
                                     double factor = 1);

/// Host time of one launch.
[[nodiscard]] Picoseconds launch_time(const topologies::DeviceProfile& device, const models::HostChoices& host);

}  // namespace orrery::program
