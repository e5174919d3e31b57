// Rule "indices": every index in the Program is in range, and what it refers to may be used there.
#include <algorithm>
#include <limits>
#include <set>

#include "sim/program/validate_rules.h"

namespace orrery::program::rules {
namespace {

constexpr std::string_view kIndices = "indices";

bool inside(std::int64_t index, std::size_t size) {
    return index >= 0 && index < static_cast<std::int64_t>(size);
}
template <typename I, typename T>
bool inside(I index, const IndexedVector<I, T>& list) {
    return index >= 0 && index < list.next_index();
}

[[noreturn]] void fail_body(const Program& program, BodyId body, const std::string& what) {
    fail(program, kIndices, {}, "body " + std::to_string(body.value()) + ": " + what);
}

void check_slot_index(const Program& program, BodyId b, const Instruction& instruction, models::SlotIndex slot) {
    if (slot != models::kNoSlot && !inside(slot, program.bodies[b].slots)) {
        fail_body(program, b,
                  "instruction '" + instruction.name + "' names slot " + std::to_string(slot.value()) + " of " +
                      std::to_string(program.bodies[b].slots.size()));
    }
}

/// Whether collectives of the axis may be issued on the stream.
bool may_run_on(GroupAxis axis, Stream stream) {
    switch (axis) {
        case GroupAxis::tp:
        case GroupAxis::kv:
        case GroupAxis::pipeline:  // vocabulary parallelism, which leaves the tensor-parallel stream free
            return stream == Stream::tp;
        case GroupAxis::cp:
            return stream == Stream::cp;
        case GroupAxis::ep:
        case GroupAxis::etp:
            return stream == Stream::ep;
        case GroupAxis::dp:
        case GroupAxis::dp_shard:
        case GroupAxis::edp:
            return stream == Stream::dp || stream == Stream::dp_gather;
        case GroupAxis::dp_replicate:
            return stream == Stream::dp_replicate;
        case GroupAxis::embedding:
        case GroupAxis::model:
        case GroupAxis::world:
            return stream == Stream::dp;
        case GroupAxis::down_forward:
        case GroupAxis::down_backward:
        case GroupAxis::up_forward:
        case GroupAxis::up_backward:
            break;
    }
    return false;
}

void check_communication(const Program& program, BodyId b, const Instruction& instruction) {
    const Communication& comm = instruction.communication;
    const std::string prefix = "instruction '" + instruction.name + "' ";
    check_slot_index(program, b, instruction, comm.in);
    check_slot_index(program, b, instruction, comm.out);
    const bool reads = comm.kind != CommKind::recv;
    const bool writes = comm.kind != CommKind::send;
    const bool may_lack_input =
        comm.kind == CommKind::scatter && comm.in == models::kNoSlot;  // a rank that is not the root
    if ((reads != (comm.in != models::kNoSlot) && !may_lack_input) || writes != (comm.out != models::kNoSlot)) {
        fail_body(program, b, prefix + "does not have the slots that a " + std::string(name_of(comm.kind)) + " needs");
    }
    if (comm.elements <= 0) fail_body(program, b, prefix + "moves " + std::to_string(comm.elements) + " elements");
    const bool point_to_point = !reads || !writes;
    const bool fits = is_pipeline(instruction.stream) ? axis_of(instruction.stream) == comm.axis
                                                      : may_run_on(comm.axis, instruction.stream);
    if (point_to_point != is_pipeline(instruction.stream) || !fits) {
        fail_body(program, b,
                  prefix + "is a " + std::string(name_of(comm.kind)) + " of the axis " +
                      std::string(name_of(comm.axis)) + " on the stream " + std::string(name_of(instruction.stream)));
    }
    const std::int64_t members = std::max<std::int64_t>(1, program.mesh->group_size(comm.axis));
    if (!inside(comm.root, static_cast<std::size_t>(members))) {
        fail_body(program, b,
                  prefix + "has root " + std::to_string(comm.root) + " in a group of " + std::to_string(members));
    }
    // The larger of the two slots has the message size. Excepted are the axes of gradients and parameters: buckets are
    // padded, and with torch DataParallel only the master has the whole message.
    const bool is_exempt =
        comm.axis == GroupAxis::dp || comm.axis == GroupAxis::dp_shard || comm.axis == GroupAxis::edp;
    const auto bytes = [&](models::SlotIndex slot) {
        return slot == models::kNoSlot ? 0 : program.bodies[b].slots[slot].bytes;
    };
    const std::int64_t held = std::max(bytes(comm.in), bytes(comm.out));
    if (!is_exempt && comm.elements > held / size_of(comm.dtype)) {
        fail_body(program, b,
                  prefix + "moves " + std::to_string(comm.elements) + " elements of a slot of " + std::to_string(held) +
                      " bytes");
    }
}

void check_instruction(const Program& program, BodyId b, InstructionIndex i) {
    const Body& body = program.bodies[b];
    const Instruction& instruction = body.instructions[i];
    const std::string prefix = "instruction '" + instruction.name + "' ";
    if (!inside(static_cast<std::int64_t>(instruction.stream), kStreamCount)) {
        fail_body(program, b, prefix + "is on no stream");
    }
    for (const InstructionIndex earlier : instruction.after) {
        if (earlier < 0 || earlier >= i) {
            fail_body(program, b,
                      prefix + "(index " + std::to_string(i.value()) + ") comes after instruction " +
                          std::to_string(earlier.value()) + ", which is not an earlier one of the body");
        }
    }
    if (instruction.is_communication == is_local(instruction.stream)) {
        fail_body(program, b, prefix + "is on the stream " + std::string(name_of(instruction.stream)));
    }
    if (instruction.is_communication) {
        if (instruction.operator_count != 0) fail_body(program, b, prefix + "communicates and runs operators");
        check_communication(program, b, instruction);
        return;
    }
    if (instruction.operator_count < 0 || instruction.first_operator < 0 ||
        !inside(std::int64_t{instruction.first_operator.value()} + instruction.operator_count,
                body.operators.size() + 1)) {
        fail_body(program, b,
                  prefix + "runs operators [" + std::to_string(instruction.first_operator.value()) + ", +" +
                      std::to_string(instruction.operator_count) + ") of " + std::to_string(body.operators.size()));
    }
    for (std::int32_t o = 0; o < instruction.operator_count; ++o) {
        const models::Operator& op = body.operators[instruction.first_operator + o];
        for (const models::SlotIndex slot : op.in) check_slot_index(program, b, instruction, slot);
        for (const models::SlotIndex slot : op.out) check_slot_index(program, b, instruction, slot);
        check_slot_index(program, b, instruction, op.scratch);
    }
}

void check_body(const Program& program, BodyId b) {
    const Body& body = program.bodies[b];
    std::set<std::string_view> names;
    PerStream<std::int32_t> counts{};
    for (const models::SlotIndex s : body.slots.indices()) {
        if (body.slots[s].bytes >= 0) continue;
        fail_body(program, b, "slot " + std::to_string(s.value()) + " has a negative size");
    }
    for (const InstructionIndex i : body.instructions.indices()) {
        check_instruction(program, b, i);
        ++counts[body.instructions[i].stream];
        if (!names.insert(body.instructions[i].name).second) {
            fail_body(program, b, "two instructions are named '" + body.instructions[i].name + "'");
        }
    }
    if (counts != body.stream_counts) fail_body(program, b, "stream_counts do not match its instructions");
}

/// The use of one region by a segment list: the end of the highest slot that it touches.
struct Use {
    Region region{};
    const Slot* slot = nullptr;
    std::int64_t end = 0;
};

/// The slots that the instructions of each body touch, each once.
using TouchedSlots = IndexedVector<BodyId, std::vector<models::SlotIndex>>;

TouchedSlots touched_slots(const Program& program) {
    TouchedSlots touched(program.bodies.size());
    for (const BodyId b : program.bodies.indices()) {
        const Body& body = program.bodies[b];
        IndexedVector<models::SlotIndex, bool> seen(body.slots.size());
        for (const Instruction& instruction : body.instructions) {
            for (const SlotAccess& access : accesses_of(body, instruction)) {
                if (!seen[access.slot]) touched[b].push_back(access.slot);
                seen[access.slot] = true;
            }
        }
    }
    return touched;
}

class ClassChecker {
  public:
    ClassChecker(const Program& program, ClassIndex c, const TouchedSlots& touched)
        : program_(program), c_(c), ranks_(program.classes[c]), touched_(touched) {}

