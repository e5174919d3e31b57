// Runs every operator that the lowerings emit for dense decoders on the GPU and on the CPU, and expects the same
// outputs for the same inputs.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/float16.h"
#include "core/random.h"
#include "exec/cpu/cpu_operators.h"
#include "exec/cuda/cuda_operators.h"
#include "models/operator_table.h"
#include "tests/gpu/gpu.h"
#include "tests/unit/program/sample_plans.h"

namespace orrery::exec {
namespace {

using models::Operator;
using models::OpKind;
using program::Stream;

/// Relative to the largest element of an output. fp32 sums of some thousand products differ by less.
constexpr double kTolerance = 2e-5;
constexpr double kBf16Tolerance = 1.0 / 128;  // two roundings

/// The memory of one operator's slots: in host memory for the CPU, and a copy of it on the device.
struct Slots {
    IndexedVector<models::SlotIndex, std::vector<std::byte>> host;  // empty if the operator does not use the slot
    IndexedVector<models::SlotIndex, std::byte*> device;
};

class OperatorsOnGpu : public OnGpu {
  protected:
    void compare_all(const program::samples::Sample& of) {
        program::Plan sample = program::samples::make_plan(of);
        sample.training.optimizer.clip_norm = 0.5;
        const program::Program program = program::lower(sample);
        const program::Plan& plan = *program.plan;
        const std::unique_ptr<Device> device = make_cuda_device(0, world_of_one());
        updates_ = {
            {.parameter = 0, .gradient = 0, .state = 0, .elements = 300, .decays = true, .counted = true},
            {.parameter = 300, .gradient = 300, .state = 300, .elements = 77, .decays = false, .counted = true}};
        const OperatorContext context{
            .model = &plan.model,
            .loss_scale = 1e-3,
            .optimizer =
                {.learning_rate = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1, .step = 3},
            .clip_norm = 0.5,
            .updates = updates_};
        for (const program::Body& body : program.bodies) {
            for (const Operator& op : body.operators) {
                if (op.kind == OpKind::load_tokens || op.kind == OpKind::load_targets || op.kind == OpKind::host_wait) {
                    continue;
                }
                ASSERT_TRUE(models::has_cuda_kernel(op.kind)) << name_of(op.kind);
                compare(body, op, context, *device);
                seen_.insert(std::string(name_of(op.kind)));
            }
        }
    }

    void compare(const program::Body& body, const Operator& op, const OperatorContext& context, Device& device) {
        Slots slots = make_slots(body, op, device, context.model->vocab);
        CpuOperators cpu;
        cpu.run(op, bind(body, op, slots, false), context);
        const BoundOperator bound{&op, bind(body, op, slots, true)};
        device.run(Stream::compute, bound, context);
        const Device::Event done = device.record(Stream::compute);
        device.synchronize(done);
        device.release(done);
        for (const models::SlotIndex slot : op.out) {
            if (slot != models::kNoSlot) expect_near(body, op, slot, slots, device);
        }
    }

    /// Elements are between 0.1 and 1, so that statistics and sums are positive and nothing overflows.
    Slots make_slots(const program::Body& body, const Operator& op, Device& device, std::int64_t vocab) {
        Slots slots;
        slots.host.resize(body.slots.size());
        slots.device.resize(body.slots.size());
        for (const models::SlotIndex s : used(op)) {
            const program::Slot& slot = body.slots[s];
            const std::int64_t bytes = std::max<std::int64_t>(slot.bytes, 4096);
            if (slot.decl.dtype == DType::fp32) fill(slots.host[s], bytes);
            if (slot.decl.dtype == DType::bf16) fill_bf16(slots.host[s], bytes);
            if (slot.decl.dtype == DType::int32) fill_tokens(slots.host[s], bytes, vocab);
            slots.host[s].resize(static_cast<std::size_t>(bytes));
            slots.device[s] = device.allocate(bytes);
            if (slots.device[s] == nullptr) throw JobError("the GPU has too little free memory");
            device.copy(Stream::compute, slots.device[s], slots.host[s].data(), bytes);
        }
        return slots;
    }

