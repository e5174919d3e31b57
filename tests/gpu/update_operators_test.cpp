// Updates, gradient norm, gradient scaling and copies for updates in host memory, over many ranges.
#include <cstring>
#include <vector>

#include "tests/gpu/bare_operator.h"
#include "tests/gpu/operators_fixture.h"

namespace orrery::exec {
namespace {

using models::OpKind;
using enum DType;

class UpdateOperatorsOnGpu : public OperatorsOnGpu {
  protected:
    static constexpr std::int64_t kElements = 12'000;
    void SetUp() override {
        OperatorsOnGpu::SetUp();
        if (!IsSkipped() && !HasFatalFailure()) device_ = make_cuda_device(0, world_of_one());
        make_ranges();
        context_ = {
            .model = &model_,
            .optimizer =
                {.learning_rate = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1, .step = 3},
            .sgd = {.learning_rate = 1e-2, .momentum = 0.9, .weight_decay = 0.1},
            .clip_norm = 0.5,
            .updates = updates_};
    }
    /// More ranges than a launch takes; one takes several blocks, and some are not aligned, not decayed or not counted.
    void make_ranges() {
        std::int64_t parameter = 3, gradient = 0, state = 8;
        const auto add = [&](std::int64_t elements, std::int64_t gap) {
            const auto count = static_cast<std::int64_t>(updates_.size());
            updates_.push_back({.parameter = parameter,
                                .gradient = gradient,
                                .state = state,
                                .elements = elements,
                                .decays = count % 3 != 0,
                                .counted = count % 5 != 1});
            parameter += elements + gap;
            gradient += elements + 2 * gap;
            state += elements;
        };
        add(5, 0);
        for (std::int64_t i = 0; i < 80; ++i) add(1 + i % 7 * 16, i % 4);
        add(4'801, 1);
        parameter = gradient = state = (state + 511) / 8 * 8;
        add(400, 0);
        add(400, 0);
    }
    void compare(const BareOperator& one) { OperatorsOnGpu::compare(one.body, one.op, context_, *device_); }

    models::ModelSpec model_;
    OperatorContext context_;
    std::unique_ptr<Device> device_;
};

struct Types {
    DType parameter, gradient;
};
const std::vector<Types> kForms{{fp32, fp32}, {bf16, fp32}, {bf16, bf16}};

TEST_F(UpdateOperatorsOnGpu, AdamInAllForms) {
    const std::vector<std::int64_t> all{kElements};
    for (const Types& types : kForms) {
        for (const DType moments : {fp32, bf16}) {
            for (const bool decoupled : {false, true}) {
                for (const bool clipped : {false, true}) {
                    context_.decoupled_decay = decoupled;
                    const std::vector<std::int64_t> norm =
                        clipped ? std::vector<std::int64_t>{2} : std::vector<std::int64_t>{};
                    const std::vector<std::int64_t> master =
                        types.parameter == bf16 ? all : std::vector<std::int64_t>{};
                    compare(BareOperator({.kind = OpKind::adamw})
                                .in(types.gradient, all)
                                .in(fp64, norm)
                                .out(types.parameter, all)
                                .out(moments, all)
                                .out(moments, all)
                                .in_place(0)
                                .out(fp32, master));
                    if (HasFatalFailure()) return;
                }
            }
        }
    }
}

TEST_F(UpdateOperatorsOnGpu, SgdInAllForms) {
    const std::vector<std::int64_t> all{kElements};
    for (const Types& types : kForms) {
        for (const bool clipped : {false, true}) {
            compare(BareOperator({.kind = OpKind::sgd_momentum})
                        .in(types.gradient, all)
                        .in(fp64, clipped ? std::vector<std::int64_t>{2} : std::vector<std::int64_t>{})
                        .out(types.parameter, all)
                        .out(fp32, all)
                        .out(fp32, {})
                        .in_place(0)
                        .out(fp32, types.parameter == bf16 ? all : std::vector<std::int64_t>{}));
        }
    }
}

TEST_F(UpdateOperatorsOnGpu, NormAndScale) {
    for (const DType type : {fp32, bf16}) {
        compare(BareOperator({.kind = OpKind::gradient_norm}).in(type, {kElements}).out(fp64, {2}));
        for (const double clip : {0.5, 100.0}) {
            context_.clip_norm = clip;
            compare(BareOperator({.kind = OpKind::gradient_scale}).in(fp64, {2}).in(type, {kElements}).in_place(1));
        }
    }
    context_.updates = {};
    compare(BareOperator({.kind = OpKind::gradient_norm}).in(fp32, {kElements}).out(fp64, {2}));
}

/// The copies go to and from pinned memory.
TEST_F(UpdateOperatorsOnGpu, CopiesForUpdatesInHostMemory) {
    for (const OpKind kind : {OpKind::copy_to_host, OpKind::copy_from_host}) {
        const BareOperator one =
            BareOperator({.kind = kind, .offloaded = true}).in(bf16, {kElements}).out(bf16, {kElements});
        Slots slots = make_slots(one.body, one.op, *device_, 1);
        const models::SlotIndex on_host = kind == OpKind::copy_to_host ? one.op.out[0] : one.op.in[0];
        std::byte* const pinned = device_->allocate_host(2 * kElements);
        std::memcpy(pinned, slots.host[on_host].data(), 2 * kElements);
        slots.device[on_host] = pinned;
        CpuOperators().run(one.op, bind(one.body, one.op, slots, false), context_);
        const BoundOperator bound{&one.op, bind(one.body, one.op, slots, true)};
        device_->run(program::Stream::compute, bound, context_);
        expect_near(one.body, one.op, one.op.out[0], slots, *device_);
    }
}

}  // namespace
}  // namespace orrery::exec
