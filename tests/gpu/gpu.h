// Common fixture of tests that need a GPU.
#pragma once

#include <gtest/gtest.h>

#include "exec/cuda/cuda_device.h"
#include "exec/transport/transport.h"

namespace orrery::exec {

/// A process can create only one Transport, so all tests share it.
inline Transport& world_of_one() {
    static Transport transport;
    return transport;
}

/// Skips its tests if there is no GPU. Fails them if CUDA cannot use what there is.
class OnGpu : public testing::Test {
  protected:
    void SetUp() override {
        const GpuSearch found = find_gpus();
        ASSERT_EQ(found.failure, "");
        if (found.count == 0) GTEST_SKIP() << "no NVIDIA GPU, or no driver for it";
    }
};

}  // namespace orrery::exec