    static std::set<models::SlotIndex> used(const Operator& op) {
        std::set<models::SlotIndex> all(op.in.begin(), op.in.end());
        all.insert(op.out.begin(), op.out.end());
        all.insert(op.scratch);
        all.erase(models::kNoSlot);
        return all;
    }

    void fill(std::vector<std::byte>& memory, std::int64_t bytes) {
        std::vector<float> values(static_cast<std::size_t>(bytes) / sizeof(float));
        for (float& value : values) value = 0.1F + 0.9F * static_cast<float>(random_.uniform(draws_++));
        memory.resize(static_cast<std::size_t>(bytes));
        std::memcpy(memory.data(), values.data(), values.size() * sizeof(float));
    }

    void fill_bf16(std::vector<std::byte>& memory, std::int64_t bytes) {
        std::vector<std::byte> wide;
        fill(wide, 2 * bytes);
        std::vector<std::uint16_t> narrow;
        for (const double value : values_of(wide, DType::fp32)) narrow.push_back(to_bf16(static_cast<float>(value)));
        memory.resize(static_cast<std::size_t>(bytes));
        std::memcpy(memory.data(), narrow.data(), memory.size());
    }

    void fill_tokens(std::vector<std::byte>& memory, std::int64_t bytes, std::int64_t vocab) {
        std::vector<std::int32_t> values(static_cast<std::size_t>(bytes) / sizeof(std::int32_t));
        for (std::int32_t& value : values) {
            value = static_cast<std::int32_t>(random_.uniform(draws_++) * static_cast<double>(vocab));
        }
        memory.resize(static_cast<std::size_t>(bytes));
        std::memcpy(memory.data(), values.data(), values.size() * sizeof(std::int32_t));
    }

    static OperatorPointers bind(const program::Body& body, const Operator& op, Slots& slots, bool on_device) {
        return exec::bind(
            op, [&](models::SlotIndex slot) -> const models::SlotDecl& { return body.slots[slot].decl; },
            [&](models::SlotIndex slot) -> void* {
                return on_device ? static_cast<void*>(slots.device[slot]) : slots.host[slot].data();
            });
    }

    /// Elements as numbers.
    static std::vector<double> values_of(const std::vector<std::byte>& bytes, DType dtype) {
        std::vector<double> values;
        const auto each = [&](auto zero, const auto& value_of) {
            for (std::size_t at = 0; at + sizeof zero <= bytes.size(); at += sizeof zero) {
                std::memcpy(&zero, bytes.data() + at, sizeof zero);
                values.push_back(static_cast<double>(value_of(zero)));
            }
        };
        const auto itself = [](auto value) { return value; };
        switch (dtype) {
            case DType::fp64:
                each(double{}, itself);
                break;
            case DType::fp32:
                each(float{}, itself);
                break;
            case DType::bf16:
                each(std::uint16_t{}, from_bf16);
                break;
            case DType::int32:
                each(std::int32_t{}, itself);
                break;
            case DType::int64:
                each(std::int64_t{}, itself);
                break;
            default:
                each(std::uint8_t{}, itself);
        }
        return values;
    }

    static void expect_near(const std::vector<std::byte>& expected, const std::vector<std::byte>& got, DType dtype,
                            const std::string& where) {
        const std::vector<double> a = values_of(expected, dtype), b = values_of(got, dtype);
        double largest = 1e-3;
        for (const double value : a) largest = std::max(largest, std::abs(value));
        const double tolerance = dtype == DType::bf16 ? kBf16Tolerance : kTolerance;
        for (std::size_t i = 0; i < a.size(); ++i) {
            ASSERT_LE(std::abs(a[i] - b[i]), tolerance * largest)
                << where << ", element " << i << ": " << a[i] << " and " << b[i];
        }
    }

