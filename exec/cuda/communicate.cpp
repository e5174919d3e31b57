#include "exec/cuda/communicate.h"

#include <cuda_runtime.h>

#include <string>

#include "core/error.h"
#include "exec/cuda/check.h"
#include "exec/transport/collective.h"
#include "kernels/cuda/flat.h"

namespace orrery::exec {
namespace {

using program::CommKind;

ncclRedOp_t reduction_of(program::ReduceOp reduce) {
    switch (reduce) {
        case program::ReduceOp::sum:
            return ncclSum;
        case program::ReduceOp::max:
            return ncclMax;
        case program::ReduceOp::mean:
            return ncclAvg;
    }
    throw_bug(__FILE__, __LINE__, "ReduceOp", "a reduction that NCCL does not have");
}

/// The elements that a member of a ring sends in an all-reduce: first all blocks but one, to sum them, then all blocks
/// but one that are summed. The blocks differ by at most one element.
std::int64_t all_reduce_elements(std::int64_t elements, std::int64_t members, std::int64_t me) {
    const auto block = [&](std::int64_t at) {
        return elements / members + (at % members < elements % members ? 1 : 0);
    };
    return 2 * elements - block(me + 1) - block(me + 2);
}

/// One operation, with what its parts have in common.
class Communication {
  public:
    Communication(const Nccl* nccl, const NcclGroup& group, kernels::cuda::StreamHandle stream,
                  const Operation& operation)
        : nccl_(nccl),
          group_(group),
          handle_(stream),
          stream_(static_cast<cudaStream_t>(stream.stream)),
          operation_(operation),
          in_(static_cast<const std::byte*>(operation.in)),
          out_(static_cast<std::byte*>(operation.out)),
          element_bytes_(size_of(operation.dtype)),
          bytes_(operation.elements * element_bytes_),
          block_bytes_(bytes_ / group.members) {}

    std::int64_t queue() const;

  private:
    std::int64_t queue_alone() const;
    std::int64_t reduce_scatter() const;
    std::int64_t broadcast_or_reduce() const;
    std::int64_t messages() const;
    bool own_call() const;
    std::int64_t gather_blocks() const;
    std::int64_t reduce_blocks() const;
    [[nodiscard]] Collective collective() const;
    void copy(void* to, const void* from, std::int64_t bytes) const;
    void copy_own_block() const;
    void add_up(const void* sum, std::int64_t elements) const;
    void clear_others() const;
    [[nodiscard]] bool has_counts() const { return operation_.counts.send != nullptr; }
    void check(ncclResult_t result, const char* call) const { nccl_->check(result, call); }

