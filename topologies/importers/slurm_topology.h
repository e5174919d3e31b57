// Slurm's topology.conf (tree, block, ring) and topology.yaml (a list of named topologies: tree, block, ring, torus3d,
// flat), as documented by the manual pages of Slurm 26.11; and NVIDIA's topograph models.
#pragma once

#include <string>
#include <vector>

#include "topologies/importers/fabric_description.h"

namespace orrery::topologies {

/// Throws InputError naming file, line, key, value and what is allowed. `LinkSpeed` is noted as not read, since Slurm
/// does not use it either; `Include` is refused, since the included file would be missing.
[[nodiscard]] FabricDescription slurm_conf_from_text(const std::string& text, const std::string& file);

/// The topologies in the order of the file, but the cluster's default first if the file names one.
[[nodiscard]] std::vector<FabricDescription> slurm_yaml_from_text(const std::string& text, const std::string& file);

/// A model of NVIDIA's topograph: `switches` (a map from each switch to the switches below it) and `blocks` (the nodes
/// of a leaf and their NVLink domain).
[[nodiscard]] FabricDescription topograph_from_text(const std::string& text, const std::string& file);

}  // namespace orrery::topologies
