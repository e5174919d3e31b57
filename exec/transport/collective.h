// Splits collectives into messages, as pure functions: no clock, no thread, no MPI. The caller executes the steps of
// each column in order. A step sends at most one message and receives at most one. The next step of the column may
// begin when both are done and finish_step() has combined the received data.
//
//   ring        all-gather, reduce-scatter, and all-reduce as a reduce-scatter followed by an all-gather. Each member
//               sends only to its right neighbour.
//   halving     small all-reduce on 2^k members: recursive halving, then recursive doubling. As many bytes as the ring,
//               in 2 log2(n) messages rather than 2(n-1).
//   swap        small all-reduce on 2 members: one message each way. As many bytes as the ring, half the messages.
//   tree        small broadcast and reduce: a binomial tree with the collective's root, log2(n) messages deep.
//   chain       large broadcast and reduce: a broadcast goes from the root to its right neighbour and on, a reduce the
//               opposite way. A member forwards one column while it receives the next.
//   direct      all-to-all, scatter, gather: the block from member i to member j is one message. Column c holds the
//               blocks that go c+1 places to the right; the last column is each member's own block, a copy.
//   shift       exchange: sends to the right neighbour while it receives from the left one.
//   message     send, recv.
//
// Bytes that the members send, for a message size S (as defined at program::CommKind; for all-to-all: of one member).
// If n does not divide the element count, the ring's blocks differ by one element; only all-reduce, broadcast and
// reduce allow such counts.
//
//   kind             all members        each member
//   all-reduce       2(n-1) S           2(n-1)/n S; uneven blocks: 2S - |block r+1| - |block r+2| (indices mod n)
//   all-gather       (n-1) S            (n-1)/n S
//   reduce-scatter   (n-1) S            (n-1)/n S
//   broadcast        (n-1) S            chain: S, the last 0; tree: S for each child, so ceil(log2 n) S at the root
//   reduce           (n-1) S            S, the root 0
//   scatter          (n-1)/n S          the root all of it
//   gather           (n-1)/n S          S/n, the root 0
//   all-to-all       (n-1) S            (n-1)/n S; with counts: the blocks for the others
//   exchange         n S                S; in a group of one 0, as with every kind
//
// Columns: the n blocks of a ring's buffer are split into pieces; piece c of every block forms column c. Columns
// proceed independently, so that one is combined while another is in flight. A chain splits the whole message into
// columns. Two members exchange the messages of a lane of columns in the same order of (column, step), so that the
// order suffices to match them.
//
// Sums have a fixed order that depends only on n, the root, the element count and the algorithm, which itself is a
// function of these. Every block is summed by one member along one path, so results are reproducible and bitwise equal
// on all members. Each pairwise combination is rounded to the element type (exec/transport/reduce.h). A mean is divided
// by the member that completes the sum of a block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>

#include "core/dtype.h"
#include "sim/program/program.h"

