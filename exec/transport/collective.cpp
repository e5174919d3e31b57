#include "exec/transport/collective.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "core/error.h"
#include "exec/transport/reduce.h"

namespace orrery::exec {

using program::CommKind;

void Collective::check() const {
    const CollectiveArguments& a = arguments_;
    ORRERY_CHECK(a.elements >= 0, "negative element count " + std::to_string(a.elements));
    ORRERY_CHECK(a.members >= 1 && a.me >= 0 && a.me < a.members,
                 "member " + std::to_string(a.me) + " of " + std::to_string(a.members));
    const bool point_to_point = a.kind == CommKind::send || a.kind == CommKind::recv;
    if (point_to_point) {
        ORRERY_CHECK(a.peer >= 0 && a.peer < a.members && a.peer != a.me, "peer " + std::to_string(a.peer));
    }
    if (a.kind == CommKind::all_gather || a.kind == CommKind::reduce_scatter) {
        ORRERY_CHECK(a.elements % a.members == 0, std::to_string(a.elements) + " elements over " +
                                                      std::to_string(a.members) + " members: blocks must be equal");
    }
    if (a.kind == CommKind::all_reduce || a.kind == CommKind::reduce_scatter) {
        ORRERY_CHECK(can_combine(a.dtype), "no reduction for " + std::string(name_of(a.dtype)));
    }
    if (a.elements > 0) {
        ORRERY_CHECK(a.kind == CommKind::recv || a.in != nullptr, "no input buffer");
        ORRERY_CHECK(a.kind == CommKind::send || a.out != nullptr, "no output buffer");
    }
}

Collective::Collective(const CollectiveArguments& arguments)
    : arguments_(arguments),
      in_(static_cast<const std::byte*>(arguments.in)),
      out_(static_cast<std::byte*>(arguments.out)),
      element_bytes_(size_of(arguments.dtype)) {
    check();
    const int n = arguments_.members;
    const std::int64_t bytes = arguments_.elements * element_bytes_;
    const bool small = bytes <= kSmallAllReduceBytes;
    switch (arguments_.kind) {
        case CommKind::send:
        case CommKind::recv:
            algorithm_ = Algorithm::message;
            break;
        case CommKind::all_reduce:
            algorithm_ = Algorithm::ring_all_reduce;
            if (small && std::has_single_bit(static_cast<unsigned>(n))) algorithm_ = Algorithm::halving;
            if (small && n == 2) algorithm_ = Algorithm::exchange;
            break;
        case CommKind::all_gather:
            algorithm_ = Algorithm::ring_all_gather;
            break;
        case CommKind::reduce_scatter:
            algorithm_ = Algorithm::ring_reduce_scatter;
            break;
        case CommKind::all_to_all:
        case CommKind::broadcast:
        case CommKind::reduce:
        case CommKind::scatter:
        case CommKind::gather:
        case CommKind::exchange:
            throw_bug(__FILE__, __LINE__, "CommKind",
                      std::string(name_of(arguments_.kind)) + " is simulated only, the transport has none");
    }
    if (n == 1) algorithm_ = Algorithm::copy;
    cut_into_columns();
}

void Collective::cut_into_columns() {
    const int n = arguments_.members;
    const std::int64_t bytes = arguments_.elements * element_bytes_;
    columns_ = arguments_.elements > 0 ? 1 : 0;
    switch (algorithm_) {
        case Algorithm::copy:
            steps_ = 1;
            return;
        case Algorithm::exchange:
            steps_ = 1;
            staging_bytes_ = bytes;
            return;
        case Algorithm::halving:
            steps_ = 2 * std::countr_zero(static_cast<unsigned>(n));
            staging_bytes_ = bytes;
            return;
        case Algorithm::message:
            steps_ = 1;
            columns_ = (bytes + kLargestMessageBytes - 1) / kLargestMessageBytes;
            return;
        case Algorithm::ring_all_reduce:
        case Algorithm::ring_reduce_scatter:
        case Algorithm::ring_all_gather:
            break;
    }
    const std::int64_t largest_block = (arguments_.elements + n - 1) / n * element_bytes_;
    const std::int64_t wanted = std::clamp(largest_block / kLanes, kSmallestPieceBytes, kLargestPieceBytes);
    constexpr std::int64_t kCacheLine = 64;  // pieces keep the alignment of their block
    piece_bytes_ = std::min((wanted + kCacheLine - 1) / kCacheLine * kCacheLine, kLargestPieceBytes);
    columns_ = (largest_block + piece_bytes_ - 1) / piece_bytes_;
    const std::int64_t staged = std::min(piece_bytes_, largest_block);
    steps_ = n - 1;
    if (algorithm_ == Algorithm::ring_all_reduce) {
        steps_ = 2 * (n - 1);
        staging_bytes_ = staged;
    } else if (algorithm_ == Algorithm::ring_reduce_scatter) {
        staging_bytes_ = 2 * staged;  // one travels on while the next arrives
    }
}

int Collective::wrap(int block) const {
    const int n = arguments_.members;
    return ((block % n) + n) % n;
}

std::int64_t Collective::block_offset(int block) const {
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

Step Collective::message_step(std::int64_t column) const {
    const std::int64_t offset = column * kLargestMessageBytes;
    const std::int64_t bytes = std::min(kLargestMessageBytes, arguments_.elements * element_bytes_ - offset);
    Step result;
    result.send_to = arguments_.peer;
    result.receive_from = arguments_.peer;
    if (arguments_.kind == CommKind::send) {
        result.send = in_ + offset;
        result.send_bytes = bytes;
    } else {
        result.receive = out_ + offset;
        result.receive_bytes = bytes;
    }
    return result;
}

Step Collective::step(std::int64_t column, int step, std::byte* staging) const {
    switch (algorithm_) {
        case Algorithm::copy:
            return {};
        case Algorithm::message:
            return message_step(column);
        case Algorithm::exchange: {
            const std::int64_t bytes = arguments_.elements * element_bytes_;
            const int other = 1 - arguments_.me;
            return {in_, bytes, other, staging, bytes, other};
        }
        case Algorithm::halving:
            return halving_step(step, staging);
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

void Collective::finish_step(std::int64_t column, int step, std::byte* staging) const {
    const int n = arguments_.members;
    const int me = arguments_.me;
    switch (algorithm_) {
        case Algorithm::copy:
            if (in_ != out_) std::memcpy(out_, in_, static_cast<std::size_t>(arguments_.elements * element_bytes_));
            break;
        case Algorithm::message:
            break;
        case Algorithm::exchange:
            combine_from({0, arguments_.elements * element_bytes_}, in_, staging, out_, 1 - me);
            break;
        case Algorithm::halving: {
            const Partner with = partner(step);
            if (!with.halving) break;
            const std::byte* own = (step == 0 ? in_ : out_) + with.mine.offset;
            combine_from(with.mine, own, staging, out_ + with.mine.offset, with.index);
            break;
        }
        case Algorithm::ring_all_reduce: {
            if (step >= n - 1) break;
            const Range range = piece(wrap(me - step - 1), column);
            combine_from(range, in_ + range.offset, staging, out_ + range.offset, wrap(me - 1));
            break;
        }
        case Algorithm::ring_reduce_scatter: {
            const Range range = piece(wrap(me - step - 2), column);
            std::byte* received = staging + (step % 2) * (staging_bytes_ / 2);
            const bool last = step == n - 2;
            std::byte* result = last ? out_ + (range.offset - block_offset(me)) : received;
            combine_from(range, in_ + range.offset, received, result, wrap(me - 1));
            break;
        }
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
