// Times and bandwidths of a collective by message size, in the layout of nccl-tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace orrery::reports {

struct CollectiveLine {
    std::int64_t bytes = 0;  // message size S
    double seconds = 0;
    std::string algorithm, protocol;
    std::int64_t channels = 0;  // 0: not known
};
struct CollectiveTable {
    std::string cluster, op, dtype;
    std::int64_t element_bytes = 1;
    std::int64_t ranks = 0, nodes = 0;
    std::vector<std::int64_t> devices;
    double bus_factor = 1;  // bus bandwidth / algorithm bandwidth: 2(n-1)/n, (n-1)/n or 1
    std::vector<CollectiveLine> lines;
};

[[nodiscard]] std::string collective_table_text(const CollectiveTable& table);
/// `orrery.collectives/1`. Ends in a newline.
[[nodiscard]] std::string collective_table_json(const CollectiveTable& table);

}  // namespace orrery::reports
