#include "sim/program/access_order.h"

#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "sim/program/stage_lists.h"

namespace orrery::program {
namespace {

using models::kNoSlot;

/// One stream's access to bytes [begin, end) of a space.
struct Use {
    Stream stream{};
    Space space{};
    std::int64_t begin = 0, end = 0;
    bool write = false;
};
Use reads(Stream stream, std::int64_t begin, std::int64_t end, Space space = Space::reduction) {
    return {stream, space, begin, end, false};
}
Use writes(Stream stream, std::int64_t begin, std::int64_t end, Space space = Space::reduction) {
    return {stream, space, begin, end, true};
}

/// A body with one instruction per use, in order.
Body body_of(const std::vector<Use>& uses) {
    BodyWriter writer(Phase::forward);
    std::map<std::tuple<Space, std::int64_t, std::int64_t>, models::SlotIndex> slots;
    for (const Use& use : uses) {
        models::SlotIndex& slot = slots.try_emplace({use.space, use.begin, use.end}, kNoSlot).first->second;
        if (slot == kNoSlot) {
            slot = writer.slot(flat_slot(use.space, "bytes", models::SlotRole::transient, DType::uint8,
                                         use.end - use.begin, use.begin));
        }
        if (use.stream == Stream::compute) {
            models::Operator op{.kind = use.write ? models::OpKind::clear : models::OpKind::gradient_norm};
            (use.write ? op.out[0] : op.in[0]) = slot;
            writer.op(op);
            continue;
        }
        const Communication communication{.kind = CommKind::broadcast,
                                          .axis = GroupAxis::dp,
                                          .elements = use.end - use.begin,
                                          .in = use.write ? kNoSlot : slot,
                                          .out = use.write ? slot : kNoSlot};
        writer.communicate("move", use.stream, communication, Follows::own);
    }
    return writer.finish();
}

/// A list of bodies, with its waits.
struct List {
    std::vector<BodyOrder> orders;
    IndexedVector<SegmentIndex, ListedSegment> segments;
    std::vector<SegmentWait> waits;
    ListOrder order;
    explicit List(const std::vector<std::vector<Use>>& bodies, bool last_after_all = false) {
        for (const std::vector<Use>& uses : bodies) orders.push_back(order_of(body_of(uses)));
        for (const BodyOrder& one : orders) segments.push_back({{}, &one, false});
        segments.back().after_all = last_after_all;
        order = order_list({}, segments, waits);
    }
    /// "0 dp, 1 tp".
    [[nodiscard]] std::string waits_of(SegmentIndex segment) const {
        std::string text;
        for (std::int32_t w = 0; w < segments[segment].segment.wait_count; ++w) {
            const SegmentWait& wait = waits.at(static_cast<std::size_t>(segments[segment].segment.first_wait + w));
            text += (text.empty() ? "" : ", ") + std::to_string(wait.segment.value()) + " " +
                    std::string(name_of(wait.stream));
        }
        return text;
    }
};

TEST(SegmentWaits, AreForBytesThatAnotherStreamUses) {
    const List list({{writes(Stream::dp_gather, 0, 10)},
                     {writes(Stream::dp_gather, 10, 20)},
                     {reads(Stream::compute, 0, 10)},
                     {reads(Stream::compute, 15, 20)},
                     {reads(Stream::dp, 5, 15)},
                     {writes(Stream::dp_gather, 5, 6)}});
    EXPECT_EQ(list.waits_of(1), "");
    EXPECT_EQ(list.waits_of(2), "0 dp_gather");
    EXPECT_EQ(list.waits_of(3), "1 dp_gather");
    EXPECT_EQ(list.waits_of(4), "1 dp_gather");
    EXPECT_EQ(list.waits_of(5), "2 compute, 4 dp");  // not for segment 3, which uses other bytes
}

TEST(SegmentWaits, AreNotForConcurrentReads) {
    const List list({{reads(Stream::dp, 0, 10)}, {reads(Stream::compute, 0, 10)}});
    EXPECT_EQ(list.waits_of(1), "");
}

TEST(SegmentWaits, AreNotForUsesThatAreAlreadyOrdered) {
    // The computation of segment 1 waits for dp; that of segment 2 comes after it on its stream.
    const List chain({{writes(Stream::dp, 0, 10)}, {reads(Stream::compute, 0, 10)}, {reads(Stream::compute, 0, 10)}});
    EXPECT_EQ(chain.waits_of(1), "0 dp");
    EXPECT_EQ(chain.waits_of(2), "");
    // tp comes after the computation of its body, and the next computation after tp.
    const std::vector<Use> block{writes(Stream::compute, 0, 10), writes(Stream::tp, 0, 10),
                                 reads(Stream::compute, 0, 10)};
    const List blocks({block, block});
    EXPECT_EQ(blocks.waits_of(1), "");
}

TEST(SegmentWaits, AreForAllEarlierSegmentsOnRequest) {
    const List list({{writes(Stream::dp, 0, 1)}, {writes(Stream::compute, 1, 2)}, {writes(Stream::tp, 2, 3)}}, true);
    EXPECT_EQ(list.waits_of(1), "");
    EXPECT_EQ(list.waits_of(2), "1 compute, 0 dp");
}

TEST(ListOrders, SayWhichStreamsBeginAndEndAfterOthers) {
    const List list({{writes(Stream::compute, 0, 10), reads(Stream::tp, 0, 10)}, {reads(Stream::dp, 20, 30)}});
    EXPECT_EQ(list.order.begins_after[Stream::tp], only(Stream::compute) | only(Stream::tp));
    EXPECT_EQ(list.order.begins_after[Stream::compute], only(Stream::compute));
    EXPECT_EQ(list.order.begins_after[Stream::dp], only(Stream::dp));
    EXPECT_EQ(list.order.ended_by[Stream::tp], only(Stream::tp));
    EXPECT_EQ(list.order.ended_by[Stream::compute], only(Stream::compute) | only(Stream::tp));
}

/// Collects the waits of a class's actions, each added once per step.
class Actions {
  public:
    explicit Actions(const std::vector<std::vector<Use>>& bodies) : orders_(orders_of(bodies)), order_(orders_) {}
    /// "1 pp_send_forward for compute, back 1".
    std::string add(Action action, const std::vector<ActionUse>& more = {}) {
        std::vector<Wait> waits;
        order_.add(next_, action, more, waits);
        ++next_;
        std::string text;
        for (const Wait& wait : waits) {
            text += (text.empty() ? "" : ", ") + std::to_string(wait.action.value()) + " " +
                    std::string(name_of(wait.stream)) + " for";
            for (const Stream stream : kStreams) {
                if (wait.holds(stream)) text += " " + std::string(name_of(stream));
            }
            if (wait.steps_back > 0) text += ", a step back";
        }
        return text;
    }
    void next_step() {
        order_.next_step();
        next_ = 0;
    }

