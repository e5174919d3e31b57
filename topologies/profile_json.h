// Figures, links and devices as JSON, and back: the parts that cluster files and the catalogue share.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "core/json_reader.h"
#include "topologies/profile.h"

namespace orrery::topologies {

using Json = nlohmann::ordered_json;

[[nodiscard]] Json figure_json(const Figure& figure);
[[nodiscard]] Json link_json(const LinkProfile& link);
[[nodiscard]] Json device_json(const DeviceProfile& device);

[[nodiscard]] Figure read_figure(const JsonReader& parent, const std::string& key, NumberRange range);
/// The object that the reader stands on, read whole.
[[nodiscard]] LinkProfile read_link(const JsonReader& reader);
[[nodiscard]] DeviceProfile read_device(const JsonReader& reader);

}  // namespace orrery::topologies
