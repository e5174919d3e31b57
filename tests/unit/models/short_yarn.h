// YaRN that is visible at short contexts: a factor of 8 from 8 positions, with both mscale values given.
#pragma once

#include "models/model_spec.h"

namespace orrery::test {

inline models::ModelSpec::RopeScaling short_yarn() {
    return {.type = "yarn",
            .factor = 8.0,
            .original_max_positions = 8,
            .beta_fast = 32.0,
            .beta_slow = 1.0,
            .mscale = 1.0,
            .mscale_all_dim = 0.7};
}

}  // namespace orrery::test