    void run() {
        check_pools();
        for (const SegmentListId list : ranks_.segment_lists.indices()) {
            check_calls(list);
            uses_.push_back(check_ranges(list));
            check_segment_waits(list);
        }
        for (const ActionIndex a : ranks_.actions.indices()) check_action(a);
        for (const ActionIndex a : ranks_.actions.indices()) check_waits(a);
        for (const Parameter& parameter : ranks_.parameters) {
            if (inside(parameter.chunk, ranks_.chunks) && is_range(parameter.range)) continue;
            fail(program_, kIndices, {.rank_class = c_},
                 "'" + parameter.name + "' has a chunk or a range that does not exist");
        }
        for (const Bucket& bucket : ranks_.buckets) {
            if (!is_range(bucket.range))
                fail(program_, kIndices, {.rank_class = c_}, "a bucket has a range that does not exist");
        }
    }

  private:
    [[nodiscard]] static bool is_range(ParameterRange range) {
        return inside(static_cast<std::int64_t>(range), kParameterRanges);
    }
    [[nodiscard]] const Body& body_of(const Segment& segment) const { return program_.bodies[segment.body]; }
    [[nodiscard]] std::string text_of(SegmentListId list, const Segment& segment) const {
        return "segment list " + std::to_string(list.value()) + ", layer " + std::to_string(segment.layer);
    }

