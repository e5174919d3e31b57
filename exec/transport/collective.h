// How a collective is made of messages, as pure functions: no clock, no thread, no MPI. A caller walks each column
// through its steps; a step is at most one message out and one in, and the next step of the column may begin when both
// are done and finish_step() has combined what came in.
//
//   ring        all-gather, reduce-scatter, and all-reduce as the two after each other. Each member sends only to its
//               right neighbour.
//   halving     small all-reduce on 2^k members: recursive halving, then recursive doubling. Same bytes as the ring in
//               2 log2(n) messages rather than 2(n-1).
//   exchange    small all-reduce on 2 members: one message each way. Same bytes, half the messages.
//
// Bytes. Summed over the members, an all-reduce of S bytes sends 2(n-1) S by any of the three, an all-gather or
// reduce-scatter (n-1) S. When n divides the element count each member sends the same: 2(n-1)/n S and (n-1)/n S. When
// it does not (all-reduce only) the ring's blocks differ by one element and member r sends 2S - |block r+1| - |block
// r+2| (indices mod n).
//
// Columns. The n blocks of a buffer are cut into pieces of equal index; piece c of all blocks is column c, which
// travels on its own. So one column is combined while another is on the wire.
//
// Sums have a fixed order that depends on n, the element count and the algorithm (a function of these) only, and every
// block is summed by one member along one path: results are repeatable and equal in every bit on all members.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "sim/program/program.h"

namespace orrery::exec {

// The four figures below are the best of transport_bench's tables on a virtual machine of two cores, with 2 and 8
// ranks.

/// All-reduce up to this many bytes takes the algorithm with fewer messages: 1.6 times as fast as the ring at 16-64 KiB
/// on 8 ranks, no slower on 2. At 256 KiB the ring's pipelining wins on 2 ranks.
inline constexpr std::int64_t kSmallAllReduceBytes = std::int64_t{64} * 1024;
/// Largest piece. Each message costs a handshake, which while the compute thread computes may have to wait for the
/// progress thread's next look: fewer, larger pieces overlap better, at the price of staging memory.
inline constexpr std::int64_t kLargestPieceBytes = std::int64_t{1024} * 1024;
/// Smallest piece that a block is cut into for pipelining; below, the cost per message outweighs the overlap.
inline constexpr std::int64_t kSmallestPieceBytes = std::int64_t{128} * 1024;
/// Columns under way at once: one is combined while the other is on the wire. More bring nothing through shared memory.
inline constexpr int kLanes = 2;
/// Largest single message of a send or receive; MPI counts bytes in an int.
inline constexpr std::int64_t kLargestMessageBytes = std::int64_t{1} << 30;

/// One message out and one in; a message of 0 bytes is not sent. `send_to` and `receive_from` are indices in the group.
struct Step {
    const std::byte* send = nullptr;
    std::int64_t send_bytes = 0;
    int send_to = 0;
    std::byte* receive = nullptr;
    std::int64_t receive_bytes = 0;
    int receive_from = 0;
};

struct CollectiveArguments {
    program::CommKind kind{};
    program::ReduceOp reduce = program::ReduceOp::sum;
    DType dtype = DType::fp32;
    std::int64_t elements = 0;  // as in program::Communication: all-gather and reduce-scatter: total over members
    const void* in = nullptr;   // all-gather: elements / n; otherwise `elements`. Unused by recv.
    void* out = nullptr;        // reduce-scatter: elements / n; otherwise `elements`. Unused by send.
    int members = 1;
    int me = 0;    // index in the group
    int peer = 0;  // send, recv: index of the other side
};

/// In place: all-reduce with in == out; all-gather with in == the own block of out; reduce-scatter with out == the own
/// block of in (the rest of `in` keeps its contents). Otherwise the buffers are disjoint.
class Collective {
  public:
    Collective() = default;
    /// Throws BugError on a kind that is simulated only, a negative count, blocks that are not equal, an element type
    /// that has no reduction, or an index out of range.
    explicit Collective(const CollectiveArguments& arguments);

    [[nodiscard]] std::int64_t columns() const { return columns_; }
    [[nodiscard]] int steps() const { return steps_; }
    /// Bytes of scratch that a column needs while it is under way.
    [[nodiscard]] std::int64_t staging_bytes() const { return staging_bytes_; }

    /// Precondition: the column's earlier steps are finished.
    [[nodiscard]] Step step(std::int64_t column, int step, std::byte* staging) const;
    /// Both messages of the step are done: combines what came in.
    void finish_step(std::int64_t column, int step, std::byte* staging) const;

  private:
    enum class Algorithm : std::uint8_t {
        copy,
        ring_all_reduce,
        ring_reduce_scatter,
        ring_all_gather,
        halving,
        exchange,
        message
    };
    struct Range {
        std::int64_t offset = 0, bytes = 0;
    };
    struct Partner {  // of one step of halving-doubling
        bool halving = false;
        int index = 0;
        Range mine, theirs;
    };
    void check() const;
    void cut_into_columns();
    [[nodiscard]] int wrap(int block) const;
    [[nodiscard]] std::int64_t block_offset(int block) const;
    [[nodiscard]] Range piece(int block, std::int64_t column) const;
    [[nodiscard]] Partner partner(int step) const;
    [[nodiscard]] Step ring_step(std::int64_t column, int step, std::byte* staging) const;
    [[nodiscard]] Step halving_step(int step, std::byte* staging) const;
    [[nodiscard]] Step message_step(std::int64_t column) const;
    void combine_from(Range range, const std::byte* own, const std::byte* received, std::byte* result, int from) const;

    CollectiveArguments arguments_;
    Algorithm algorithm_ = Algorithm::copy;
    const std::byte* in_ = nullptr;
    std::byte* out_ = nullptr;
    std::int64_t element_bytes_ = 0;
    std::int64_t piece_bytes_ = 0;
    std::int64_t columns_ = 0;
    int steps_ = 0;
    std::int64_t staging_bytes_ = 0;
};

}  // namespace orrery::exec
