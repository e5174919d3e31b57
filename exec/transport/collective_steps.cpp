// The messages of each step of a column, and the combination of the received data.
#include <algorithm>
#include <cstring>

#include "exec/transport/collective.h"
#include "exec/transport/reduce.h"

namespace orrery::exec {

using program::CommKind;
using program::ReduceOp;

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
        // In the first step a member sends its own block from `in`, which holds only that block.
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
    if (with.halving) {  // send the partner's half of the blocks that both hold, receive this member's half
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

// Places are counted from the root to the right. Step s of a broadcast doubles the number of places that have the
// message: place p sends it to p + 2^s. A reduce traverses the same tree backwards.
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
    link.first = place + 2 * distance >= n;  // the step before would have had a child beyond the last place
    return link;
}

Collective::Link Collective::chain_link(int step) const {
    const bool is_reduce = arguments_.kind == CommKind::reduce;
    const int n = arguments_.members;
    const int place = wrap(std::int64_t{arguments_.me} - arguments_.root);
    // In this step the message goes from place `from` to place `to`.
    const int from = is_reduce ? n - 1 - step : step;
    const int to = is_reduce ? from - 1 : from + 1;
    Link link;
    link.sends = place == from;
    link.receives = place == to;
    link.index = wrap(std::int64_t{arguments_.root} + (link.sends ? to : from));
    link.first = !link.sends || step == 0;
    return link;
}

// Where a reduce keeps this member's partial result.
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

// The block of `in` that goes to `member`.
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

// The block of `out` that comes from `member`.
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
    if (result.send_to == arguments_.me) return result;  // the last column is copied by finish_step()
    const std::int64_t done = step * kLargestMessageBytes;
    const Range send = block_for(result.send_to);
    const Range receive = block_from(result.receive_from);
    result.send_bytes = std::clamp(send.bytes - done, std::int64_t{0}, kLargestMessageBytes);
    result.receive_bytes = std::clamp(receive.bytes - done, std::int64_t{0}, kLargestMessageBytes);
    if (result.send_bytes > 0) result.send = in_ + send.offset + done;
    if (result.receive_bytes > 0) result.receive = out_ + receive.offset + done;
    return result;
}

// A step of send, recv or exchange.
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
    // The lower member is the left operand, so that both members compute bitwise equal results.
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

/// Zeroes the other members' blocks. The operation is in place, so `out` is this member's block of `in`.
void Collective::clear_others(std::int64_t column) const {
    std::byte* const whole = out_ - block_offset(arguments_.me);
    for (int block = 0; block < arguments_.members; ++block) {
        if (block == arguments_.me) continue;
        const Range range = piece(block, column);
        std::memset(whole + range.offset, 0, static_cast<std::size_t>(range.bytes));
    }
}

/// Called when `out` holds the sum over all members in this range of an all-reduce; divides it for a mean.
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
