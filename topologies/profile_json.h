// Figures, links and devices as JSON, and back, for cluster files and the catalogue.
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
/// Read the reader's object and refuse unknown keys.
[[nodiscard]] LinkProfile read_link(const JsonReader& reader);
[[nodiscard]] DeviceProfile read_device(const JsonReader& reader);

}  // namespace orrery::topologies
