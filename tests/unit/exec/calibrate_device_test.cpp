#include "exec/device/calibrate_device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/error.h"
#include "exec/calibrate_gpu.h"
#include "tests/house/json_schema.h"
#include "tests/unit/exec/fake_device.h"

namespace orrery::exec {
namespace {

const std::vector<TimedModel> kTiny{{"tiny-gpt", 16, 2}};
constexpr std::int64_t kPool = std::int64_t{4} << 20;

bool all(models::OpKind /*kind*/) {
    return true;
}

TEST(CalibrateDevice, TimesEveryOperatorThatTheDeviceRuns) {
    FakeDevice device(FakeDevice::Options{});
    const DeviceMeasurements measured = measure_device(device, kTiny, all, kPool);
    std::set<std::string> kinds;
    for (const auto& sample : measured.operators) kinds.insert(sample.op);
    for (const auto& sample : measured.matmuls) kinds.insert(sample.op);
    for (const char* kind : {"attention_backward", "embedding_backward", "layer_norm_forward", "gelu_backward",
                             "cross_entropy_backward", "linear_backward_weight", "adamw"}) {
        EXPECT_TRUE(kinds.contains(kind)) << kind;
    }
    EXPECT_FALSE(kinds.contains("load_tokens"));
    for (const DType type : {DType::fp32, DType::bf16}) {
        EXPECT_GT(measured.best_flops_per_s.at(type), 0) << name_of(type);
        for (const char* kind : {"attention_forward", "attention_backward"}) {
            const auto is_of_kind = [&](const auto& sample) { return sample.op == kind && sample.dtype == type; };
            EXPECT_TRUE(std::ranges::any_of(measured.operators, is_of_kind)) << kind << " in " << name_of(type);
        }
    }
    EXPECT_GT(measured.memory_bytes_per_s, 0);
    EXPECT_GT(measured.host_copy_bytes_per_s, 0);
    EXPECT_GT(measured.launch_s, 0);

    FakeDevice again(FakeDevice::Options{});
    const auto no_attention = [](models::OpKind kind) { return kind != models::OpKind::attention_forward; };
    for (const auto& sample : measure_device(again, kTiny, no_attention, kPool).operators) {
        EXPECT_NE(sample.op, "attention_forward");
    }
}

/// Ends a few copies before the host has queued the calls behind them.
class QuickDevice : public FakeDevice {
  public:
    static constexpr std::int64_t kEnough = 4;
    QuickDevice() : FakeDevice(FakeDevice::Options{}) {}
    void copy(program::Stream stream, void* to, const void* from, std::int64_t bytes) override {
        if (bytes == kPool / 2) most_ = std::max(most_, ++copies_);
        FakeDevice::copy(stream, to, from, bytes);
    }
    bool is_complete(Event event) override { return waiting_ ? FakeDevice::is_complete(event) : copies_ < kEnough; }
    void synchronize(Event event, const std::function<void()>& meanwhile) override {
        waiting_ = true;
        FakeDevice::synchronize(event, meanwhile);
        waiting_ = false;
        copies_ = 0;
    }
    std::int64_t time_ns(Event event) override {
        waiting_ = true;
        const std::int64_t time = FakeDevice::time_ns(event);
        waiting_ = false;
        return time;
    }
    [[nodiscard]] std::int64_t most() const { return most_; }

  private:
    bool waiting_ = false;
    std::int64_t copies_ = 0, most_ = 0;  // queued since the host last waited
};

TEST(CalibrateDevice, QueuesMoreCopiesUntilTheDeviceFindsTheCallsWaiting) {
    QuickDevice device;
    static_cast<void>(measure_device(device, kTiny, all, kPool));
    EXPECT_EQ(device.most(), QuickDevice::kEnough);
}

TEST(CalibrateDevice, EveryModelThatACalibrationTimesCanBeBuilt) {
    FakeDevice device(FakeDevice::Options{});
    const auto none = [](models::OpKind) { return false; };
    EXPECT_FALSE(timed_models().empty());
    EXPECT_NO_THROW(static_cast<void>(measure_device(device, timed_models(), none, kPool)));
}

TEST(CalibrateDevice, WritesAProfileThatCanBeRead) {
    FakeDevice device(FakeDevice::Options{});
    const DeviceMeasurements measured = measure_device(device, kTiny, all, kPool);
    const topologies::ClusterSpec cluster =
        with_measured_device(topologies::load_cluster("dgx-h100", 1), "fake", measured, "2026-01-01");
    EXPECT_EQ(cluster.device.name, "fake");
    EXPECT_EQ(cluster.device.memory_capacity_gib.value, 4);
    EXPECT_EQ(cluster.device.peaks.size(), 2U);  // of fp32 and bf16
    EXPECT_EQ(cluster.device.matmul_samples.size(), measured.matmuls.size());
    EXPECT_FALSE(cluster.device.host_runs_compute);
    const std::string text = topologies::to_json_text(cluster);
    EXPECT_EQ(house::repository_schemas(ORRERY_SOURCE_DIR).check(text), "");
    EXPECT_TRUE(topologies::cluster_from_json_text(text, "again") == cluster);
}

TEST(CalibrateDevice, SmallDeviceAndCpuClusterAreRefused) {
    FakeDevice small(FakeDevice::Options{.memory_bytes = 1 << 20});
    EXPECT_THROW(static_cast<void>(measure_device(small, kTiny, all, kPool)), JobError);
    topologies::ClusterSpec cores;
    cores.name = "cores";
    cores.device.host_runs_compute = true;
    EXPECT_THROW(check_gpu_calibration(cores), InputError);
}

}  // namespace
}  // namespace orrery::exec
