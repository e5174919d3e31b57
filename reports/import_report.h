// What an importer read from a foreign file, as text.
#pragma once

#include <string>

#include "topologies/importers/import_file.h"

namespace orrery::reports {

/// GPUs with their sockets, PCIe switches and nearest NICs; or switches by tier; or the channels that NCCL chose.
/// Followed by the file's notes.
[[nodiscard]] std::string import_text(const topologies::ForeignFile& file);
/// orrery.channels/1
[[nodiscard]] std::string channels_json(const topologies::NcclGraphs& graphs, const std::string& file);

}  // namespace orrery::reports
