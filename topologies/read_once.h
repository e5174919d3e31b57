// What is part of the program and is asked for again and again, read once in a process.
#pragma once

#include <map>
#include <mutex>
#include <string>

namespace orrery::topologies {

/// Values by name; threads may ask at once. A value that could not be read is read anew when asked for again.
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