    void check_pools() const {
        const auto chunks = static_cast<std::int64_t>(ranks_.chunks.size());
        if (chunks < 1) fail(program_, kIndices, {.rank_class = c_}, "it has no chunk");
        const std::int64_t batches = program_.plan->micro_batches();
        const auto check = [&](std::int64_t count, std::int64_t most) {
            if (count >= 0 && count <= most) return;
            fail(program_, kIndices, {.rank_class = c_},
                 "a pool of " + std::to_string(count) + " buffers for " + std::to_string(batches) + " micro-batches");
        };
        for (const Chunk& chunk : ranks_.chunks) check(chunk.frame_count, batches);
        check(ranks_.input_boundary_count, batches * chunks);
        check(ranks_.forward_boundary_count, batches * chunks);
        check(ranks_.backward_boundary_count, 2 * batches * chunks);  // gradients of outputs and of inputs
    }

    void check_calls(SegmentListId list) const {
        for (const Segment& segment : ranks_.segment_lists[list]) {
            if (inside(segment.body, program_.bodies)) continue;
            const std::string body = std::to_string(segment.body.value());
            fail(program_, kIndices, {.rank_class = c_},
                 "segment list " + std::to_string(list.value()) + " calls body " + body);
        }
    }

    /// Checks that the slots that instructions touch lie inside the memory of the class. Frames differ by chunk, so
    /// that check_action compares them.
    [[nodiscard]] std::vector<Use> check_ranges(SegmentListId list) const {
        std::vector<Use> uses;
        PerRegion<std::int32_t> seen;
        seen.fill(-1);
        const Chunk any{.frame_bytes = std::numeric_limits<std::int64_t>::max(),
                        .host_frame_bytes = std::numeric_limits<std::int64_t>::max()};
        PerRegion<std::int64_t> extents{};
        for (const Region region : kRegions) extents[region] = extent_of(ranks_, any, region);
        for (const Segment& segment : ranks_.segment_lists[list]) {
            const Body& body = body_of(segment);
            for (const models::SlotIndex index : touched_[segment.body]) {
                const Slot& slot = body.slots[index];
                if (!is_range(slot.range))
                    fail(program_, kIndices, {.rank_class = c_},
                         "slot '" + slot.decl.name + "' has a range that does not exist");
                const MemoryRange range = resolve(ranks_, body.phase, segment, slot);
                std::int32_t& use = seen[range.region];
                if (use < 0) {
                    use = static_cast<std::int32_t>(uses.size());
                    uses.push_back({range.region, &slot, 0});
                }
                Use& known = uses[static_cast<std::size_t>(use)];
                if (range.end > known.end) known = {range.region, &slot, range.end};
                const std::int64_t extent = extents[range.region];
                const bool untied = (slot.space == Space::tied_parameter && ranks_.tied_parameter_base < 0) ||
                                    (slot.space == Space::tied_gradient && ranks_.tied_gradient_base < 0);
                if (range.begin >= 0 && range.end <= extent && !untied) continue;
                fail(program_, kIndices, {.rank_class = c_},
                     text_of(list, segment) + ", body " + std::to_string(segment.body.value()) + ": slot '" +
                         slot.decl.name + "' lies at [" + std::to_string(range.begin) + ", " +
                         std::to_string(range.end) + ") of the " + std::string(name_of(range.region)) + " (" +
                         std::to_string(extent) + ")");
            }
        }
        return uses;
    }

    void check_segment_waits(SegmentListId list_index) const {
        const SegmentList& list = ranks_.segment_lists[list_index];
        for (const SegmentIndex s : list.indices()) {
            const Segment& segment = list[s];
            if (segment.wait_count < 0 || segment.first_wait < 0 ||
                !inside(std::int64_t{segment.first_wait} + segment.wait_count, ranks_.segment_waits.size() + 1)) {
                fail(program_, kIndices, {.rank_class = c_},
                     text_of(list_index, segment) + ": segment waits [" + std::to_string(segment.first_wait) + ", +" +
                         std::to_string(segment.wait_count) + ") of " + std::to_string(ranks_.segment_waits.size()));
            }
            for (std::int32_t w = 0; w < segment.wait_count; ++w) {
                const SegmentWait& wait = ranks_.segment_waits[static_cast<std::size_t>(segment.first_wait + w)];
                const std::string text =
                    text_of(list_index, segment) + ": it waits for segment " + std::to_string(wait.segment.value());
                if (wait.segment < 0 || wait.segment >= s) {
                    fail(program_, kIndices, {.rank_class = c_}, text + ", which is not an earlier one of the list");
                }
                const Body& other = body_of(list[wait.segment]);
                if (!inside(static_cast<std::int64_t>(wait.stream), kStreamCount) ||
                    other.stream_counts[wait.stream] == 0) {
                    fail(program_, kIndices, {.rank_class = c_},
                         text + ", which puts nothing on the stream " + std::string(name_of(wait.stream)));
                }
            }
        }
    }

