// The members of NcclProfile and NcclNetwork with their keys in files.
#pragma once

#include <array>

#include "topologies/profile.h"

namespace orrery::topologies {

struct NcclFigure {
    const char* key;
    Figure NcclProfile::*member;
    bool required;
    bool is_share;  // at most 1
};
inline constexpr std::array<NcclFigure, 13> kNcclFigures{{
    {"base_us", &NcclProfile::base_us, true, false},
    {"step_us", &NcclProfile::step_us, true, false},
    {"ll_channel_gb_per_s", &NcclProfile::ll_channel_gb_per_s, false, false},
    {"ll_share", &NcclProfile::ll_share, false, true},
    {"ll128_share", &NcclProfile::ll128_share, false, true},
    {"simple_base_us", &NcclProfile::simple_base_us, true, false},
    {"simple_step_us", &NcclProfile::simple_step_us, true, false},
    {"copy_gb_per_s", &NcclProfile::copy_gb_per_s, true, false},
    {"fill", &NcclProfile::fill, false, false},
    {"grouped_share", &NcclProfile::grouped_share, true, true},
    {"pair_gb_per_s", &NcclProfile::pair_gb_per_s, false, false},
    {"nvls_share", &NcclProfile::nvls_share, false, true},
    {"nvls_rounds", &NcclProfile::nvls_rounds, false, false},
}};

struct NcclNetworkFigure {
    const char* key;
    Figure NcclNetwork::*member;
};
/// The figures that are fitted to measurements. tree_fill is not among them: it trades off against a device's
/// nvls_rounds, so one assumed value is used for all networks.
inline constexpr std::array<NcclNetworkFigure, 1> kNcclNetworkFigures{{
    {"step_us", &NcclNetwork::step_us},
}};

}  // namespace orrery::topologies
