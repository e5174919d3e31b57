// Private to the lowerings: finds what has to wait for what, from what bodies read and write. Two uses of the same
// memory on different streams, one of them a write, need an order; where streams (which are FIFOs) and the events
// inside bodies give none, the later use waits: a segment for everything that an earlier segment of its list put on a
// stream, an action for everything that an earlier action put there.
#pragma once

#include <array>
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

/// What one body does to memory, and how its streams are tied to each other inside it.
struct BodyOrder {
    /// Slots of one space that one stream reads, or writes, taken together where they touch or overlap.
    struct Use {
        SpacePart part;
        Stream stream{};
        bool write = false;
        InstructionIndex first = 0, last = 0;  // that use it
        /// It begins when all that was computed before the body has completed, and what is computed after the body
        /// begins when it has ended: two such uses in two bodies of a list are ordered.
        bool is_tied = false;
    };
    /// When an instruction begins.
    struct Start {
        StreamSet past = 0;   // streams on which everything before the body has completed
        StreamCounts done{};  // instructions of the body that have completed
    };
    Phase phase{};
    std::vector<Use> uses;
    IndexedVector<InstructionIndex, Start> starts;
    IndexedVector<InstructionIndex, std::int32_t> on_stream;  // its number on its stream, from 1
    StreamSet streams = 0;                                    // that it has instructions on
    PerStream<InstructionIndex> first{}, last{};              // of those
};
[[nodiscard]] BodyOrder order_of(const Body& body);

/// What a segment list does to memory that other actions use too.
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
    PerRegion<std::vector<Use>> uses;  // of regions that exist once
    PerRegion<Streams> bound{};        // of those of which an action binds an instance
    StreamSet streams = 0;             // that it has instructions on
    /// By stream: itself, and those whose first instruction has completed before the stream's first one begins.
    PerStream<StreamSet> begins_after{};
    /// By stream: all of its instructions have completed when the last one on any of these has.
    PerStream<StreamSet> ended_by{};
};

struct ListedSegment {
    Segment segment;
    const BodyOrder* order = nullptr;  // of its body
    bool after_all = false;            // it waits for everything before it in the list, whatever that uses
};
/// Gives the segments of one list their waits, which go to the end of `waits`.
[[nodiscard]] ListOrder order_list(const RankClass& ranks, IndexedVector<SegmentIndex, ListedSegment>& list,
                                   std::vector<SegmentWait>& waits);

/// Memory, or what stands for an order of the frameworks that memory does not show.
struct ActionUse {
    enum class Token : std::uint8_t {
        memory,
        block,              // of overlapping tasks: what leaves it waits for its end
        gathered_units,     // FSDP gathers when all that was computed before a pass has completed (root_pre_forward)
        reduced_gradients,  // the end of a step begins when all gradients are there, and is over before the next
    };
    Token token = Token::memory;
    Instance memory;
    Stream stream{};
    bool write = false;
};

/// Orders the actions of a step, as they are listed.
class ActionOrder {
  public:
    /// `lists` outlives this.
    explicit ActionOrder(const IndexedVector<SegmentListId, ListOrder>& lists);
    /// Appends to `waits` what the action must wait for: of each stream the latest use that conflicts, holding the
    /// streams that use the same. `more`: what counts as a use besides those of its list. Returns how many.
    std::int32_t add(ActionIndex index, const Action& action, std::span<const ActionUse> more,
                     std::vector<Wait>& waits);
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
        auto operator<=>(const Last&) const = default;
    };
    struct History {
        PerStream<Last> reads, writes;
        StreamSet read = 0, written = 0;  // streams whose entries mean something
    };
    struct Needed {
        Last last;
        Stream waited_for{}, waiting{};
    };
    void number_ranges(Region region);
    [[nodiscard]] std::int32_t new_key();
    [[nodiscard]] std::int32_t key_of(const Instance& memory);
    [[nodiscard]] std::int32_t key_of(ActionUse::Token token);
    void collect(const Action& action, std::span<const ActionUse> more);
    using Users = std::vector<std::pair<SegmentListId, ListOrder::Streams>>;  // of some memory: by list, ascending
    [[nodiscard]] bool need_order(const Users& users) const;
    /// Whether the first instruction of an action with `list` on `waiting` comes after all that an earlier action put
    /// on `waited_for`, whatever it uses.
    [[nodiscard]] static bool is_implied(const ListOrder& earlier, Stream waited_for, Stream waiting,
                                         const ListOrder& list) {
        return (list.begins_after[waiting] & earlier.ended_by[waited_for]) != 0;
    }

    const IndexedVector<SegmentListId, ListOrder>& lists_;
    IndexedVector<SegmentListId, std::vector<Use>> fixed_;  // memory that exists once
    struct BoundUse {
        Region region{};
        ListOrder::Streams streams;
    };
    IndexedVector<SegmentListId, std::vector<BoundUse>> bound_;  // instances for which some action may have to wait
    /// Of instances, by region, chunk and index, and of tokens; -1: not used yet.
    PerRegion<IndexedVector<ChunkIndex, std::vector<std::int32_t>>> instance_keys_;
    std::array<std::int32_t, kTokens> token_keys_{};
    std::vector<History> histories_;  // by key
    IndexedVector<ActionIndex, SegmentListId> list_of_;
    std::vector<Use> uses_;  // of the action that is being added
    std::vector<Needed> needed_;
    std::int32_t step_ = 0;
};

}  // namespace orrery::program
