// Work of which no part needs another, on all cores, with a line on a terminal that says how far it is.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace orrery::cli {

/// Calls work(0) to work(count - 1), each once, on as many threads as the machine has cores; where results are kept by
/// their index they do not depend on it. `verb` is shown: "predicting". An exception of the lowest index that threw one
/// goes on from here after all the others are done.
void in_parallel(const std::string& verb, std::size_t count, const std::function<void(std::size_t)>& work);

}  // namespace orrery::cli
