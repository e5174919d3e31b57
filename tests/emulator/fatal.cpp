#include "tests/emulator/fatal.h"

#include <cstdio>
#include <cstdlib>

namespace emulated {

void die(const std::string& what, const void* kernel) {
    std::fflush(stdout);
    if (kernel == nullptr) {
        std::fprintf(stderr, "emulated CUDA: %s\n", what.c_str());
    } else {
        std::fprintf(stderr, "emulated CUDA: %s (kernel at %p)\n", what.c_str(), kernel);
    }
    std::fflush(stderr);
    std::abort();
}

}  // namespace emulated
