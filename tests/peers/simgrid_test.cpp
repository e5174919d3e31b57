// Compares simulated times with SimGrid's: the same flows on the same fat tree end at the same time.
#include <gtest/gtest.h>

#include <string>

#include "tests/peers/run_worker.h"

namespace orrery::peers {
namespace {

class BesideSimGrid : public testing::Test {
  protected:
    void SetUp() override {
        if (std::string(SIMGRID_WORKER).empty()) GTEST_SKIP() << "libsimgrid-dev is not installed";
    }
    static double simgrid_ps(const std::string& arguments) {
        return run_worker(SIMGRID_WORKER, arguments).simulated_ps;
    }
    static double flow_ps(const std::string& arguments) { return run_worker(FLOW_WORKER, arguments).simulated_ps; }
};

// SimGrid computes in double seconds, so a ring of 126 steps should agree to about 1e-12; the test allows 1e-6. The
// collective as one flow is allowed 2%, since all of its steps take as long as the slowest.
TEST_F(BesideSimGrid, ARingOf64HostsTakesTheSameTime) {
    for (const char* bytes : {"1073741824", "1000003", "640"}) {
        const std::string on_64 = std::string(" 64 ") + bytes;
        const double theirs = simgrid_ps("ring-of-callbacks" + on_64);
        EXPECT_NEAR(flow_ps("ring" + on_64) / theirs, 1, 1e-6) << bytes;
        EXPECT_NEAR(flow_ps("collective" + on_64) / theirs, 1, 0.02) << bytes;
        EXPECT_NEAR(simgrid_ps("ring-of-actors" + on_64) / theirs, 1, 1e-6) << bytes;
    }
}

// Every link of the tree is shared by flows of two different weights.
TEST_F(BesideSimGrid, AnAllToAllOf64HostsTakesTheSameTime) {
    for (const char* bytes : {"1073741824", "6400000"}) {
        const std::string on_64 = std::string("all-to-all 64 ") + bytes;
        EXPECT_NEAR(flow_ps(on_64) / simgrid_ps(on_64), 1, 1e-6) << bytes;
    }
}

}  // namespace
}  // namespace orrery::peers