    static void expect_near(const program::Body& body, const Operator& op, models::SlotIndex slot, const Slots& slots,
                            Device& device) {
        std::vector<std::byte> got(slots.host[slot].size());
        device.copy(Stream::compute, got.data(), slots.device[slot], static_cast<std::int64_t>(got.size()));
        const Device::Event done = device.record(Stream::compute);
        device.synchronize(done);
        device.release(done);
        const std::string where = std::string(name_of(op.kind)) + " -> " + body.slots[slot].decl.name;
        expect_near(slots.host[slot], got, body.slots[slot].decl.dtype, where);
    }

    /// Calls body(body, operator) for the first operator of this kind.
    template <typename Use>
    static void with_operator(const program::Program& program, OpKind kind, const Use& use) {
        for (const program::Body& body : program.bodies) {
            for (const Operator& op : body.operators) {
                if (op.kind == kind) return use(body, op);
            }
        }
        FAIL() << "no " << name_of(kind);
    }

    std::vector<UpdateRange> updates_;
    RandomStream random_{1, "operators on the GPU"};
    std::uint64_t draws_ = 0;
    std::set<std::string> seen_;
};

TEST_F(OperatorsOnGpu, Gpt2OperatorsMatchTheCpu) {
    compare_all({.model = "tiny-gpt", .tied = true});
    for (const char* kind : {"embedding_backward", "position_backward", "layer_norm_backward", "attention_backward",
                             "gelu_backward", "linear_backward_weight", "cross_entropy_backward", "adamw"}) {
        EXPECT_TRUE(seen_.contains(kind)) << kind;
    }
}

/// The first rotation makes a table, which another stream may use at once.
TEST_F(OperatorsOnGpu, TwoStreamsMayRotateAtOnce) {
    const program::Program program = program::lower(program::samples::make_plan({.model = "tiny-llama"}));
    const OperatorContext context{.model = &program.plan->model};
    const std::unique_ptr<Device> device = make_cuda_device(0, world_of_one());
    with_operator(program, OpKind::rope_forward, [&](const program::Body& body, const Operator& op) {
        Slots first = make_slots(body, op, *device, context.model->vocab);
        Slots second = make_slots(body, op, *device, context.model->vocab);
        device->synchronize(device->record(Stream::compute));
        const BoundOperator one{&op, bind(body, op, first, true)}, other{&op, bind(body, op, second, true)};
        device->run(Stream::compute, one, context);
        device->run(Stream::side, other, context);
        device->synchronize(device->record(Stream::side));
        CpuOperators().run(op, bind(body, op, second, false), context);
        expect_near(body, op, op.out[0], second, *device);
    });
}

TEST_F(OperatorsOnGpu, ClearFollowsTheTypeOfItsOperand) {
    const models::ModelSpec model;
    const OperatorContext context{.model = &model};
    const std::unique_ptr<Device> device = make_cuda_device(0, world_of_one());
    std::vector<double> values(8, 1.0);
    const auto bytes = static_cast<std::int64_t>(values.size() * sizeof(double));
    std::byte* const memory = device->allocate(bytes);
    device->copy(Stream::compute, memory, values.data(), bytes);
    const Operator op{.kind = OpKind::clear, .elements = 8};
    BoundOperator bound{&op, {}};
    bound.at.out[0] = memory;
    bound.at.out_dtype[0] = DType::fp64;
    device->run(Stream::compute, bound, context);
    device->copy(Stream::compute, values.data(), memory, bytes);
    device->synchronize(device->record(Stream::compute));
    EXPECT_EQ(values, std::vector<double>(8, 0.0));
}

/// A rank may have no parameters, for instance.
TEST_F(OperatorsOnGpu, NoBytesAreMemoryToo) {
    const std::unique_ptr<Device> device = make_cuda_device(0, world_of_one());
    EXPECT_NE(device->allocate(0), nullptr);
    EXPECT_NE(device->allocate_host(0), nullptr);
}

TEST_F(OperatorsOnGpu, LlamaOperatorsMatchTheCpu) {
    compare_all({.model = "tiny-llama", .tied = true});
    for (const char* kind : {"rms_norm_backward", "rope_backward", "attention_backward", "swiglu_backward"}) {
        EXPECT_TRUE(seen_.contains(kind)) << kind;
    }
}

}  // namespace
}  // namespace orrery::exec
