// The libFuzzer binary of one target, whose name CMake compiles in. An uncaught exception ends the run as a failure.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {  // NOLINT: libFuzzer's name
    static const orrery::fuzz::Target target = orrery::fuzz::target_named(ORRERY_FUZZ_TARGET);
    (void)orrery::fuzz::run(target, std::string(reinterpret_cast<const char*>(data), size));
    return 0;
}
