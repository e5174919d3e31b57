// How a collective is made of messages, as pure functions: no clock, no thread, no MPI. A caller walks each column
// through its steps; a step is at most one message out and one in, and the next step of the column may begin when both
// are done and finish_step() has combined what came in.
//
//   ring        all-gather, reduce-scatter, and all-reduce as the two after each other. Each member sends only to its
//               right neighbour.
//   halving     small all-reduce on 2^k members: recursive halving, then recursive doubling. Same bytes as the ring in
//               2 log2(n) messages rather than 2(n-1).
//   swap        small all-reduce on 2 members: one message each way. Same bytes, half the messages.
//   tree        small broadcast and reduce: a binomial tree whose root is the collective's, log2(n) messages deep.
//   chain       large broadcast and reduce: from the root to its right neighbour and on, or the other way. A member
//               passes one column on while the next one arrives.
//   direct      all-to-all, scatter, gather: the block that j is to have from i is one message from i to j. Column c
//               holds the blocks that travel c+1 places to the right; the last one is each member's own, a copy.
//   shift       exchange: to the right neighbour, while the left one's arrives.
//   message     send, recv.
//
// Bytes that the members send, for a message size S (program::CommKind; all-to-all: of one member). When n does not
// divide the element count (all-reduce, broadcast, reduce: the others refuse) the ring's blocks differ by one element.
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
// Columns. The n blocks of a ring's buffer are cut into pieces of equal index; piece c of all blocks is column c, which
// travels on its own. So one column is combined while another is on the wire. Chains cut the whole message likewise.
// Two members hand each other messages in the same order of (column, step), so a lane of columns needs no more than
// order to tell its messages apart.
//
// Sums have a fixed order that depends on n, the root, the element count and the algorithm (a function of these) only,
// and every block is summed by one member along one path: results are repeatable and equal in every bit on all members.
// Each pairwise combination is rounded to the element type (exec/transport/reduce.h). A mean is the sum of a block,
// divided by the member that completes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>

#include "core/dtype.h"
#include "sim/program/program.h"

namespace orrery::exec {

// Figures without another reason are the best of transport_bench's tables on a virtual machine of two cores, with 2 and
// 8 ranks.

/// All-reduce up to this many bytes takes the algorithm with fewer messages: 1.6 times as fast as the ring at 16-64 KiB
/// on 8 ranks, no slower on 2. At 256 KiB the ring's pipelining wins on 2 ranks.
inline constexpr std::int64_t kSmallAllReduceBytes = std::int64_t{64} * 1024;
/// Largest piece. Each message costs a handshake, which while the compute thread computes may have to wait for the
/// progress thread's next look: fewer, larger pieces overlap better, at the price of staging memory.
inline constexpr std::int64_t kLargestPieceBytes = std::int64_t{1024} * 1024;
/// Smallest piece that a block is cut into for pipelining; below, the cost per message outweighs the overlap.
inline constexpr std::int64_t kSmallestPieceBytes = std::int64_t{128} * 1024;
/// Broadcast and reduce up to this many bytes take the tree: a chain would be a single piece, n-1 messages one after
/// the other.
inline constexpr std::int64_t kSmallTreeBytes = kSmallestPieceBytes;
/// Columns under way at once: one is combined while the other is on the wire. More bring nothing through shared memory.
inline constexpr int kLanes = 2;
/// Largest single message of what is not cut into pieces; MPI counts bytes in an int.
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

/// Collectives whose blocks differ. All-to-all: block j of `in`, send[j], goes to member j; block i of `out`,
/// receive[i], comes from member i; both sides of a pair state the same count. All-gather and reduce-scatter: block i
/// is member i's, and all members state the counts of all, `send` and `receive` alike; the room for one block is the
/// same on every member. Blocks lie back to back in the order of the members; any may be empty. The counts are first
/// read when the operation starts, so an operation that completes before may write them; from then until it has
/// completed they do not change.
struct BlockCounts {
    const std::int64_t* send = nullptr;     // n * counts_per_member; null: the blocks are equal
    const std::int64_t* receive = nullptr;  // the same
    std::int64_t send_limit = 0;            // elements that `in` and `out` have room for: the counts may not add up to
    std::int64_t receive_limit = 0;         //   more
    std::int64_t counts_per_member = 1;     // neighbouring counts that add up to a member's block
    std::int64_t elements_per_count = 1;    // what is counted may be rows
    const char* advice = "";                // for the message when more arrives than there is room for
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
    /// Of the message size S of the kind (program::CommKind); not read where `counts` says more. All-gather,
    /// reduce-scatter, scatter, gather and all-to-all cut it into n equal blocks.
    std::int64_t elements = 0;
    /// all-gather: elements / n. gather: elements / n. broadcast, scatter: `elements`, read on the root only. recv:
    /// unused. Otherwise `elements`.
    const void* in = nullptr;
    /// reduce-scatter: elements / n. scatter: elements / n. reduce, gather: `elements`, written on the root only. send:
    /// unused. Otherwise `elements`.
    void* out = nullptr;
    int members = 1;
    int me = 0;                // index in the group
    int peer = 0;              // send, recv: index of the other side
    int root = 0;              // broadcast, reduce, scatter, gather: index of the member that has or gets the whole
    bool accumulates = false;  // reduce-scatter: out + (the sum over the members), the two rounded one after the other
    bool consumes = false;     // reduce-scatter in place: what remains of `in` is zero afterwards
    BlockCounts counts;        // all-to-all, all-gather, reduce-scatter
};

/// In place: all-reduce with in == out; all-gather with in == the own block of out; reduce-scatter with out == the own
/// block of in (the rest of `in` keeps its contents, unless it is consumed), unless it accumulates; broadcast and
/// reduce with in == out on the root; scatter with the root's out == its block of in; gather with the root's in == its
/// block of out. A group of one may also exchange, or do an all-to-all, with in == out. Otherwise the buffers are
/// disjoint. Buffers that a member does not use may be anything.
class Collective {
  public:
    Collective() = default;
    /// Throws BugError on a negative count, blocks that are not equal, an element type that has no reduction, an index
    /// out of range, a missing buffer, an all-to-all or exchange in place, a mean, `accumulates`, `consumes` or counts
    /// where they have no meaning, such as both.
    explicit Collective(const CollectiveArguments& arguments);

    /// The operation starts; called once, before the first step. Reads the counts. Throws BugError when one is
    /// negative, when more is sent than the limit, when an all-to-all's two counts of the own block differ, or when its
    /// buffers then overlap; JobError, with the advice, when more arrives than there is room for.
    void begin();

    [[nodiscard]] std::int64_t columns() const { return columns_; }
    /// Steps of each column. With counts, the members' numbers may differ; those beyond a member's own have no message
    /// for it.
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
    struct Partner {  // of one step of halving-doubling
        bool halving = false;
        int index = 0;
        Range mine, theirs;
    };
    /// What this member does in a step of a tree or chain, towards or from the root.
    struct Link {
        bool sends = false, receives = false;
        int index = 0;       // of the other member
        bool first = false;  // reduce: nothing was combined yet, so the own part still lies in `in`
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
    [[noreturn]] void fail_too_much(const char* in_an) const;
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
