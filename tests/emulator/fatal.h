// How the emulated device ends the process.
#pragma once

#include <string>

namespace emulated {

/// For what CUDA leaves undefined: prints it, with the address of the kernel if one runs, and aborts.
[[noreturn]] void die(const std::string& what, const void* kernel = nullptr);

}  // namespace emulated