  private:
    static IndexedVector<SegmentListId, ListOrder> orders_of(const std::vector<std::vector<Use>>& bodies) {
        IndexedVector<SegmentListId, ListOrder> orders;
        for (const std::vector<Use>& uses : bodies) orders.push_back(List({uses}).order);
        return orders;
    }
    IndexedVector<SegmentListId, ListOrder> orders_;
    ActionOrder order_;
    ActionIndex next_ = 0;
};

TEST(ActionWaits, AreForTheBufferThatAnActionBinds) {
    Actions actions({{writes(Stream::compute, 0, 8, Space::hidden_out)},
                     {reads(Stream::pp_send_forward, 0, 8, Space::hidden_out)}});
    const Action pass{.segments = 0, .forward_boundary = 0}, send{.segments = 1, .forward_boundary = 0};
    const Action other_pass{.segments = 0, .forward_boundary = 1};
    EXPECT_EQ(actions.add(pass), "");
    EXPECT_EQ(actions.add(send), "0 compute for pp_send_forward");
    EXPECT_EQ(actions.add(other_pass), "");
    EXPECT_EQ(actions.add(pass), "1 pp_send_forward for compute");
    actions.next_step();
    EXPECT_EQ(actions.add(other_pass), "");
    EXPECT_EQ(actions.add(send), "3 compute for pp_send_forward, a step back");
    EXPECT_EQ(actions.add(pass), "1 pp_send_forward for compute");
}

TEST(ActionWaits, AreForTheNextChunksInputIfTheOutputStays) {
    Actions actions({{writes(Stream::tp, 0, 8, Space::hidden_out)}, {reads(Stream::compute, 0, 8, Space::hidden_in)}});
    EXPECT_EQ(actions.add({.segments = 0, .forward_boundary = 2, .output_stays = true}), "");
    EXPECT_EQ(actions.add({.segments = 1, .input_boundary = 2}), "0 tp for compute");
    EXPECT_EQ(actions.add({.segments = 1, .input_boundary = 1}), "");
}

TEST(ActionWaits, AreForBytesThatListsShare) {
    Actions actions({{writes(Stream::compute, 0, 10)}, {reads(Stream::dp, 5, 20)}, {writes(Stream::compute, 12, 14)}});
    EXPECT_EQ(actions.add({.segments = 0}), "");
    EXPECT_EQ(actions.add({.segments = 1}), "0 compute for dp");
    EXPECT_EQ(actions.add({.segments = 2}), "1 dp for compute");
    EXPECT_EQ(actions.add({.segments = 0}), "1 dp for compute");
}

TEST(ActionWaits, AreForOrdersBeyondMemory) {
    Actions actions({{reads(Stream::compute, 0, 1)}, {reads(Stream::dp, 1, 2)}});
    const ActionUse before{.token = ActionUse::Token::block, .streams = only(Stream::compute), .write = true};
    const ActionUse after{.token = ActionUse::Token::block, .streams = only(Stream::dp)};
    EXPECT_EQ(actions.add({.segments = 0}, {before}), "");
    EXPECT_EQ(actions.add({.segments = 1}), "");
    EXPECT_EQ(actions.add({.segments = 1}, {after}), "0 compute for dp");
}

}  // namespace
}  // namespace orrery::program
