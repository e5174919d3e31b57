#include "exec/cuda/updates.h"

#include <cuda_runtime.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "exec/cuda/check.h"
#include "exec/cuda/device_operands.h"
#include "kernels/cuda/optimizer.h"

namespace orrery::exec {
namespace {

namespace update_kernels = kernels::cuda;
using models::OpKind;
using update_kernels::FlatRange;
using update_kernels::StreamHandle;

std::vector<FlatRange> ranges_of(const OperatorContext& context, bool counted_only = false) {
    std::vector<FlatRange> ranges;
    for (const UpdateRange& range : context.updates) {
        if (counted_only && !range.counted) continue;
        ranges.push_back({.parameter = range.parameter,
                          .gradient = range.gradient,
                          .state = range.state,
                          .elements = range.elements,
                          .decays = range.decays});
    }
    return ranges;
}

update_kernels::Clipping clipping_of(const void* norm, const OperatorContext& context) {
    return {static_cast<const double*>(norm), context.clip_norm};
}

}  // namespace

void run_update(StreamHandle stream, const models::Operator& op, const DeviceOperands& o,
                const OperatorContext& context) {
    ORRERY_CHECK(!op.offloaded, "an update in host memory on a GPU");
    ORRERY_CHECK((o.out_type(0) == DType::fp32) == (o.optional_out(4) == nullptr),
                 std::string(name_of(op.kind)) + ": a master copy beside fp32 parameters, or none beside others");
    update_kernels::UpdatedBuffers buffers{.parameters = o.floats_out(0),
                                           .gradient = o.consumed_floats(0),
                                           .m = o.floats_out(1),
                                           .master = o.optional_out(4)};
    const std::vector<FlatRange> ranges = ranges_of(context);
    const update_kernels::Clipping clipping = clipping_of(o.any_in(1), context);
    if (op.kind == OpKind::sgd_momentum) {
        return update_kernels::sgd_momentum(stream, ranges, context.sgd, clipping, buffers);
    }
    buffers.v = o.floats_out(2);
    const auto update = context.decoupled_decay ? update_kernels::adamw : update_kernels::adam;
    update(stream, ranges, context.optimizer, clipping, buffers);
}

void run_offloaded_copy(StreamHandle stream, const models::Operator& op, const DeviceOperands& o,
                        const OperatorContext& context) {
    const bool out = op.kind == OpKind::copy_to_host;
    ORRERY_CHECK(o.in_type(0) == o.out_type(0), "a copy changes no type");
    const std::int64_t element = size_of(o.in_type(0));
    const auto* from = static_cast<const std::byte*>(o.any_in(0));
    auto* to = static_cast<std::byte*>(o.any_out(0));
    std::int64_t source = 0, target = 0, elements = 0;
    const auto flush = [&] {
        if (elements == 0) return;
        check_cuda(cudaMemcpyAsync(to + target * element, from + source * element,
                                   static_cast<std::size_t>(elements * element), cudaMemcpyDefault,
                                   static_cast<cudaStream_t>(stream.stream)),
                   "cudaMemcpyAsync");
    };
    for (const UpdateRange& range : context.updates) {
        const std::int64_t next_source = out ? range.gradient : range.state;
        const std::int64_t next_target = out ? range.state : range.parameter;
        // Ranges that follow each other in both places are one copy.
        if (next_source == source + elements && next_target == target + elements) {
            elements += range.elements;
            continue;
        }
        flush();
        source = next_source;
        target = next_target;
        elements = range.elements;
    }
    flush();
}

void run_gradient_norm(StreamHandle stream, const DeviceOperands& o, const OperatorContext& context, double* partial) {
    update_kernels::gradient_norm(stream, ranges_of(context, true), o.floats_in(0), partial,
                                  static_cast<double*>(o.any_out(0)));
}

void run_gradient_scale(StreamHandle stream, const DeviceOperands& o, const OperatorContext& context) {
    o.must_be_same(1, 0);
    update_kernels::scale(stream, ranges_of(context), clipping_of(o.any_in(0), context), o.floats_out(0));
}

}  // namespace orrery::exec
