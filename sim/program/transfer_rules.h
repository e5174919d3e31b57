// How the transfers between pipeline stages are ordered with a rank's computation.
#pragma once

#include "models/implementation.h"
#include "sim/program/plan.h"

namespace orrery::program {

/// The order of a rank's transfers and computations.
struct TransferRules {
    /// Receives are posted one computation ahead, so that the transfer overlaps it. Otherwise a receive is fused with
    /// the preceding send into one call, and the next computation comes after both.
    bool posts_receives_ahead = true;
    /// Vocabulary parallelism: S (one barrier, interlaced) computes the last stage's gradient, not T.
    bool gradient_from_forward = false;
};

/// Whether a send and the next receive are one fused call. Never with a split backward, whose orders do not pair them:
/// waiting for a send whose receive the neighbour posts later would deadlock.
[[nodiscard]] bool fuses_transfers(Schedule schedule, const models::Implementation& implementation);
/// Whether the host waits for each receive, so that it issues what follows only then.
[[nodiscard]] bool host_waits_for_transfers(Schedule schedule, VocabularyParallel vocabulary,
                                            const models::Implementation& implementation);

}  // namespace orrery::program
