// Means over the ranks of a class. A simulated record has one representative per class and an executed record has every
// rank; weighting by multiplicity makes the two comparable.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/program/program.h"
#include "sim/program/run_record.h"

namespace orrery::reports {

struct ClassMeans {
    program::ClassIndex rank_class = 0;
    std::int64_t ranks = 0;                         // sum of multiplicities
    program::PerStream<double> busy_s{};            // mean over the ranks
    program::PerStream<double> exposed_s{};         // mean over the ranks
    program::PerStream<std::int64_t> bytes_sent{};  // sum over the ranks
    std::int64_t memory_peak_bytes = 0;             // worst rank
    std::int64_t memory_live_peak_bytes = 0;        // worst rank
};

/// One entry per rank class, ascending; classes without a rank in the record are left out.
[[nodiscard]] std::vector<ClassMeans> class_means(const program::RunRecord& record);

/// All ranks as one class; `rank_class` is -1.
[[nodiscard]] ClassMeans overall_means(const program::RunRecord& record);

}  // namespace orrery::reports
