#include "exec/transport/collective.h"

#include <algorithm>
#include <bit>
#include <string>

#include "core/error.h"
#include "exec/transport/reduce.h"

namespace orrery::exec {

using program::CommKind;
using program::ReduceOp;

namespace {

bool overlap(const std::byte* a, std::int64_t a_bytes, const std::byte* b, std::int64_t b_bytes) {
    const auto a_begin = reinterpret_cast<std::uintptr_t>(a);
    const auto b_begin = reinterpret_cast<std::uintptr_t>(b);
    return a_bytes > 0 && b_bytes > 0 && a_begin < b_begin + static_cast<std::uintptr_t>(b_bytes) &&
           b_begin < a_begin + static_cast<std::uintptr_t>(a_bytes);
}

constexpr std::int64_t pieces_of(std::int64_t bytes, std::int64_t piece) {
    return (bytes + piece - 1) / piece;
}

constexpr bool has_equal_blocks(CommKind kind) {
    return kind == CommKind::all_gather || kind == CommKind::reduce_scatter || kind == CommKind::all_to_all ||
           kind == CommKind::scatter || kind == CommKind::gather;
}

constexpr bool takes_counts(CommKind kind) {
    return kind == CommKind::all_gather || kind == CommKind::reduce_scatter || kind == CommKind::all_to_all;
}

constexpr bool reduces(CommKind kind) {
    return kind == CommKind::all_reduce || kind == CommKind::reduce_scatter || kind == CommKind::reduce;
}

}  // namespace

void Collective::check() const {
    const CollectiveArguments& a = arguments_;
    ORRERY_CHECK(a.elements >= 0, "negative element count " + std::to_string(a.elements));
    ORRERY_CHECK(a.members >= 1 && a.me >= 0 && a.me < a.members,
                 "member " + std::to_string(a.me) + " of " + std::to_string(a.members));
    ORRERY_CHECK(a.root >= 0 && a.root < a.members,
                 "root " + std::to_string(a.root) + " of " + std::to_string(a.members));
    if (a.kind == CommKind::send || a.kind == CommKind::recv) {
        ORRERY_CHECK(a.peer >= 0 && a.peer < a.members && a.peer != a.me, "peer " + std::to_string(a.peer));
    }
    if (has_equal_blocks(a.kind) && !has_counts()) {
        ORRERY_CHECK(a.elements % a.members == 0, std::to_string(a.elements) + " elements over " +
                                                      std::to_string(a.members) + " members: blocks must be equal");
    }
    if (reduces(a.kind)) {
        ORRERY_CHECK(can_combine(a.dtype), "no reduction for " + std::string(name_of(a.dtype)));
    }
    if (a.accumulates) {
        ORRERY_CHECK(a.kind == CommKind::reduce_scatter && a.reduce == ReduceOp::sum,
                     std::string(name_of(a.kind)) + " cannot accumulate");
    }
    if (a.reduce == ReduceOp::mean) {
        const bool whole_numbers = a.dtype == DType::int32 || a.dtype == DType::int64;
        ORRERY_CHECK(a.kind == CommKind::all_reduce && !whole_numbers,
                     "a mean of " + std::string(name_of(a.dtype)) + " by " + std::string(name_of(a.kind)));
    }
    if (a.consumes) {
        ORRERY_CHECK(a.kind == CommKind::reduce_scatter && out_ == in_ + a.me * (bytes() / a.members),
                     std::string(name_of(a.kind)) + " can consume its input only if it is a reduce_scatter in place");
    }
    ORRERY_CHECK(has_counts() == (a.counts.receive != nullptr), "counts of one direction only");
    if (has_counts()) {
        ORRERY_CHECK(takes_counts(a.kind), std::string(name_of(a.kind)) + " takes no counts");
        ORRERY_CHECK(!a.accumulates && !a.consumes, "counts cannot be combined with accumulates or consumes");
        ORRERY_CHECK(a.counts.counts_per_member >= 1 && a.counts.elements_per_count >= 1,
                     "counts_per_member and elements_per_count must be positive");
        ORRERY_CHECK(a.counts.send_limit >= 0 && a.counts.receive_limit >= 0, "negative limit");
        ORRERY_CHECK(a.counts.send_limit == 0 || a.in != nullptr, "no input buffer");
        ORRERY_CHECK(a.counts.receive_limit == 0 || a.out != nullptr, "no output buffer");
    } else if (a.elements > 0) {
        check_buffers();
    }
}

void Collective::check_buffers() const {
    const CollectiveArguments& a = arguments_;
    const bool is_root = a.me == a.root;
    const bool from_root = a.kind == CommKind::broadcast || a.kind == CommKind::scatter;
    const bool to_root = a.kind == CommKind::reduce || a.kind == CommKind::gather;
    const bool reads = a.kind != CommKind::recv && (is_root || !from_root);
    const bool writes = a.kind != CommKind::send && (is_root || !to_root);
    ORRERY_CHECK(!reads || a.in != nullptr, "no input buffer");
    ORRERY_CHECK(!writes || a.out != nullptr, "no output buffer");
    if ((a.kind == CommKind::all_to_all || a.kind == CommKind::exchange) && a.members > 1) {
        ORRERY_CHECK(!overlap(in_, bytes(), out_, bytes()), std::string(name_of(a.kind)) + " in place");
    }
    if (a.accumulates) {
        const std::int64_t block = bytes() / a.members;
        ORRERY_CHECK(!overlap(in_, bytes(), out_, block),
                     "the output of an accumulating reduce_scatter overlaps its input");
    }
}

Collective::Collective(const CollectiveArguments& arguments)
    : arguments_(arguments),
      in_(static_cast<const std::byte*>(arguments.in)),
      out_(static_cast<std::byte*>(arguments.out)),
      element_bytes_(size_of(arguments.dtype)) {
    check();
    algorithm_ = choose();
    cut_into_columns();
}

Collective::Algorithm Collective::choose() const {
    const int n = arguments_.members;
    if (has_counts() && arguments_.kind == CommKind::all_to_all) return Algorithm::direct;
    if (n == 1) return Algorithm::copy;
    const bool small = bytes() <= kSmallAllReduceBytes;
    switch (arguments_.kind) {
        case CommKind::send:
        case CommKind::recv:
            return Algorithm::message;
        case CommKind::all_reduce:
            if (small && n == 2) return Algorithm::swap;
            if (small && std::has_single_bit(static_cast<unsigned>(n))) return Algorithm::halving;
            return Algorithm::ring_all_reduce;
        case CommKind::all_gather:
            return Algorithm::ring_all_gather;
        case CommKind::reduce_scatter:
            return Algorithm::ring_reduce_scatter;
        case CommKind::broadcast:
        case CommKind::reduce:
            return bytes() <= kSmallTreeBytes ? Algorithm::tree : Algorithm::chain;
        case CommKind::all_to_all:
        case CommKind::scatter:
        case CommKind::gather:
            return Algorithm::direct;
        case CommKind::exchange:
            return Algorithm::shift;
    }
    return Algorithm::copy;
}

// Splits a message or block of `whole` bytes into pieces of about the wanted size, within the limits.
void Collective::cut_into_pieces(std::int64_t whole, std::int64_t wanted) {
    constexpr std::int64_t kCacheLine = 64;  // pieces keep the alignment of their buffer
    const std::int64_t rounded = pieces_of(std::max(wanted, kSmallestPieceBytes), kCacheLine) * kCacheLine;
    piece_bytes_ = std::min(rounded, kLargestPieceBytes);
    columns_ = pieces_of(whole, piece_bytes_);
    staging_bytes_ = std::min(piece_bytes_, whole);
}

// The largest possible block. With counts, block sizes are not known yet; the smaller of the two buffers bounds them.
std::int64_t Collective::most_of_a_block() const {
    const BlockCounts& counts = arguments_.counts;
    const std::int64_t n = arguments_.members;
    const std::int64_t elements =
        has_counts() ? std::min(counts.send_limit, counts.receive_limit) : (arguments_.elements + n - 1) / n;
    return elements * element_bytes_;
}

void Collective::cut_into_columns() {
    const int n = arguments_.members;
    const std::int64_t largest_block = most_of_a_block();
    const bool is_reduce = arguments_.kind == CommKind::reduce;
    columns_ = arguments_.elements > 0 || has_counts() ? 1 : 0;
    steps_ = 1;
    switch (algorithm_) {
        case Algorithm::copy:
            break;
        case Algorithm::swap:
            staging_bytes_ = bytes();
            break;
        case Algorithm::halving:
            steps_ = 2 * std::countr_zero(static_cast<unsigned>(n));
            staging_bytes_ = bytes();
            break;
        case Algorithm::tree:
            steps_ = std::bit_width(static_cast<unsigned>(n - 1));
            if (is_reduce) staging_bytes_ = 2 * bytes();  // the partial result, and the data received
            break;
        case Algorithm::chain:
            // A piece passes n - 1 links, so the message is split into twice as many pieces (within the limits).
            cut_into_pieces(bytes(), bytes() / (kLanes * (n - 1)));
            steps_ = n - 1;
            if (!is_reduce) staging_bytes_ = 0;
            break;
        case Algorithm::direct:
            if (columns_ > 0) columns_ = n;
            if (!has_counts()) count_direct_steps();
            break;
        case Algorithm::shift:
        case Algorithm::message:
            columns_ = pieces_of(bytes(), kLargestMessageBytes);
            break;
        case Algorithm::ring_all_reduce:
            cut_into_pieces(largest_block, largest_block / kLanes);
            steps_ = 2 * (n - 1);
            break;
        case Algorithm::ring_reduce_scatter:
            cut_into_pieces(largest_block, largest_block / kLanes);
            steps_ = n - 1;
            staging_bytes_ *= 2;  // one piece is sent while the next is received
            break;
        case Algorithm::ring_all_gather:
            cut_into_pieces(largest_block, largest_block / kLanes);
            steps_ = n - 1;
            staging_bytes_ = 0;
            break;
    }
}

void Collective::count_direct_steps() {
    std::int64_t largest = 1;
    for (int member = 0; member < arguments_.members; ++member) {
        if (member == arguments_.me) continue;
        largest = std::max({largest, block_for(member).bytes, block_from(member).bytes});
    }
    steps_ = static_cast<int>(pieces_of(largest, kLargestMessageBytes));
}

void Collective::begin() {
    if (!has_counts()) return;
    if (arguments_.kind == CommKind::all_to_all) {
        begin_all_to_all();
    } else {
        check_blocks();
    }
}

// The sum of the counts in elements; limit + 1 if it exceeds the limit.
std::int64_t Collective::total(const std::int64_t* of, std::int64_t limit) const {
    const BlockCounts& counts = arguments_.counts;
    std::int64_t left = limit / counts.elements_per_count;
    for (std::int64_t i = 0; i < arguments_.members * counts.counts_per_member; ++i) {
        ORRERY_CHECK(of[i] >= 0, "count " + std::to_string(of[i]));
        if (of[i] > left) return limit + 1;  // checked before adding, so that the sum cannot overflow
        left -= of[i];
    }
    return (limit / counts.elements_per_count - left) * counts.elements_per_count;
}

void Collective::begin_all_to_all() {
    const BlockCounts& counts = arguments_.counts;
    const std::int64_t sent = total(counts.send, counts.send_limit);
    const std::int64_t received = total(counts.receive, counts.receive_limit);
    ORRERY_CHECK(sent <= counts.send_limit, "the counts add up to more than the " + std::to_string(counts.send_limit) +
                                                " elements of the send buffer");
    if (received > counts.receive_limit) fail_too_much("all-to-all");
    const std::int64_t mine = counts.block(counts.send, arguments_.me);
    const std::int64_t to_me = counts.block(counts.receive, arguments_.me);
    ORRERY_CHECK(mine == to_me, "member " + std::to_string(arguments_.me) + " sends itself " + std::to_string(mine) +
                                    " elements and receives " + std::to_string(to_me));
    ORRERY_CHECK((arguments_.members == 1 && in_ == out_) ||
                     !overlap(in_, sent * element_bytes_, out_, received * element_bytes_),
                 "all_to_all in place");
    count_direct_steps();
}

// Checks the sum of all blocks and the size of each block, because pieces are sized for the largest possible block.
void Collective::check_blocks() const {
    const BlockCounts& counts = arguments_.counts;
    const bool gathers = arguments_.kind == CommKind::all_gather;
    const std::int64_t limit = gathers ? counts.receive_limit : counts.send_limit;
    bool fits = total(counts.send, limit) <= limit;
    for (int member = 0; fits && member < arguments_.members; ++member) {
        fits = counts.block(counts.send, member) * element_bytes_ <= most_of_a_block();
    }
    if (fits) return;
    if (gathers) fail_too_much("all-gather");
    throw_bug(__FILE__, __LINE__, "counts", "blocks of a reduce_scatter that exceed its buffers");
}

void Collective::fail_too_much(const char* collective) const {
    throw JobError("an " + std::string(collective) + " receives more than the " +
                   std::to_string(arguments_.counts.receive_limit) + " elements that its buffer holds; " +
                   arguments_.counts.advice);
}

int Collective::wrap(std::int64_t block) const {
    const std::int64_t n = arguments_.members;
    return static_cast<int>(((block % n) + n) % n);
}

std::int64_t Collective::block_offset(int block) const {
    if (has_counts()) return arguments_.counts.blocks_before(arguments_.counts.send, block) * element_bytes_;
    // Split so that the product cannot overflow: blocks differ by at most one element.
    const std::int64_t n = arguments_.members;
    const std::int64_t quotient = arguments_.elements / n;
    const std::int64_t remainder = arguments_.elements % n;
    return (quotient * block + std::min<std::int64_t>(block, remainder)) * element_bytes_;
}

Collective::Range Collective::piece(int block, std::int64_t column) const {
    const std::int64_t begin = block_offset(block);
    const std::int64_t end = block_offset(block + 1);
    const std::int64_t first = std::min(begin + column * piece_bytes_, end);
    return {first, std::min(first + piece_bytes_, end) - first};
}

Collective::Range Collective::chain_piece(std::int64_t column) const {
    const std::int64_t offset = column * piece_bytes_;
    return {offset, std::min(piece_bytes_, bytes() - offset)};
}

}  // namespace orrery::exec
