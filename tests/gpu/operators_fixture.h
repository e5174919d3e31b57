// Fixture of the tests that run operators on the GPU and on the CPU with the same inputs.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
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
#include "tests/gpu/special_inputs.h"
#include "tests/unit/program/sample_plans.h"

namespace orrery::exec {

/// Relative to the largest element of an output. fp32 sums of some thousand products differ by less.
inline constexpr double kTolerance = 2e-5;
inline constexpr double kBf16Tolerance = 1.0 / 128;  // two roundings

/// The memory of one operator's slots: in host memory for the CPU, and a copy of it on the device.
struct Slots {
    IndexedVector<models::SlotIndex, std::vector<std::byte>> host;  // empty if the operator does not use the slot
    IndexedVector<models::SlotIndex, std::byte*> device;
};

class OperatorsOnGpu : public OnGpu {
  protected:
    /// Compares each operator of the plan, on several ranks; `kinds`: only these, unless there are none.
    void compare_all(const program::samples::Sample& of, const std::set<models::OpKind>& kinds = {}) {
        program::Plan sample = program::samples::make_plan(of);
        sample.training.optimizer.clip_norm = 0.5;
        const program::Program program = program::lower(sample);
        for (const std::int64_t tp_index : std::set<std::int64_t>{0, of.tp - 1}) {
            for (std::int64_t cp_index = 0; cp_index < of.cp; ++cp_index) {
                compare_all(program, kinds, context_of(*program.plan, tp_index, cp_index));
            }
        }
    }

    /// Compares each operator once, however many layers have one like it.
    void compare_all(const program::Program& program, const std::set<models::OpKind>& kinds,
                     const OperatorContext& context) {
        std::vector<models::Operator> compared;
        for (const program::Body& body : program.bodies) {
            for (const models::Operator& op : body.operators) {
                const bool on_host = op.kind == models::OpKind::load_tokens ||
                                     op.kind == models::OpKind::load_targets || op.kind == models::OpKind::host_wait;
                if (on_host || (!kinds.empty() && !kinds.contains(op.kind))) continue;
                const models::Operator alike = without_slots(op);
                if (std::find(compared.begin(), compared.end(), alike) != compared.end()) continue;
                compared.push_back(alike);
                ASSERT_TRUE(models::has_kernels(op.kind)) << name_of(op.kind);
                compare(body, op, context, *make_cuda_device(0, world_of_one()));
                seen_.insert(std::string(name_of(op.kind)));
            }
        }
    }

    OperatorContext context_of(const program::Plan& plan, std::int64_t tp_index, std::int64_t cp_index) {
        updates_ = {
            {.parameter = 0, .gradient = 0, .state = 0, .elements = 300, .decays = true, .counted = true},
            {.parameter = 300, .gradient = 300, .state = 300, .elements = 77, .decays = false, .counted = true}};
        samples_.clear();
        for (std::int64_t i = 0; i < plan.training.micro_batch_size; ++i) samples_.push_back(kFirstSample + i);
        return {
            .model = &plan.model,
            .tp_index = tp_index,
            .vocabulary_index = tp_index,
            .cp = plan.parallelism.cp,
            .cp_index = cp_index,
            .loss_scale = 1e-3,
            .samples = samples_,
            .dropout = plan.training.dropout,
            .seed = 99,
            .layer = 2,
            .optimizer =
                {.learning_rate = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1, .step = 3},
            .clip_norm = 0.5,
            .updates = updates_};
    }

    /// With the first slot in place of every slot.
    static models::Operator without_slots(models::Operator op) {
        for (models::Operands* operands : {&op.in, &op.out}) {
            for (std::size_t i = 0; i < models::Operands::size(); ++i) {
                if ((*operands)[i] != models::kNoSlot) (*operands)[i] = models::SlotIndex(0);
            }
        }
        op.scratch = models::kNoSlot;
        return op;
    }

    void compare(const program::Body& body, const models::Operator& op, const OperatorContext& context,
                 Device& device) {
        Slots slots = make_slots(body, op, device, context.model->vocab);
        CpuOperators cpu;
        cpu.run(op, bind(body, op, slots, false), context);
        const BoundOperator bound{&op, bind(body, op, slots, true)};
        device.run(program::Stream::compute, bound, context);
        const Device::Event done = device.record(program::Stream::compute);
        device.synchronize(done);
        device.release(done);
        for (const models::SlotIndex slot : op.out) {
            if (slot != models::kNoSlot) expect_near(body, op, slot, slots, device);
        }
    }

