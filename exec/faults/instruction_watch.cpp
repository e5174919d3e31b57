#include "exec/faults/instruction_watch.h"

#include <string>

#include "exec/faults/place.h"

namespace orrery::exec {

bool InstructionWatch::strike_if_due(std::int64_t step, InstructionPlace place) {
    if (fault_->at == kAtInit || step != fault_->step) return false;
    const std::string key = program::key_of(program_, rank_class_, span_at(place));
    if (key.find(fault_->at) == std::string::npos) return false;
    const Fault fault = *fault_;
    fault_.reset();
    return strike(fault);
}

}  // namespace orrery::exec
