// Runs every operator that the lowerings emit for dense decoders on the GPU and on the CPU, and expects the same
// outputs for the same inputs.
#include <string>
#include <vector>

#include "tests/gpu/operators_fixture.h"

namespace orrery::exec {
namespace {

using models::Operator;
using models::OpKind;
using program::Stream;

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
