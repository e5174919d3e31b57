#include "sim/program/transfer_rules.h"

#include "sim/program/schedule.h"

namespace orrery::program {

bool fuses_transfers(Schedule schedule, const models::Implementation& implementation) {
    const ScheduleRow& row = row_of(schedule);
    if (row.splits_backward()) return false;
    const models::PipelineChoices& choices = implementation.pipeline;
    return !(row.chunks == 1 ? choices.posts_receives_ahead : choices.posts_interleaved_receives_ahead);
}

bool host_waits_for_transfers(Schedule schedule, VocabularyParallel vocabulary,
                              const models::Implementation& implementation) {
    return implementation.host.waits_for_transfers && vocabulary == VocabularyParallel::none &&
           fuses_transfers(schedule, implementation);
}

}  // namespace orrery::program