    const Nccl* nccl_;
    const NcclGroup& group_;
    kernels::cuda::StreamHandle handle_;
    cudaStream_t stream_;
    const Operation& operation_;
    const std::byte* in_;
    std::byte* out_;
    std::int64_t element_bytes_, bytes_, block_bytes_;
};

void Communication::copy(void* to, const void* from, std::int64_t bytes) const {
    if (to == from || bytes == 0) return;
    check_cuda(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice, stream_),
               "cudaMemcpyAsync");
}

/// out += sum.
void Communication::add_up(const void* sum, std::int64_t elements) const {
    const DType type = operation_.dtype;
    ORRERY_CHECK(type == DType::fp32 || type == DType::bf16, "sums of other numbers do not accumulate on CUDA");
    kernels::cuda::add(handle_, elements, {sum, type}, {operation_.out, type});
}

/// Zeroes the other ranks' blocks of the input after an in-place reduce-scatter.
void Communication::clear_others() const {
    auto* const whole = const_cast<std::byte*>(in_);
    const auto before = static_cast<std::size_t>(out_ - whole);
    const auto after = static_cast<std::size_t>(bytes_ - block_bytes_) - before;
    check_cuda(cudaMemsetAsync(whole, 0, before, stream_), "cudaMemsetAsync");
    check_cuda(cudaMemsetAsync(out_ + block_bytes_, 0, after, stream_), "cudaMemsetAsync");
}

/// The messages of the operation, which CPU ranks send.
Collective Communication::collective() const {
    const bool between_two = operation_.kind == CommKind::send || operation_.kind == CommKind::recv;
    Collective all(arguments_of(operation_, group_.members, group_.me, between_two ? 1 - group_.me : 0));
    all.begin();
    return all;
}

/// In a group of one.
std::int64_t Communication::queue_alone() const {
    if (operation_.accumulates) {
        add_up(in_, operation_.elements);
    } else if (has_counts()) {
        static_cast<void>(collective());  // for its checks
        copy(out_, in_, operation_.counts.block(operation_.counts.send, 0) * element_bytes_);
    } else {
        copy(out_, in_, bytes_);
    }
    return 0;
}

std::int64_t Communication::reduce_scatter() const {
    // The input of one that accumulates is not needed afterwards, so that this rank's block of it can take the sum.
    auto* const own = const_cast<std::byte*>(in_) + group_.me * block_bytes_;
    void* const out = operation_.accumulates ? own : out_;
    const std::int64_t block = block_bytes_ / element_bytes_;
    check(nccl_->reduce_scatter(in_, out, static_cast<std::size_t>(block), nccl_type_of(operation_.dtype),
                                reduction_of(operation_.reduce), group_.comm, stream_),
          "ncclReduceScatter");
    if (operation_.accumulates) add_up(own, block);
    if (operation_.consumes) clear_others();
    return bytes_ - block_bytes_;
}

std::int64_t Communication::broadcast_or_reduce() const {
    const bool is_root = group_.me == operation_.root;
    if (operation_.kind == CommKind::broadcast) {
        const bool is_last = group_.me == (operation_.root + group_.members - 1) % group_.members;
        check(nccl_->broadcast(is_root ? in_ : out_, out_, static_cast<std::size_t>(bytes_), ncclUint8, operation_.root,
                               group_.comm, stream_),
              "ncclBroadcast");
        return is_last ? 0 : bytes_;
    }
    check(nccl_->reduce(in_, out_, static_cast<std::size_t>(operation_.elements), nccl_type_of(operation_.dtype),
                        reduction_of(operation_.reduce), operation_.root, group_.comm, stream_),
          "ncclReduce");
    return is_root ? 0 : bytes_;
}

/// Blocks of different sizes, one broadcast each.
std::int64_t Communication::gather_blocks() const {
    static_cast<void>(collective());
    const BlockCounts& counts = operation_.counts;
    check(nccl_->group_start(), "ncclGroupStart");
    std::int64_t sent = 0;
    for (int member = 0; member < group_.members; ++member) {
        const std::int64_t block = counts.block(counts.receive, member) * element_bytes_;
        std::byte* const to = out_ + counts.blocks_before(counts.receive, member) * element_bytes_;
        if (block == 0) continue;
        check(nccl_->broadcast(member == group_.me ? in_ : to, to, static_cast<std::size_t>(block), ncclUint8, member,
                               group_.comm, stream_),
              "ncclBroadcast");
        if (member != (group_.me + 1) % group_.members) sent += block;
    }
    check(nccl_->group_end(), "ncclGroupEnd");
    return sent;
}

/// Sums of blocks of different sizes, one reduce each.
std::int64_t Communication::reduce_blocks() const {
    static_cast<void>(collective());
    const BlockCounts& counts = operation_.counts;
    check(nccl_->group_start(), "ncclGroupStart");
    std::int64_t sent = 0;
    for (int member = 0; member < group_.members; ++member) {
        const std::int64_t elements = counts.block(counts.send, member);
        const std::byte* const from = in_ + counts.blocks_before(counts.send, member) * element_bytes_;
        if (elements == 0) continue;
        check(nccl_->reduce(from, out_, static_cast<std::size_t>(elements), nccl_type_of(operation_.dtype),
                            reduction_of(operation_.reduce), member, group_.comm, stream_),
              "ncclReduce");
        if (member != group_.me) sent += elements * element_bytes_;
    }
    check(nccl_->group_end(), "ncclGroupEnd");
    return sent;
}

/// What a member of an all-to-all, scatter or gather sends itself.
void Communication::copy_own_block() const {
    const BlockCounts& counts = operation_.counts;
    const std::int64_t at = group_.me * block_bytes_;
    switch (operation_.kind) {
        case CommKind::all_to_all:
            if (!has_counts()) return copy(out_ + at, in_ + at, block_bytes_);
            return copy(out_ + counts.blocks_before(counts.receive, group_.me) * element_bytes_,
                        in_ + counts.blocks_before(counts.send, group_.me) * element_bytes_,
                        counts.block(counts.send, group_.me) * element_bytes_);
        case CommKind::scatter:
            if (group_.me == operation_.root) copy(out_, in_ + at, block_bytes_);
            return;
        case CommKind::gather:
            if (group_.me == operation_.root) copy(out_ + at, in_, block_bytes_);
            return;
        default:
            return;
    }
}

/// NCCL's own call, if there is one for the kind. It also copies this rank's own block.
bool Communication::own_call() const {
    const auto block = static_cast<std::size_t>(block_bytes_);
    if (has_counts()) return false;
    if (operation_.kind == CommKind::all_to_all && nccl_->all_to_all != nullptr) {
        check(nccl_->all_to_all(in_, out_, block, ncclUint8, group_.comm, stream_), "ncclAlltoAll");
        return true;
    }
    if (operation_.kind == CommKind::scatter && nccl_->scatter != nullptr) {
        check(nccl_->scatter(in_, out_, block, ncclUint8, operation_.root, group_.comm, stream_), "ncclScatter");
        return true;
    }
    if (operation_.kind == CommKind::gather && nccl_->gather != nullptr) {
        check(nccl_->gather(in_, out_, block, ncclUint8, operation_.root, group_.comm, stream_), "ncclGather");
        return true;
    }
    return false;
}

/// Kinds that consist of messages between two members each, which go on at the same time.
std::int64_t Communication::messages() const {
    const Collective all = collective();
    const bool done = own_call();
    if (!done) {
        copy_own_block();
        check(nccl_->group_start(), "ncclGroupStart");
    }
    std::int64_t sent = 0;
    for (std::int64_t column = 0; column < all.columns(); ++column) {
        for (int i = 0; i < all.steps(); ++i) {
            const Step step = all.step(column, i, nullptr);
            sent += step.send_bytes;
            if (done) continue;
            if (step.send_bytes > 0) {
                check(nccl_->send(step.send, static_cast<std::size_t>(step.send_bytes), ncclUint8, step.send_to,
                                  group_.comm, stream_),
                      "ncclSend");
            }
            if (step.receive_bytes > 0) {
                check(nccl_->receive(step.receive, static_cast<std::size_t>(step.receive_bytes), ncclUint8,
                                     step.receive_from, group_.comm, stream_),
                      "ncclRecv");
            }
        }
    }
    if (!done) check(nccl_->group_end(), "ncclGroupEnd");
    return sent;
}

std::int64_t Communication::queue() const {
    if (group_.comm == nullptr) return queue_alone();
    switch (operation_.kind) {
        case CommKind::all_reduce:
            check(nccl_->all_reduce(in_, out_, static_cast<std::size_t>(operation_.elements),
                                    nccl_type_of(operation_.dtype), reduction_of(operation_.reduce), group_.comm,
                                    stream_),
                  "ncclAllReduce");
            return all_reduce_elements(operation_.elements, group_.members, group_.me) * element_bytes_;
        case CommKind::all_gather:
            if (has_counts()) return gather_blocks();
            check(nccl_->all_gather(in_, out_, static_cast<std::size_t>(block_bytes_), ncclUint8, group_.comm, stream_),
                  "ncclAllGather");
            return bytes_ - block_bytes_;
        case CommKind::reduce_scatter:
            return has_counts() ? reduce_blocks() : reduce_scatter();
        case CommKind::broadcast:
        case CommKind::reduce:
            return broadcast_or_reduce();
        case CommKind::all_to_all:
        case CommKind::scatter:
        case CommKind::gather:
        case CommKind::exchange:
        case CommKind::send:
        case CommKind::recv:
            return messages();
    }
    throw_bug(__FILE__, __LINE__, "CommKind", "a communication that NCCL does not have");
}

}  // namespace

std::int64_t queue_communication(const Nccl* nccl, const NcclGroup& group, kernels::cuda::StreamHandle stream,
                                 const Operation& operation) {
    ORRERY_CHECK(!operation.pace.has_value(), "a paced operation on a GPU");
    return Communication(nccl, group, stream, operation).queue();
}

}  // namespace orrery::exec