namespace orrery::exec {

// Values without another justification were the fastest in transport_bench on a virtual machine with two cores, with 2
// and 8 ranks.

/// An all-reduce of up to this many bytes uses the algorithm with fewer messages: 1.6 times as fast as the ring at
/// 16-64 KiB on 8 ranks, no slower on 2. At 256 KiB the ring's pipelining is faster on 2 ranks.
inline constexpr std::int64_t kSmallAllReduceBytes = std::int64_t{64} * 1024;
/// Largest piece. Each message needs a handshake, which may have to wait for the progress thread's next poll while the
/// compute thread computes. So fewer, larger pieces overlap better, but need more staging memory.
inline constexpr std::int64_t kLargestPieceBytes = std::int64_t{1024} * 1024;
/// Smallest piece for pipelining. With smaller ones the cost per message outweighs the overlap.
inline constexpr std::int64_t kSmallestPieceBytes = std::int64_t{128} * 1024;
/// Broadcast and reduce of up to this many bytes use the tree: a chain would be a single piece, with n-1 messages one
/// after the other.
inline constexpr std::int64_t kSmallTreeBytes = kSmallestPieceBytes;
/// Columns in flight at once: one is combined while the other is transferred. More do not help in shared memory.
inline constexpr int kLanes = 2;
/// Largest single message of algorithms that do not split into pieces; MPI counts bytes in an int.
inline constexpr std::int64_t kLargestMessageBytes = std::int64_t{1} << 30;

/// One sent and one received message; a message of 0 bytes is omitted. `send_to` and `receive_from` are indices in the
/// group.
struct Step {
    const std::byte* send = nullptr;
    std::int64_t send_bytes = 0;
    int send_to = 0;
    std::byte* receive = nullptr;
    std::int64_t receive_bytes = 0;
    int receive_from = 0;
};

/// Block sizes of collectives with unequal blocks. All-to-all: block j of `in`, send[j], goes to member j; block i of
/// `out`, receive[i], comes from member i; both sides of a pair give the same count. All-gather and reduce-scatter:
/// block i belongs to member i; all members give the counts of all blocks, the same in `send` and `receive`; the room
/// for one block is the same on every member. Blocks are contiguous in the order of the members and may be empty. The
/// counts are read when the operation starts, so that an operation completed before may write them. They must not
/// change while the operation is in flight.
struct BlockCounts {
    const std::int64_t* send = nullptr;     // n * counts_per_member counts; null: the blocks are equal
    const std::int64_t* receive = nullptr;  // the same
    std::int64_t send_limit = 0;            // size of `in` in elements, which the sum of `send` must not exceed
    std::int64_t receive_limit = 0;         // size of `out` in elements, which the sum of `receive` must not exceed
    std::int64_t counts_per_member = 1;     // consecutive counts whose sum is a member's block
    std::int64_t elements_per_count = 1;    // more than 1 if the counts are rows
    const char* advice = "";                // end of the error message if more arrives than `out` has room for
    [[nodiscard]] std::int64_t block(const std::int64_t* of, int member) const {  // elements
        const std::int64_t* first = of + member * counts_per_member;
        return std::accumulate(first, first + counts_per_member, std::int64_t{0}) * elements_per_count;
    }
    [[nodiscard]] std::int64_t blocks_before(const std::int64_t* of, int member) const {
        return std::accumulate(of, of + member * counts_per_member, std::int64_t{0}) * elements_per_count;
    }
};

struct CollectiveArguments {
    program::CommKind kind{};
    program::ReduceOp reduce = program::ReduceOp::sum;
    DType dtype = DType::fp32;
    /// The message size S of the kind (program::CommKind), in elements; not read if `counts` are given. All-gather,
    /// reduce-scatter, scatter, gather and all-to-all split it into n equal blocks.
    std::int64_t elements = 0;
    /// Size for all-gather and gather: elements / n. broadcast, scatter: `elements`, read on the root only. recv:
    /// unused. Otherwise `elements`.
    const void* in = nullptr;
    /// Size for reduce-scatter and scatter: elements / n. reduce, gather: `elements`, written on the root only. send:
    /// unused. Otherwise `elements`.
    void* out = nullptr;
    int members = 1;
    int me = 0;                // index in the group
    int peer = 0;              // send, recv: index of the other side
    int root = 0;              // broadcast, scatter: index of the source; reduce, gather: index of the destination
    bool accumulates = false;  // reduce-scatter: out += the sum over the members, each of the two additions rounded
    bool consumes = false;     // in-place reduce-scatter: zero the other blocks of `in` afterwards
    BlockCounts counts;        // all-to-all, all-gather, reduce-scatter
};

/// In-place operation: all-reduce with in == out; all-gather with in == this member's block of out; reduce-scatter with
/// out == this member's block of in, unless it accumulates (the rest of `in` keeps its contents, unless `consumes`);
/// broadcast and reduce with in == out on the root; scatter with the root's out == its block of in; gather with the
/// root's in == its block of out. In a group of one, exchange and all-to-all may have in == out, too. In all other
/// cases the buffers are disjoint. Buffers that a member does not use may have any value.
class Collective {
  public:
    Collective() = default;
    /// Throws BugError on a negative element count, unequal blocks without counts, an element type without reduction,
    /// an index out of range, a missing buffer, an in-place all-to-all or exchange, and on a mean, `accumulates`,
    /// `consumes` or counts where they are not supported.
    explicit Collective(const CollectiveArguments& arguments);

