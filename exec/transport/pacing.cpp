#include "exec/transport/pacing.h"

#include <string>

#include "core/error.h"

namespace orrery::exec {

void Moments::add(program::Stream stream, const Moment& moment) {
    const std::lock_guard lock(mutex_);
    Latest& latest = streams_[stream];
    ++latest.ended;
    latest.moments.push_back(moment);
    if (latest.moments.size() > kept_) latest.moments.pop_front();
}

Moment Moments::at(program::Stream stream, std::int64_t sequence) const {
    const std::lock_guard lock(mutex_);
    const Latest& latest = streams_[stream];
    const std::int64_t back = latest.ended - sequence;
    const auto kept = static_cast<std::int64_t>(latest.moments.size());
    ORRERY_CHECK(back >= 0 && back < kept,
                 "no moment of operation " + std::to_string(sequence) + " on " + std::string(program::name_of(stream)) +
                     ": " + std::to_string(latest.ended) + " have ended, " + std::to_string(kept) + " are kept");
    return latest.moments[static_cast<std::size_t>(kept - 1 - back)];
}

}  // namespace orrery::exec
