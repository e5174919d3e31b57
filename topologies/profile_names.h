// How many values the enums of profiles have, for readers and writers of their names (core/enum_names.h).
#pragma once

#include "core/enum_names.h"
#include "topologies/profile.h"

namespace orrery {

template <>
inline constexpr int kValuesOf<topologies::Provenance> = static_cast<int>(topologies::Provenance::fallback) + 1;
template <>
inline constexpr int kValuesOf<topologies::NodePart> = topologies::kNodeParts;
template <>
inline constexpr int kValuesOf<topologies::LinkMedium> = static_cast<int>(topologies::LinkMedium::ethernet) + 1;

}  // namespace orrery
