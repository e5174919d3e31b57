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
    return inside(index.value(), list.size());
}
/// Whether [first, first + count) is a part of a list of that size.
bool is_part(std::int64_t first, std::int64_t count, std::size_t size) {
    return first >= 0 && count >= 0 && inside(first + count, size + 1);
}
bool is_stream(Stream stream) {
    return inside(static_cast<std::int64_t>(stream), kStreamCount);
}
bool is_range(ParameterRange range) {
    return inside(static_cast<std::int64_t>(range), kParameterRanges);
}

/// Whether the communication may be issued on the stream.
bool may_run_on(const Communication& comm, Stream stream) {
    const GroupAxis axis = comm.axis;
    if (is_pipeline(stream)) {
        return axis == axis_of(stream) && comm.kind == (is_send(stream) ? CommKind::send : CommKind::recv);
    }
    if (comm.kind == CommKind::send || comm.kind == CommKind::recv) return false;
    switch (stream) {
        case Stream::tp:  // vocabulary parallelism leaves the tensor-parallel stream free
            return axis == GroupAxis::tp || axis == GroupAxis::kv || axis == GroupAxis::pipeline;
        case Stream::cp:
            return axis == GroupAxis::cp;
        case Stream::ep:
            return axis == GroupAxis::ep || axis == GroupAxis::etp;
        case Stream::dp:
            return moves_buckets(axis) || axis == GroupAxis::embedding || axis == GroupAxis::model ||
                   axis == GroupAxis::world;
        case Stream::dp_gather:
            return moves_buckets(axis);
        default:
            return stream == Stream::dp_replicate && axis == GroupAxis::dp_replicate;
    }
}

class BodyChecker {
  public:
    BodyChecker(const Program& program, BodyId b) : program_(program), b_(b), body_(program.bodies[b]) {}

    void run() const {
        for (const models::SlotIndex s : body_.slots.indices()) {
            if (body_.slots[s].bytes < 0) refuse("slot {} has a negative size", s);
        }
        std::set<std::string_view> names;
        PerStream<std::int32_t> counts{};
        for (const InstructionIndex i : body_.instructions.indices()) {
            const Instruction& instruction = body_.instructions[i];
            check_instruction(i, instruction);
            ++counts[instruction.stream];
            if (!names.insert(instruction.name).second) refuse("two instructions are named '{}'", instruction.name);
        }
        if (counts != body_.stream_counts) refuse("stream_counts do not match its instructions");
        if (body_.whole >= 0 || body_.first_in_whole != 0) check_part();
    }

  private:
    template <typename... T>
    [[noreturn]] void refuse(Form<T...> form, const T&... values) const {
        fail(program_, kIndices, {}, "body {}: {}", b_, text(form, values...));
    }
    /// The body is a part of another one: it has the same slots, and instructions of the same names and operators.
    void check_part() const {
        const auto first = body_.first_in_whole;
        const bool exists = inside(body_.whole, program_.bodies) && program_.bodies[body_.whole].whole < 0;
        if (!exists || !is_part(first.value(), static_cast<std::int32_t>(body_.instructions.size()),
                                program_.bodies[body_.whole].instructions.size())) {
            refuse("it is no part of body {}", body_.whole);
        }
        const Body& whole = program_.bodies[body_.whole];
        if (body_.slots != whole.slots || body_.phase != whole.phase) refuse("its slots are not those of its whole");
        for (const InstructionIndex i : body_.instructions.indices()) {
            const Instruction& own = body_.instructions[i];
            const Instruction& other = whole.instructions[first + i.value()];
            if (own.name == other.name && own.stream == other.stream && own.communication == other.communication &&
                own.operator_count == other.operator_count) {
                continue;
            }
            refuse(own, "is not '{}' of the whole body {}", other.name, body_.whole);
        }
    }

    template <typename... T>
    [[noreturn]] void refuse(const Instruction& instruction, Form<T...> form, const T&... values) const {
        refuse("instruction '{}' {}", instruction.name, text(form, values...));
    }

    void check_instruction(InstructionIndex i, const Instruction& instruction) const {
        if (!is_stream(instruction.stream)) refuse(instruction, "is on no stream");
        for (const InstructionIndex earlier : instruction.after) {
            if (earlier >= 0 && earlier < i) continue;
            refuse(instruction, "(index {}) comes after instruction {}, which is not an earlier one of the body", i,
                   earlier);
        }
        if (instruction.is_communication == is_local(instruction.stream)) {
            refuse(instruction, "is on the stream {}", instruction.stream);
        }
        const std::int32_t first = instruction.first_operator.value(), count = instruction.operator_count;
        if (instruction.is_communication && count != 0) refuse(instruction, "communicates and runs operators");
        if (!instruction.is_communication && !is_part(first, count, body_.operators.size())) {
            refuse(instruction, "runs operators [{}, +{}) of {}", first, count, body_.operators.size());
        }
        visit_accesses(body_, instruction, [&](models::SlotIndex slot, bool) {
            if (!inside(slot, body_.slots)) refuse(instruction, "names slot {} of {}", slot, body_.slots.size());
        });
        if (instruction.is_communication) check_communication(instruction);
    }

