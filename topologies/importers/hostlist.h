// Slurm's hostlists: "tux[0-3,12,18-20],login1" names nine hosts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::topologies {

/// The names in the order of the list. Brackets hold numbers and ranges; "[008-011]" keeps the width of its lower
/// bound. Several brackets in a name form a product in which the last one varies fastest: "rack[0-1]n[1-2]" is rack0n1,
/// rack0n2, rack1n1, rack1n2. Throws InputError naming `place` ("FILE: line 3: Nodes"), the list and what is allowed;
/// more than `most` names are refused before expansion.
[[nodiscard]] std::vector<std::string> expand_hostlist(std::string_view list, const std::string& place,
                                                       std::int64_t most);

}  // namespace orrery::topologies
