// Which inputs of a plan matter: `orrery whatif --tornado`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/whatif_points.h"
#include "sim/program/tornado.h"

namespace orrery::cli {

/// Moves each number below the paths (empty: the cluster's) by the share `change` < 1, down and up. Throws InputError
/// if there is no such path or no such number. No value for a shard.
[[nodiscard]] std::optional<program::Tornado> tornado_of(const WhatIfJob& job, const std::vector<std::string>& paths,
                                                         double change);

}  // namespace orrery::cli
