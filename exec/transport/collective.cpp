#include "exec/transport/collective.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
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
                     std::string(name_of(a.kind)) + " cannot consume what it reads");
    }
    ORRERY_CHECK(has_counts() == (a.counts.receive != nullptr), "counts of one direction only");
    if (has_counts()) {
        ORRERY_CHECK(takes_counts(a.kind), std::string(name_of(a.kind)) + " takes no counts");
        ORRERY_CHECK(!a.accumulates && !a.consumes, "blocks that differ, and a sum that is added or leaves zeros");
        ORRERY_CHECK(a.counts.counts_per_member >= 1 && a.counts.elements_per_count >= 1, "counts of nothing");
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
        ORRERY_CHECK(!overlap(in_, bytes(), out_, block), "a sum cannot be added to what it is made of");
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

// Pieces of about the wanted size, within the limits.
void Collective::cut_into_pieces(std::int64_t whole, std::int64_t wanted) {
    constexpr std::int64_t kCacheLine = 64;  // pieces keep the alignment of what they are cut from
    const std::int64_t rounded = pieces_of(std::max(wanted, kSmallestPieceBytes), kCacheLine) * kCacheLine;
    piece_bytes_ = std::min(rounded, kLargestPieceBytes);
    columns_ = pieces_of(whole, piece_bytes_);
    staging_bytes_ = std::min(piece_bytes_, whole);
}

// Where counts will say how much of a block there is, the most that there may be: the smaller of the two buffers.
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
            if (is_reduce) staging_bytes_ = 2 * bytes();  // what is combined so far, and what arrives
            break;
        case Algorithm::chain:
            // The last member waits for n - 2 pieces to pass before its first: a message is at least twice as many.
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
            staging_bytes_ *= 2;  // one travels on while the next arrives
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

// What the counts add up to, in elements; more than the limit where that is exceeded.
std::int64_t Collective::total(const std::int64_t* of, std::int64_t limit) const {
    const BlockCounts& counts = arguments_.counts;
    std::int64_t left = limit / counts.elements_per_count;
    for (std::int64_t i = 0; i < arguments_.members * counts.counts_per_member; ++i) {
        ORRERY_CHECK(of[i] >= 0, "count " + std::to_string(of[i]));
        // Against a sum that overflows.
        if (of[i] > left) return limit + 1;
        left -= of[i];
    }
    return (limit / counts.elements_per_count - left) * counts.elements_per_count;
}

void Collective::begin_all_to_all() {
    const BlockCounts& counts = arguments_.counts;
    const std::int64_t sent = total(counts.send, counts.send_limit);
    const std::int64_t received = total(counts.receive, counts.receive_limit);
    ORRERY_CHECK(sent <= counts.send_limit,
                 "counts add up to more than the " + std::to_string(counts.send_limit) + " elements there are to send");
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

// All blocks together, and each by itself: the pieces are cut for the largest that there may be.
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
    throw_bug(__FILE__, __LINE__, "counts", "blocks of a reduce_scatter for which there is no room");
}

void Collective::fail_too_much(const char* in_an) const {
    throw JobError("more arrives in an " + std::string(in_an) + " than the " +
                   std::to_string(arguments_.counts.receive_limit) + " elements there is room for; " +
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

Step Collective::ring_step(std::int64_t column, int step, std::byte* staging) const {
    const int n = arguments_.members;
    const int me = arguments_.me;
    Step result;
    result.send_to = wrap(me + 1);
    result.receive_from = wrap(me - 1);
    Range send;
    Range receive;
    if (algorithm_ == Algorithm::ring_all_gather) {
        send = piece(wrap(me - step), column);
        receive = piece(wrap(me - step - 1), column);
        // The own block leaves from `in`, whose only block it is.
        result.send = step == 0 ? in_ + (send.offset - block_offset(me)) : out_ + send.offset;
        result.receive = out_ + receive.offset;
    } else if (algorithm_ == Algorithm::ring_reduce_scatter) {
        send = piece(wrap(me - step - 1), column);
        receive = piece(wrap(me - step - 2), column);
        std::byte* const halves[2] = {staging, staging + staging_bytes_ / 2};
        result.send = step == 0 ? in_ + send.offset : halves[(step - 1) % 2];
        result.receive = halves[step % 2];
    } else if (step < n - 1) {
        send = piece(wrap(me - step), column);
        receive = piece(wrap(me - step - 1), column);
        result.send = (step == 0 ? in_ : out_) + send.offset;
        result.receive = staging;
    } else {
        const int gather_step = step - (n - 1);
        send = piece(wrap(me + 1 - gather_step), column);
        receive = piece(wrap(me - gather_step), column);
        result.send = out_ + send.offset;
        result.receive = out_ + receive.offset;
    }
    result.send_bytes = send.bytes;
    result.receive_bytes = receive.bytes;
    return result;
}

Collective::Partner Collective::partner(int step) const {
    const int levels = steps_ / 2;
    Partner result;
    result.halving = step < levels;
    const int distance = result.halving ? arguments_.members >> (step + 1) : 1 << (step - levels);
    result.index = arguments_.me ^ distance;
    const auto blocks_from = [&](int member) {
        const int first = member & ~(distance - 1);
        const std::int64_t offset = block_offset(first);
        return Range{offset, block_offset(first + distance) - offset};
    };
    result.mine = blocks_from(arguments_.me);
    result.theirs = blocks_from(result.index);
    return result;
}

Step Collective::halving_step(int step, std::byte* staging) const {
    const Partner with = partner(step);
    Step result;
    result.send_to = with.index;
    result.receive_from = with.index;
    if (with.halving) {  // give away their half of what I hold, take my half of what they hold
        result.send = (step == 0 ? in_ : out_) + with.theirs.offset;
        result.send_bytes = with.theirs.bytes;
        result.receive = staging;
        result.receive_bytes = with.mine.bytes;
    } else {
        result.send = out_ + with.mine.offset;
        result.send_bytes = with.mine.bytes;
        result.receive = out_ + with.theirs.offset;
        result.receive_bytes = with.theirs.bytes;
    }
    return result;
}

// Places count from the root to the right. A broadcast's step s doubles the places that have the message: place p hands
// it to p + 2^s. A reduce runs backwards through the same tree.
Collective::Link Collective::tree_link(int step) const {
    const bool is_reduce = arguments_.kind == CommKind::reduce;
    const std::int64_t n = arguments_.members;
    const std::int64_t place = wrap(std::int64_t{arguments_.me} - arguments_.root);
    const std::int64_t distance = std::int64_t{1} << (is_reduce ? steps_ - 1 - step : step);
    const bool has_child = place < distance && place + distance < n;
    const bool has_parent = distance <= place && place < 2 * distance;
    Link link;
    link.sends = is_reduce ? has_parent : has_child;
    link.receives = is_reduce ? has_child : has_parent;
    link.index = wrap(arguments_.root + (has_child ? place + distance : place - distance));
    link.first = place + 2 * distance >= n;  // the child of the step before would be beyond the last place
    return link;
}

Collective::Link Collective::chain_link(int step) const {
    const bool is_reduce = arguments_.kind == CommKind::reduce;
    const int n = arguments_.members;
    const int place = wrap(std::int64_t{arguments_.me} - arguments_.root);
    // The message stands at this place before the step, and one further on after it.
    const int from = is_reduce ? n - 1 - step : step;
    const int to = is_reduce ? from - 1 : from + 1;
    Link link;
    link.sends = place == from;
    link.receives = place == to;
    link.index = wrap(std::int64_t{arguments_.root} + (link.sends ? to : from));
    link.first = !link.sends || step == 0;
    return link;
}

// Where a reduce keeps what this member has combined.
std::byte* Collective::combined_at(Range range, std::byte* staging) const {
    if (arguments_.me == arguments_.root) return out_ + range.offset;
    return algorithm_ == Algorithm::tree ? staging + bytes() : staging;
}

Step Collective::link_step(Link link, Range range, std::byte* staging) const {
    Step result;
    result.send_to = link.index;
    result.receive_from = link.index;
    if (link.sends) {
        result.send_bytes = range.bytes;
        if (arguments_.kind == CommKind::reduce) {
            result.send = link.first ? in_ + range.offset : combined_at(range, staging);
        } else {
            result.send = (arguments_.me == arguments_.root ? in_ : out_) + range.offset;
        }
    }
    if (link.receives) {
        result.receive_bytes = range.bytes;
        result.receive = arguments_.kind == CommKind::reduce ? staging : out_ + range.offset;
    }
    return result;
}

// The block of `in` that the member is to have.
Collective::Range Collective::block_for(int member) const {
    const CollectiveArguments& a = arguments_;
    if (has_counts()) {
        return {a.counts.blocks_before(a.counts.send, member) * element_bytes_,
                a.counts.block(a.counts.send, member) * element_bytes_};
    }
    const std::int64_t block = bytes() / a.members;
    if (a.kind == CommKind::gather) return {0, member == a.root ? block : 0};
    if (a.kind == CommKind::scatter && a.me != a.root) return {};
    return {member * block, block};
}

// Where in `out` the member's block belongs.
Collective::Range Collective::block_from(int member) const {
    const CollectiveArguments& a = arguments_;
    if (has_counts()) {
        return {a.counts.blocks_before(a.counts.receive, member) * element_bytes_,
                a.counts.block(a.counts.receive, member) * element_bytes_};
    }
    const std::int64_t block = bytes() / a.members;
    if (a.kind == CommKind::scatter) return {0, member == a.root ? block : 0};
    if (a.kind == CommKind::gather && a.me != a.root) return {};
    return {member * block, block};
}

Step Collective::direct_step(std::int64_t column, int step) const {
    Step result;
    result.send_to = wrap(arguments_.me + column + 1);
    result.receive_from = wrap(arguments_.me - column - 1);
    if (result.send_to == arguments_.me) return result;  // the last column: finish_step() copies
    const std::int64_t done = step * kLargestMessageBytes;
    const Range send = block_for(result.send_to);
    const Range receive = block_from(result.receive_from);
    result.send_bytes = std::clamp(send.bytes - done, std::int64_t{0}, kLargestMessageBytes);
    result.receive_bytes = std::clamp(receive.bytes - done, std::int64_t{0}, kLargestMessageBytes);
    if (result.send_bytes > 0) result.send = in_ + send.offset + done;
    if (result.receive_bytes > 0) result.receive = out_ + receive.offset + done;
    return result;
}

// Of a send, a receive, or an exchange, which is both.
Step Collective::message_step(std::int64_t column) const {
    const CommKind kind = arguments_.kind;
    const std::int64_t offset = column * kLargestMessageBytes;
    const std::int64_t length = std::min(kLargestMessageBytes, bytes() - offset);
    const bool is_exchange = kind == CommKind::exchange;
    Step result;
    result.send_to = is_exchange ? wrap(arguments_.me + 1) : arguments_.peer;
    result.receive_from = is_exchange ? wrap(arguments_.me - 1) : arguments_.peer;
    if (kind != CommKind::recv) {
        result.send = in_ + offset;
        result.send_bytes = length;
    }
    if (kind != CommKind::send) {
        result.receive = out_ + offset;
        result.receive_bytes = length;
    }
    return result;
}

Step Collective::step(std::int64_t column, int step, std::byte* staging) const {
    switch (algorithm_) {
        case Algorithm::copy:
            return {};
        case Algorithm::message:
        case Algorithm::shift:
            return message_step(column);
        case Algorithm::swap: {
            const int other = 1 - arguments_.me;
            return {in_, bytes(), other, staging, bytes(), other};
        }
        case Algorithm::halving:
            return halving_step(step, staging);
        case Algorithm::tree:
            return link_step(tree_link(step), {0, bytes()}, staging);
        case Algorithm::chain:
            return link_step(chain_link(step), chain_piece(column), staging);
        case Algorithm::direct:
            return direct_step(column, step);
        case Algorithm::ring_all_reduce:
        case Algorithm::ring_reduce_scatter:
        case Algorithm::ring_all_gather:
            return ring_step(column, step, staging);
    }
    return {};
}

void Collective::combine_from(Range range, const std::byte* own, const std::byte* received, std::byte* result,
                              int from) const {
    // The lower member stands on the left, so that both sides of an exchange compute the same bits.
    const bool own_left = arguments_.me < from;
    combine(arguments_.reduce, arguments_.dtype, own_left ? own : received, own_left ? received : own, result,
            range.bytes / element_bytes_);
}

void Collective::finish_copy() const {
    if (arguments_.accumulates) {
        combine(ReduceOp::sum, arguments_.dtype, out_, in_, out_, arguments_.elements);
    } else if (in_ != out_) {
        std::memcpy(out_, in_, static_cast<std::size_t>(has_counts() ? block_offset(1) : bytes()));
    }
}

void Collective::finish_reduce_scatter(std::int64_t column, int step, std::byte* staging) const {
    const int me = arguments_.me;
    const Range range = piece(wrap(me - step - 2), column);
    std::byte* const received = staging + (step % 2) * (staging_bytes_ / 2);
    const bool last = step == arguments_.members - 2;
    std::byte* const place = last ? out_ + (range.offset - block_offset(me)) : nullptr;
    const bool is_result = last && !arguments_.accumulates;
    combine_from(range, in_ + range.offset, received, is_result ? place : received, wrap(me - 1));
    if (last && arguments_.accumulates) {
        combine(ReduceOp::sum, arguments_.dtype, place, received, place, range.bytes / element_bytes_);
    }
    if (last && arguments_.consumes) clear_others(column);
}

/// In place, `out` lies inside of `in`.
void Collective::clear_others(std::int64_t column) const {
    std::byte* const whole = out_ - block_offset(arguments_.me);
    for (int block = 0; block < arguments_.members; ++block) {
        if (block == arguments_.me) continue;
        const Range range = piece(block, column);
        std::memset(whole + range.offset, 0, static_cast<std::size_t>(range.bytes));
    }
}

/// Of an all-reduce: `out` holds the sum over all members there.
void Collective::complete_sum(Range range) const {
    if (arguments_.reduce != ReduceOp::mean) return;
    make_mean(arguments_.dtype, out_ + range.offset, range.bytes / element_bytes_, arguments_.members);
}

void Collective::finish_link(Link link, Range range, int step, std::byte* staging) const {
    if (arguments_.kind == CommKind::reduce) {
        if (!link.receives) return;
        std::byte* const combined = combined_at(range, staging);
        combine_from(range, link.first ? in_ + range.offset : combined, staging, combined, link.index);
    } else if (step == 0 && arguments_.me == arguments_.root && in_ != out_) {
        std::memcpy(out_ + range.offset, in_ + range.offset, static_cast<std::size_t>(range.bytes));
    }
}

void Collective::finish_step(std::int64_t column, int step, std::byte* staging) const {
    const int n = arguments_.members;
    const int me = arguments_.me;
    switch (algorithm_) {
        case Algorithm::copy:
            finish_copy();
            break;
        case Algorithm::message:
        case Algorithm::shift:
            break;
        case Algorithm::swap:
            combine_from({0, bytes()}, in_, staging, out_, 1 - me);
            complete_sum({0, bytes()});
            break;
        case Algorithm::halving: {
            const Partner with = partner(step);
            if (!with.halving) break;
            const std::byte* own = (step == 0 ? in_ : out_) + with.mine.offset;
            combine_from(with.mine, own, staging, out_ + with.mine.offset, with.index);
            if (step == steps_ / 2 - 1) complete_sum(with.mine);
            break;
        }
        case Algorithm::tree:
            finish_link(tree_link(step), {0, bytes()}, step, staging);
            break;
        case Algorithm::chain:
            finish_link(chain_link(step), chain_piece(column), step, staging);
            break;
        case Algorithm::direct: {
            if (column != n - 1 || step > 0) break;
            const Range from = block_for(me);
            const Range to = block_from(me);
            if (from.bytes == 0 || in_ + from.offset == out_ + to.offset) break;
            std::memcpy(out_ + to.offset, in_ + from.offset, static_cast<std::size_t>(from.bytes));
            break;
        }
        case Algorithm::ring_all_reduce: {
            if (step >= n - 1) break;
            const Range range = piece(wrap(me - step - 1), column);
            combine_from(range, in_ + range.offset, staging, out_ + range.offset, wrap(me - 1));
            if (step == n - 2) complete_sum(range);
            break;
        }
        case Algorithm::ring_reduce_scatter:
            finish_reduce_scatter(column, step, staging);
            break;
        case Algorithm::ring_all_gather: {
            if (step > 0) break;
            const Range range = piece(me, column);
            const std::byte* own = in_ + (range.offset - block_offset(me));
            std::byte* place = out_ + range.offset;
            if (own != place) std::memcpy(place, own, static_cast<std::size_t>(range.bytes));
            break;
        }
    }
}

}  // namespace orrery::exec