    void check_communication(const Instruction& instruction) const {
        const Communication& comm = instruction.communication;
        const bool reads = comm.kind != CommKind::recv, writes = comm.kind != CommKind::send;
        const bool has_input = comm.in != models::kNoSlot, has_output = comm.out != models::kNoSlot;
        const bool may_lack_input = comm.kind == CommKind::scatter;  // on a rank that is not the root
        if ((reads != has_input && !(may_lack_input && !has_input)) || writes != has_output) {
            refuse(instruction, "does not have the slots that a {} needs", comm.kind);
        }
        if (comm.elements <= 0) refuse(instruction, "moves {} elements", comm.elements);
        if (!may_run_on(comm, instruction.stream)) {
            refuse(instruction, "is a {} of the axis {} on the stream {}", comm.kind, comm.axis, instruction.stream);
        }
        const std::int64_t members = std::max<std::int64_t>(1, program_.mesh->group_size(comm.axis));
        if (comm.root < 0 || comm.root >= members) {
            refuse(instruction, "has root {} in a group of {}", comm.root, members);
        }
        // The larger of the two slots has the message size. Excepted are the axes of gradients and parameters: buckets
        // are padded, and with torch DataParallel only the master has the whole message.
        const auto bytes = [&](models::SlotIndex slot) {
            return slot == models::kNoSlot ? 0 : body_.slots[slot].bytes;
        };
        const std::int64_t held = std::max(bytes(comm.in), bytes(comm.out));
        if (!moves_buckets(comm.axis) && comm.elements > held / size_of(comm.dtype)) {
            refuse(instruction, "moves {} elements of a slot of {} bytes", comm.elements, held);
        }
    }

    const Program& program_;
    BodyId b_;
    const Body& body_;
};

/// The end of the highest slot of a region that a segment list touches; null: it touches none.
struct Use {
    const Slot* slot = nullptr;
    std::int64_t end = 0;
};

class ClassChecker : ClassRule {
  public:
    ClassChecker(const Program& program, ClassIndex c, const TouchedSlots& touched)
        : ClassRule(program, c, kIndices), touched_(touched) {}

    void run() {
        check_pools();
        for (const SegmentListId list : ranks_.segment_lists.indices()) {
            uses_.push_back(check_ranges(list));
            check_segment_waits(list);
        }
        for (const ActionIndex a : ranks_.actions.indices()) check_action(a);
        for (const ActionIndex a : ranks_.actions.indices()) check_waits(a);
        for (const Parameter& parameter : ranks_.parameters) {
            if (inside(parameter.chunk, ranks_.chunks) && is_range(parameter.range)) continue;
            refuse("'{}' has a chunk or a range that does not exist", parameter.name);
        }
        for (const Bucket& bucket : ranks_.buckets) {
            if (!is_range(bucket.range)) refuse("a bucket has a range that does not exist");
        }
    }

  private:
    [[nodiscard]] const Body& body_of(const Segment& segment) const { return program_.bodies[segment.body]; }

    void check_pools() const {
        const auto chunks = static_cast<std::int64_t>(ranks_.chunks.size());
        if (chunks < 1) refuse("it has no chunk");
        const std::int64_t batches = plan_.micro_batches();
        const auto check = [&](std::int64_t count, std::int64_t most) {
            if (count < 0 || count > most) refuse("a pool of {} buffers for {} micro-batches", count, batches);
        };
        for (const Chunk& chunk : ranks_.chunks) check(chunk.frame_count, batches);
        check(ranks_.input_boundary_count, batches * chunks);
        check(ranks_.forward_boundary_count, batches * chunks);
        check(ranks_.backward_boundary_count, 2 * batches * chunks);  // gradients of outputs and of inputs
    }

    /// Checks that bodies exist and that the slots that their instructions touch lie inside the memory of the class.
    /// Frames differ by chunk, so that check_action compares them.
    [[nodiscard]] PerRegion<Use> check_ranges(SegmentListId list) const {
        PerRegion<Use> uses{};
        PerRegion<std::int64_t> extents{};
        const Chunk any{.frame_bytes = std::numeric_limits<std::int64_t>::max(),
                        .host_frame_bytes = std::numeric_limits<std::int64_t>::max()};
        for (const Region region : kRegions) extents[region] = extent_of(ranks_, any, region);
        for (const Segment& segment : ranks_.segment_lists[list]) {
            if (!inside(segment.body, program_.bodies)) refuse("segment list {} calls body {}", list, segment.body);
            const Body& body = body_of(segment);
            for (const models::SlotIndex index : touched_[segment.body]) {
                const Slot& slot = body.slots[index];
                if (!is_range(slot.range)) refuse("slot '{}' has a range that does not exist", slot.decl.name);
                const MemoryRange range = resolve(ranks_, body.phase, segment, slot);
                Use& known = uses[range.region];
                if (known.slot == nullptr || range.end > known.end) known = {&slot, range.end};
                const bool untied = (slot.space == Space::tied_parameter && ranks_.tied_parameter_base < 0) ||
                                    (slot.space == Space::tied_gradient && ranks_.tied_gradient_base < 0);
                if (range.begin >= 0 && range.end <= extents[range.region] && !untied) continue;
                refuse("segment list {}, layer {}, body {}: slot '{}' lies at [{}, {}) of the {} ({})", list,
                       segment.layer, segment.body, slot.decl.name, range.begin, range.end, range.region,
                       extents[range.region]);
            }
        }
        return uses;
    }

