// How long instructions take, by a RunRecord: what a replay goes by, in either interpreter, instead of a cost or of the
// work itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/units.h"
#include "sim/program/program.h"
#include "sim/program/run_record.h"

namespace orrery::program {

/// Picoseconds, by rank and then by instruction in issue order (IssueOrder), from the moment at which all participants
/// are there to the end. The members of a communication end it together, so all have the longest that the record has
/// among them.
struct Durations {
    std::vector<std::vector<std::int64_t>> by_rank;

    [[nodiscard]] const std::vector<std::int64_t>& of_rank(std::int64_t rank) const {
        return by_rank[static_cast<std::size_t>(rank)];
    }
};

/// Of every rank of the job: from its own part of the record, or from that of the one rank that stands for its class.
/// `factor` > 0 stretches them all. Throws InputError naming `file`, the rank and what is missing when the record lacks
/// an instruction, or a rank whose class several others stand for.
[[nodiscard]] Durations durations_of(const Program& program, const RunRecord& record, const std::string& file,
                                     double factor = 1);

/// What the host spends on one launch.
[[nodiscard]] Picoseconds launch_time(const topologies::DeviceProfile& device, const models::HostChoices& host);

}  // namespace orrery::program
