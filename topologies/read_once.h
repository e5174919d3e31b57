// A cache for embedded files that are requested repeatedly: each is parsed once per process.
#pragma once

#include <map>
#include <mutex>
#include <string>

namespace orrery::topologies {

/// Values by name. Safe for concurrent callers. If reading throws, nothing is stored and the next call reads again.
template <typename Value>
class ReadOnce {
  public:
    template <typename Read>
    const Value& get(const std::string& name, Read read) {
        const std::lock_guard lock(mutex_);
        const auto found = values_.find(name);
        return found != values_.end() ? found->second : values_.emplace(name, read()).first->second;
    }

  private:
    std::mutex mutex_;
    std::map<std::string, Value> values_;
};

}  // namespace orrery::topologies