    void check_segment_waits(SegmentListId id) const {
        const SegmentList& list = ranks_.segment_lists[id];
        for (const SegmentIndex s : list.indices()) {
            const std::int32_t first = list[s].first_wait, count = list[s].wait_count;
            if (!is_part(first, count, ranks_.segment_waits.size())) {
                refuse("segment {} of list {}: waits [{}, +{}) of {}", s, id, first, count,
                       ranks_.segment_waits.size());
            }
            for (const SegmentWait& wait : part(ranks_.segment_waits, first, count)) {
                if (wait.segment < 0 || wait.segment >= s) {
                    refuse("segment {} of list {} waits for segment {}, which is not an earlier one of the list", s, id,
                           wait.segment);
                }
                if (is_stream(wait.stream) && body_of(list[wait.segment]).stream_counts[wait.stream] > 0) continue;
                refuse("segment {} of list {} waits for segment {}, which puts nothing on the stream {}", s, id,
                       wait.segment, wait.stream);
            }
        }
    }

    /// Checks that the action binds the frames and boundary buffers in which its slots lie, and that these exist.
    void check_action(ActionIndex a) const {
        const Action& action = ranks_.actions[a];
        if (!inside(action.segments, ranks_.segment_lists))
            refuse(a, "segment list {} does not exist", action.segments);
        if (!inside(action.chunk, ranks_.chunks)) refuse(a, "chunk {} of {}", action.chunk, ranks_.chunks.size());
        const Chunk& chunk = ranks_.chunks[action.chunk];
        for (const Region region : kRegions) {
            const Instance bound = bound_by(action, region);
            const std::int32_t count = instance_count(ranks_, chunk, bound.region);
            if (bound.index < -1 || bound.index >= count) refuse(a, "{} {} of {}", region, bound.index, count);
            const Use& use = uses_[action.segments][region];
            if (use.slot == nullptr) continue;
            const std::string_view slot = use.slot->decl.name;
            if (bound.index < 0) refuse(a, "it touches slot '{}' in the {}, and the action binds none", slot, region);
            const std::int64_t extent = extent_of(ranks_, chunk, region);
            if (use.end > extent) refuse(a, "slot '{}' reaches to {} of the {} ({})", slot, use.end, region, extent);
        }
    }

    [[nodiscard]] bool puts_on(const Action& action, Stream stream) const {
        const SegmentList& list = ranks_.segment_lists[action.segments];
        return std::any_of(list.begin(), list.end(),
                           [&](const Segment& segment) { return body_of(segment).stream_counts[stream] > 0; });
    }

    void check_waits(ActionIndex a) const {
        const Action& action = ranks_.actions[a];
        if (!is_part(action.first_wait, action.wait_count, ranks_.waits.size())) {
            refuse(a, "waits [{}, +{}) of {}", action.first_wait, action.wait_count, ranks_.waits.size());
        }
        for (const Wait& wait : part(ranks_.waits, action.first_wait, action.wait_count)) {
            const bool earlier = wait.steps_back == 1 || (wait.steps_back == 0 && wait.action < a);
            if (!inside(wait.action, ranks_.actions) || !earlier) {
                refuse(a, "it waits for action {}, which has not been issued before it", wait.action);
            }
            if (is_stream(wait.stream) && puts_on(ranks_.actions[wait.action], wait.stream)) continue;
            refuse(a, "it waits for action {}, which puts nothing on the stream {}", wait.action, wait.stream);
        }
    }

    const TouchedSlots& touched_;
    IndexedVector<SegmentListId, PerRegion<Use>> uses_;
};

}  // namespace

void check_indices(const Program& program) {
    const Parallelism& p = program.plan->parallelism;
    const std::int64_t classes = is_replicated(*program.plan) ? std::min<std::int64_t>(p.dp, 2) : p.pp;
    if (static_cast<std::int64_t>(program.classes.size()) != classes) {
        fail(program, kIndices, {}, "{} classes for {} {}", program.classes.size(), classes,
             is_replicated(*program.plan) ? "kinds of replica" : "pipeline stages");
    }
    for (const BodyId b : program.bodies.indices()) BodyChecker(program, b).run();
    const TouchedSlots touched = touched_slots(program);
    for (const ClassIndex c : program.classes.indices()) ClassChecker(program, c, touched).run();
}

}  // namespace orrery::program::rules