    /// Checks that the action binds the frames and boundary buffers in which its slots lie, and that these exist.
    void check_action(ActionIndex a) const {
        const Action& action = ranks_.actions[a];
        const Site site{.rank_class = c_, .action = a};
        if (!inside(action.segments, ranks_.segment_lists)) {
            fail(program_, kIndices, site,
                 "segment list " + std::to_string(action.segments.value()) + " does not exist");
        }
        if (!inside(action.chunk, ranks_.chunks)) {
            fail(program_, kIndices, site,
                 "chunk " + std::to_string(action.chunk.value()) + " of " + std::to_string(ranks_.chunks.size()));
        }
        const Chunk& chunk = ranks_.chunks[action.chunk];
        for (const Region region : kRegions) {
            const Instance bound = bound_by(action, region);
            const std::int32_t count = instance_count(ranks_, chunk, bound.region);
            if (bound.index >= -1 && bound.index < count) continue;
            fail(program_, kIndices, site,
                 std::string(name_of(region)) + " " + std::to_string(bound.index) + " of " + std::to_string(count));
        }
        for (const Use& use : uses_[action.segments]) {
            if (bound_by(action, use.region).index < 0) {
                fail(program_, kIndices, site,
                     "it touches slot '" + use.slot->decl.name + "' in the " + std::string(name_of(use.region)) +
                         ", and the action binds none");
            }
            const std::int64_t extent = extent_of(ranks_, chunk, use.region);
            if (use.end <= extent) continue;
            fail(program_, kIndices, site,
                 "slot '" + use.slot->decl.name + "' reaches to " + std::to_string(use.end) + " of the " +
                     std::string(name_of(use.region)) + " (" + std::to_string(extent) + ")");
        }
    }

    [[nodiscard]] bool puts_on(const Action& action, Stream stream) const {
        const SegmentList& list = ranks_.segment_lists[action.segments];
        return std::any_of(list.begin(), list.end(),
                           [&](const Segment& segment) { return body_of(segment).stream_counts[stream] > 0; });
    }

    void check_waits(ActionIndex a) const {
        const Action& action = ranks_.actions[a];
        const Site site{.rank_class = c_, .action = a};
        if (action.wait_count < 0 || action.first_wait < 0 ||
            !inside(std::int64_t{action.first_wait} + action.wait_count, ranks_.waits.size() + 1)) {
            fail(program_, kIndices, site,
                 "waits [" + std::to_string(action.first_wait) + ", +" + std::to_string(action.wait_count) + ") of " +
                     std::to_string(ranks_.waits.size()));
        }
        for (std::int32_t w = 0; w < action.wait_count; ++w) {
            const Wait& wait = ranks_.waits[static_cast<std::size_t>(action.first_wait + w)];
            const std::string text = "it waits for action " + std::to_string(wait.action.value());
            const bool earlier = wait.steps_back == 1 || (wait.steps_back == 0 && wait.action < a);
            if (!inside(wait.action, ranks_.actions) || !earlier) {
                fail(program_, kIndices, site, text + ", which has not been issued before it");
            }
            if (!inside(static_cast<std::int64_t>(wait.stream), kStreamCount) ||
                !puts_on(ranks_.actions[wait.action], wait.stream)) {
                fail(program_, kIndices, site,
                     text + ", which puts nothing on the stream " + std::string(name_of(wait.stream)));
            }
        }
    }

    const Program& program_;
    ClassIndex c_;
    const RankClass& ranks_;
    const TouchedSlots& touched_;
    IndexedVector<SegmentListId, std::vector<Use>> uses_;
};

}  // namespace

void check_indices(const Program& program) {
    const Parallelism& p = program.plan->parallelism;
    const std::int64_t classes = is_replicated(program) ? std::min<std::int64_t>(p.dp, 2) : p.pp;
    if (static_cast<std::int64_t>(program.classes.size()) != classes) {
        fail(program, kIndices, {},
             std::to_string(program.classes.size()) + " classes for " + std::to_string(classes) +
                 (is_replicated(program) ? " kinds of replica" : " pipeline stages"));
    }
    for (const BodyId b : program.bodies.indices()) check_body(program, b);
    const TouchedSlots touched = touched_slots(program);
    for (const ClassIndex c : program.classes.indices()) ClassChecker(program, c, touched).run();
}

}  // namespace orrery::program::rules