    /// Starts the operation; call it once, before the first step. Reads the counts. Throws BugError if a count is
    /// negative, if the sent elements exceed the limit, if an all-to-all's two counts of the member's own block differ,
    /// or if its buffers overlap; JobError, with `advice`, if more elements arrive than `out` has room for.
    void begin();

    [[nodiscard]] std::int64_t columns() const { return columns_; }
    /// Steps of each column. With counts, members may have different numbers of steps; a member takes no part in steps
    /// beyond its own.
    [[nodiscard]] int steps() const { return steps_; }
    /// Bytes of scratch memory that a column needs while it is in flight.
    [[nodiscard]] std::int64_t staging_bytes() const { return staging_bytes_; }

    /// Precondition: the column's earlier steps are finished.
    [[nodiscard]] Step step(std::int64_t column, int step, std::byte* staging) const;
    /// Combines the received data. Precondition: both messages of the step are done.
    void finish_step(std::int64_t column, int step, std::byte* staging) const;

  private:
    enum class Algorithm : std::uint8_t {
        copy,
        ring_all_reduce,
        ring_reduce_scatter,
        ring_all_gather,
        halving,
        swap,
        tree,
        chain,
        direct,
        shift,
        message
    };
    struct Range {
        std::int64_t offset = 0, bytes = 0;
    };
    struct Partner {  // in one step of halving-doubling
        bool halving = false;
        int index = 0;
        Range mine, theirs;
    };
    /// This member's part in one step of a tree or chain.
    struct Link {
        bool sends = false, receives = false;
        int index = 0;       // of the other member
        bool first = false;  // reduce: nothing has been combined yet, so this member's part is still in `in`
    };
    void check() const;
    void check_buffers() const;
    [[nodiscard]] Algorithm choose() const;
    [[nodiscard]] std::int64_t bytes() const { return arguments_.elements * element_bytes_; }
    [[nodiscard]] bool has_counts() const { return arguments_.counts.send != nullptr; }
    void cut_into_columns();
    void cut_into_pieces(std::int64_t whole, std::int64_t wanted);
    [[nodiscard]] std::int64_t most_of_a_block() const;
    void count_direct_steps();
    [[nodiscard]] std::int64_t total(const std::int64_t* of, std::int64_t limit) const;
    void begin_all_to_all();
    void check_blocks() const;
    [[noreturn]] void fail_too_much(const char* collective) const;
    [[nodiscard]] int wrap(std::int64_t block) const;
    [[nodiscard]] std::int64_t block_offset(int block) const;
    [[nodiscard]] Range piece(int block, std::int64_t column) const;
    [[nodiscard]] Range chain_piece(std::int64_t column) const;
    [[nodiscard]] Partner partner(int step) const;
    [[nodiscard]] Link tree_link(int step) const;
    [[nodiscard]] Link chain_link(int step) const;
    [[nodiscard]] Range block_for(int member) const;
    [[nodiscard]] Range block_from(int member) const;
    [[nodiscard]] Step ring_step(std::int64_t column, int step, std::byte* staging) const;
    [[nodiscard]] Step halving_step(int step, std::byte* staging) const;
    [[nodiscard]] Step link_step(Link link, Range range, std::byte* staging) const;
    [[nodiscard]] Step direct_step(std::int64_t column, int step) const;
    [[nodiscard]] Step message_step(std::int64_t column) const;
    [[nodiscard]] std::byte* combined_at(Range range, std::byte* staging) const;
    void finish_copy() const;
    void finish_reduce_scatter(std::int64_t column, int step, std::byte* staging) const;
    void clear_others(std::int64_t column) const;
    void complete_sum(Range range) const;
    void finish_link(Link link, Range range, int step, std::byte* staging) const;
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
