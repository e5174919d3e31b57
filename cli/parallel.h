// Runs independent work on all cores, with a progress line on a terminal.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace orrery::cli {

/// Calls work() where a search and in_parallel use so many threads (--threads); 0: one for each core.
[[nodiscard]] int on_threads(int threads, const std::function<int()>& work);

/// Calls work(0) to work(count - 1), each once, on as many threads as the caller's task arena has (oneTBB): the cores
/// of the machine, unless on_threads says otherwise. Results must be stored by index, so that they do not depend on
/// the number of threads. `verb` is shown: "predicting". If calls throw, the exception with the lowest index is
/// rethrown after all calls have finished.
void in_parallel(const std::string& verb, std::size_t count, const std::function<void(std::size_t)>& work);

}  // namespace orrery::cli
