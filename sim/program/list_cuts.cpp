// Cuts the lists of the two passes of a block, so that these can take turns: a pass pauses where its computation would
// wait for tokens on their way to experts or back, and the other one computes meanwhile.
#include <algorithm>
#include <set>
#include <utility>

#include "sim/program/access_order.h"
#include "sim/program/stage_lists.h"

namespace orrery::program {
namespace {

/// Whether it carries tokens or their gradients between ranks with different experts; the counts that precede the
/// tokens are no reason to pause.
bool carries_tokens(const Instruction& instruction) {
    const Communication& communication = instruction.communication;
    return instruction.is_communication && communication.axis == GroupAxis::ep &&
           communication.kind == CommKind::all_to_all && communication.dtype != DType::int64;
}

/// The instructions before which a pass pauses: the first computation that waits for tokens, for each of the body's
/// exchanges of tokens.
std::vector<InstructionIndex> pauses(const Body& body) {
    const InstructionOrder order = instruction_order(body);
    std::vector<InstructionIndex> result;
    std::vector<std::int32_t> exchanges;  // positions on their stream
    std::size_t awaited = 0;              // of these
    for (const InstructionIndex i : body.instructions.indices()) {
        const Instruction& instruction = body.instructions[i];
        if (carries_tokens(instruction)) exchanges.push_back(order.on_stream[i]);
        if (instruction.stream != Stream::compute) continue;
        const std::size_t before = awaited;
        while (awaited < exchanges.size() && exchanges[awaited] <= order.starts[i].done[Stream::ep]) ++awaited;
        if (awaited > before) result.push_back(i);
    }
    return result;
}

class ListCutter : ListParts {
  public:
    ListCutter(const ListParts& parts, const std::vector<ComputeTask>& order) : ListParts(parts), order_(order) {}

    void run() {
        lists.takes_turns = true;
        const IndexedVector<ChunkIndex, EndTasks> ends = end_tasks(order_, lists.chunks.size());
        std::set<SegmentListId> forwards, backwards;
        for (std::size_t t = 1; t < order_.size(); ++t) {
            if (!order_[t].overlaps_previous) continue;
            const ChunkIndex f = order_[t - 1].chunk, b = order_[t].chunk;
            const bool first = t - 1 == ends[f].first_forward, last = t == ends[b].last_backward;
            forwards.insert(first ? lists.chunks[f].forward_first : lists.chunks[f].forward);
            backwards.insert(last ? lists.chunks[b].backward_last : lists.chunks[b].backward);
        }
        std::int64_t forward_bytes = 0;
        for (const SegmentListId list : forwards) {
            for (const Segment& segment : result.segment_lists[list]) {
                forward_bytes = std::max(forward_bytes, bodies.body(segment.body).transient_bytes);
            }
            cut(list, 0);
        }
        for (const SegmentListId list : backwards) cut(list, forward_bytes);
    }

  private:
    void cut(SegmentListId whole, std::int64_t transient_base) {
        std::vector<SegmentListId>& cut = lists.parts[whole];
        ListBuilder list = new_list();
        for (Segment segment : SegmentList(result.segment_lists[whole])) {  // a copy: lists are added
            segment.transient_base = transient_base;
            const BodyId body = segment.body;
            InstructionIndex first = 0;
            for (const InstructionIndex pause : pauses(bodies.body(body))) {
                segment.body = bodies.part(body, first, pause);
                list.add(segment);
                cut.push_back(list.finish());
                first = pause;
            }
            const InstructionIndex end = bodies.body(body).instructions.next_index();
            if (first > 0) segment.body = bodies.part(body, first, end);
            list.add(segment);
        }
        cut.push_back(list.finish());
    }

    const std::vector<ComputeTask>& order_;
};

}  // namespace

BodyId BodyLibrary::part(BodyId whole, InstructionIndex first, InstructionIndex end) {
    const Body& from = body(whole);
    Body part{.phase = from.phase,
              .layer_kind = from.layer_kind,
              .whole = whole,
              .first_in_whole = first,
              .slots = from.slots,
              .operators = {},
              .instructions = {},
              .transient_bytes = from.transient_bytes,
              .transient_live_peak = from.transient_live_peak};
    for (const InstructionIndex i : IndexRange<InstructionIndex>(first, end)) {
        Instruction instruction = from.instructions[i];
        const OperatorIndex operators = instruction.first_operator;
        instruction.first_operator = part.operators.next_index();
        for (std::int32_t o = 0; o < instruction.operator_count; ++o) {
            part.operators.push_back(from.operators[operators + o]);
        }
        // What an earlier part has issued is awaited by the part as a whole, like everything that other actions issue.
        std::erase_if(instruction.after, [&](InstructionIndex earlier) { return earlier < first; });
        for (InstructionIndex& earlier : instruction.after) earlier = earlier - first.value();
        part.instructions.push_back(std::move(instruction));
    }
    count_streams(part);
    return add(std::move(part));
}

void cut_lists(const ListParts& parts, const std::vector<ComputeTask>& order) {
    ListCutter(parts, order).run();
}

}  // namespace orrery::program
