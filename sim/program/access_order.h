// Private to the lowerings: derives waits from the memory that bodies read and write. Two uses of the same memory on
// different streams, one of them a write, must be ordered. If neither the streams (which are FIFOs) nor the events
// inside bodies order them, the later use waits: a segment waits for everything that an earlier segment of its list put
// on a stream, an action for everything that an earlier action put on a stream.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/program/memory_map.h"
#include "sim/program/program.h"

namespace orrery::program {

using StreamSet = std::uint32_t;  // one bit for each stream
[[nodiscard]] constexpr StreamSet only(Stream stream) {
    return StreamSet{1} << static_cast<unsigned>(stream);
}
using StreamCounts = PerStream<std::int32_t>;

/// The order of a body's instructions.
struct InstructionOrder {
    /// What is known to have completed when an instruction begins.
    struct Start {
        StreamSet past = 0;   // streams on which everything before the body has completed
        StreamCounts done{};  // instructions of the body that have completed
    };
    IndexedVector<InstructionIndex, Start> starts;
    IndexedVector<InstructionIndex, std::int32_t> on_stream;  // position on its stream in the body, from 1
    StreamSet streams = 0;                                    // streams with instructions of the body
    PerStream<InstructionIndex> first{}, last{};              // first and last instruction on each of these streams
};
[[nodiscard]] InstructionOrder instruction_order(const Body& body);

/// The memory that one body uses, and the order of its instructions.
struct BodyOrder : InstructionOrder {
    /// Slots of one space that one stream reads or writes; adjacent and overlapping slots are merged.
    struct Use {
        SpacePart part;
        Stream stream{};
        bool write = false;
        InstructionIndex first = 0, last = 0;  // the first and the last instruction that uses the slots
        /// The use begins after all computation before the body, and computation after the body begins after the use.
        /// Two such uses in two bodies of a list are ordered.
        bool is_tied = false;
    };
    Phase phase{};
    std::vector<Use> uses;
};
[[nodiscard]] BodyOrder order_of(const Body& body);

/// The memory that a segment list uses, as far as other actions may use it too.
struct ListOrder {
    struct Use {
        std::int64_t begin = 0, end = 0;
        Stream stream{};
        bool write = false;
    };
    struct Streams {
        StreamSet reads = 0, writes = 0;
        auto operator<=>(const Streams&) const = default;
    };
    PerRegion<std::vector<Use>> uses;  // of regions with a single instance
    PerRegion<Streams> bound{};        // of regions of which an action binds an instance
    StreamSet streams = 0;             // streams with instructions of the list
    /// By stream s: s, and the streams whose first instruction has completed before the first one on s begins.
    PerStream<StreamSet> begins_after{};
    /// By stream s: the streams whose last instruction completes only after all instructions on s have completed.
    PerStream<StreamSet> ended_by{};
};

struct ListedSegment {
    Segment segment;
    const BodyOrder* order = nullptr;  // of the segment's body
    bool after_all = false;            // the segment waits for everything before it in the list
};
/// Sets the waits of the segments of one list and appends them to `waits`.
[[nodiscard]] ListOrder order_list(const RankClass& ranks, IndexedVector<SegmentIndex, ListedSegment>& list,
                                   std::vector<SegmentWait>& waits);

/// A use of memory by an action, or of a token. A token stands for an order that the frameworks enforce although no
/// memory access requires it.
struct ActionUse {
    enum class Token : std::uint8_t {
        memory,
        block,              // a block of overlapped tasks: its outputs are sent after the end of the block
        gathered_units,     // FSDP gathers only after all computation before the pass (root_pre_forward)
        reduced_gradients,  // the end of a step begins after all gradients are reduced, and ends before the next step
    };
    Token token = Token::memory;
    Instance memory;
    StreamSet streams = only(Stream::compute);
    bool write = false;
};

/// Finds the waits of a step's actions, which are added in issue order.
class ActionOrder {
  public:
    /// `lists` must outlive this object.
    explicit ActionOrder(const IndexedVector<SegmentListId, ListOrder>& lists);
    /// Appends the action's waits to `waits` and returns their number. For each stream, the action waits for the latest
    /// conflicting use; Wait::held_streams names the action's streams that conflict with it. `more`: uses in addition
    /// to those of the action's list.
    std::int32_t add(ActionIndex index, const Action& action, std::span<const ActionUse> more,
                     std::vector<Wait>& waits);
    /// Adds an action of a step whose waits are not asked for.
    void note(ActionIndex index, const Action& action, std::span<const ActionUse> more);
    void next_step() { ++step_; }

  private:
    static constexpr std::size_t kTokens = static_cast<std::size_t>(ActionUse::Token::reduced_gradients) + 1;
    struct Use {
        std::int32_t key = 0;
        ListOrder::Streams streams;
    };
    struct Last {
        std::int32_t step = 0;
        ActionIndex action = -1;
        StreamSet ended_by = 0;  // ListOrder::ended_by of the action's list, for the stream
        auto operator<=>(const Last&) const = default;
    };
    struct History {
        PerStream<Last> reads, writes;
        StreamSet read = 0, written = 0;  // the streams whose entries are valid
    };
    struct Needed {
        Last last;
        Stream waited_for{}, waiting{};
    };
    void number_ranges(Region region);
    [[nodiscard]] std::int32_t new_key();
    [[nodiscard]] std::int32_t key_of(const Instance& memory);
    void collect(const Action& action, std::span<const ActionUse> more);
    void note_collected(ActionIndex index, const ListOrder& list);
    using Users = std::vector<std::pair<SegmentListId, ListOrder::Streams>>;  // the users of some memory, by list
    [[nodiscard]] bool need_order(const Users& users) const;
    /// Whether the FIFO order of streams already implies that the first instruction on `waiting` of an action with
    /// `list` begins after everything that an earlier action put on a stream; `ended_by`: of that stream.
    [[nodiscard]] static bool is_implied(StreamSet ended_by, Stream waiting, const ListOrder& list) {
        return (list.begins_after[waiting] & ended_by) != 0;
    }

    const IndexedVector<SegmentListId, ListOrder>& lists_;
    IndexedVector<SegmentListId, std::vector<Use>> fixed_;  // uses of regions with a single instance
    struct BoundUse {
        Region region{};
        ListOrder::Streams streams;
    };
    IndexedVector<SegmentListId, std::vector<BoundUse>> bound_;  // uses of instances, if some action may have to wait
    /// The keys of instances, by region, chunk and index; -1: not used yet.
    PerRegion<IndexedVector<ChunkIndex, std::vector<std::int32_t>>> instance_keys_;
    std::vector<History> histories_;  // by key; a token's value is its key
    std::vector<Use> uses_;           // the uses of the action that is being added
    std::vector<Needed> needed_;
    std::int32_t step_ = 0;
};

}  // namespace orrery::program