    Slots make_slots(const program::Body& body, const models::Operator& op, Device& device, std::int64_t vocab) {
        // Sums of exponentials and squares are positive.
        const bool is_update = models::row_of(op.kind).work == models::WorkClass::optimizer;
        Slots slots;
        slots.host.resize(body.slots.size());
        slots.device.resize(body.slots.size());
        for (const models::SlotIndex s : used(op)) {
            const program::Slot& slot = body.slots[s];
            is_positive_ =
                (is_update && s == op.out[2]) || (op.kind == models::OpKind::cross_entropy_loss && s == op.in[1]);
            const std::int64_t bytes = std::max<std::int64_t>(slot.bytes, 4096);
            if (slot.decl.dtype == DType::fp32) fill(slots.host[s], bytes);
            if (slot.decl.dtype == DType::bf16) fill_bf16(slots.host[s], bytes);
            if (slot.decl.dtype == DType::int32) fill_tokens(slots.host[s], bytes, vocab);
            slots.host[s].resize(static_cast<std::size_t>(bytes));
            if (slot.decl.dtype == DType::uint8) fill_mask(slots.host[s]);
            // Of queries that attended to no key.
            if (op.kind == models::OpKind::attention_merge && s == op.in[1]) forget(slots.host[s], 3);
            if (op.kind == models::OpKind::attention_merge && s == op.in[3]) forget(slots.host[s], 5);
        }
        special_.write(body, op, slots.host);
        for (const models::SlotIndex s : used(op)) {
            const auto bytes = static_cast<std::int64_t>(slots.host[s].size());
            slots.device[s] = device.allocate(bytes);
            if (slots.device[s] == nullptr) throw JobError("the GPU has too little free memory");
            device.copy(program::Stream::compute, slots.device[s], slots.host[s].data(), bytes);
        }
        return slots;
    }

    void fill_mask(std::vector<std::byte>& memory) {
        for (std::byte& element : memory) element = std::byte{random_.uniform(draws_++) < 0.5};
    }

    /// Makes every `step`-th element the logarithm of 0.
    static void forget(std::vector<std::byte>& memory, std::size_t step) {
        const float nothing = -std::numeric_limits<float>::infinity();
        for (std::size_t at = 0; at + sizeof nothing <= memory.size(); at += step * sizeof nothing) {
            std::memcpy(memory.data() + at, &nothing, sizeof nothing);
        }
    }

    static std::set<models::SlotIndex> used(const models::Operator& op) {
        std::set<models::SlotIndex> all(op.in.begin(), op.in.end());
        all.insert(op.out.begin(), op.out.end());
        all.insert(op.scratch);
        all.erase(models::kNoSlot);
        return all;
    }

    /// Magnitudes are between 0.1 and 1, so that nothing overflows.
    void fill(std::vector<std::byte>& memory, std::int64_t bytes) {
        std::vector<float> values(static_cast<std::size_t>(bytes) / sizeof(float));
        for (float& value : values) {
            value = 0.1F + 0.9F * static_cast<float>(random_.uniform(draws_++));
            if (!is_positive_ && random_.uniform(draws_++) < 0.5) value = -value;
        }
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

    static OperatorPointers bind(const program::Body& body, const models::Operator& op, Slots& slots, bool on_device) {
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
        for (const double value : a) {
            if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
        }
        const double tolerance = dtype == DType::bf16 ? kBf16Tolerance : kTolerance;
        for (std::size_t i = 0; i < a.size(); ++i) {
            if (std::isinf(a[i]) && a[i] == b[i]) continue;
            if (std::abs(a[i] - b[i]) <= tolerance * largest) continue;
            ADD_FAILURE() << where << ", element " << i << ": " << a[i] << " and " << b[i];
            return;  // the next operator
        }
    }

    static void expect_near(const program::Body& body, const models::Operator& op, models::SlotIndex slot,
                            const Slots& slots, Device& device) {
        std::vector<std::byte> got(slots.host[slot].size());
        device.copy(program::Stream::compute, got.data(), slots.device[slot], static_cast<std::int64_t>(got.size()));
        const Device::Event done = device.record(program::Stream::compute);
        device.synchronize(done);
        device.release(done);
        const std::string where = std::string(name_of(op.kind)) + " -> " + body.slots[slot].decl.name;
        expect_near(slots.host[slot], got, body.slots[slot].decl.dtype, where);
    }

    /// Calls body(body, operator) for the first operator of this kind.
    template <typename Use>
    static void with_operator(const program::Program& program, models::OpKind kind, const Use& use) {
        for (const program::Body& body : program.bodies) {
            for (const models::Operator& op : body.operators) {
                if (op.kind == kind) return use(body, op);
            }
        }
        FAIL() << "no " << name_of(kind);
    }

    static constexpr std::int64_t kFirstSample = 5;
    std::vector<UpdateRange> updates_;
    std::vector<std::int64_t> samples_;
    bool is_positive_ = true;  // what fill() writes
    RandomStream random_{1, "operators on the GPU"};
    std::uint64_t draws_ = 0;
    SpecialInputs special_;
    std::set<std::string> seen_;
};

}  // namespace orrery::exec
