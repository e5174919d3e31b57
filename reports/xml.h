// Text in the SVG pictures.
#pragma once

#include <string>
#include <string_view>

namespace orrery::reports {

/// The text as content or attribute value of an XML element.
[[nodiscard]] std::string xml_text(std::string_view text);

}  // namespace orrery::reports
