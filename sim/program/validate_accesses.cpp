// Rule "ordered accesses": two accesses to the same bytes, one of them a write, are ordered by a stream or by events.
// Rule "fresh values": a read finds the value that was written for it: in a frame or boundary buffer one of the same
// micro-batch, in a transient one of the same call, in a window or staging buffer one of the same layers.
//
// Each instruction has a vector clock: clock[s] instructions of stream s are known to have completed before it. Since
// streams are FIFOs, one number for each stream is enough, also for the last readers of a cell. Memory is cut into
// cells at every boundary of a slot, so that an access is a run of cells, usually a single one. The walk covers two
// steps, to compare the second step's accesses with the last ones of the first step.
#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

#include "sim/program/validate_rules.h"

namespace orrery::program::rules {
namespace {

constexpr std::string_view kFreshValues = "fresh values";

using Clock = PerStream<std::int32_t>;

/// The identity of the value in a cell: a read must expect the one that was written. kAnyValue, which matches
/// everything, stands for memory that is not reused for several values, and for hidden states, whose slots have several
/// names.
using ValueId = std::int64_t;
constexpr ValueId kAnyValue = -1;
constexpr ValueId kSameValue = -2;  // a write that keeps the identity: the value is reduced over ranks in place

/// The value of a layer's slot. Name 0: all activations that the layer saves, as one block of bytes.
constexpr ValueId layer_slot(std::int32_t layer, std::int32_t name) {
    return (static_cast<ValueId>(layer + 2) << 32) + name;  // layers count from -1
}
constexpr bool is_block(ValueId value) {
    return value >= 0 && (value & 0xffffffff) == 0;
}
constexpr bool matches(ValueId a, ValueId b) {
    if (a == b || a < 0 || b < 0) return true;
    return (is_block(a) || is_block(b)) && a >> 32 == b >> 32;
}

/// The cells of one access.
struct CellRun {
    Region region{};
    std::int32_t first = 0;
    std::int32_t last = 0;  // exclusive
    bool write = false;
    models::SlotIndex slot = models::kNoSlot;
    ValueId value = kAnyValue;
};

struct Cell {
    std::int32_t writer_position = 0;  // position on the stream over both steps, from 1; 0: never written
    Stream writer_stream{};
    bool reduced_in_place = false;  // by the last write
    ValueId writer_value = kAnyValue;
    Clock reader_positions{};  // by stream: position of the last read since the last write; 0: none
};

struct Touch {
    models::SlotIndex slot = models::kNoSlot;
    bool write = false;
    models::SlotIndex gradient = models::kNoSlot;  // of an operator that stages gradients or copies them back
    bool as_alias = false;                         // only where shards of gradients are parts of their buckets
};
/// The accesses of a body, which are the same for all classes.
struct BodyView {
    IndexedVector<InstructionIndex, std::vector<Touch>> touches;
    std::vector<models::SlotIndex> slots;                  // that it touches
    IndexedVector<models::SlotIndex, std::int32_t> names;  // slot names as numbers from 1, the same in all bodies
};

/// The operator's first slot in the space; kNoSlot: none.
models::SlotIndex operand_in(const Body& body, const models::Operator& op, Space space) {
    for (const models::Operands* operands : {&op.in, &op.out}) {
        for (const models::SlotIndex slot : *operands) {
            if (slot != models::kNoSlot && body.slots[slot].space == space) return slot;
        }
    }
    return models::kNoSlot;
}

/// The bucket whose shard a sum over the sets of shards changes; kNoSlot for other communication. Where in the bucket
/// the shard lies differs between the ranks of a class.
models::SlotIndex bucket_of_sum(const Body& body, const Communication& sum) {
    if (sum.axis != GroupAxis::dp_replicate) return models::kNoSlot;
    for (const Instruction& instruction : body.instructions) {
        const Communication& scatter = instruction.communication;
        const bool feeds = instruction.is_communication && scatter.axis != sum.axis && scatter.out == sum.in;
        if (feeds && body.slots[scatter.in].space == Space::gradient) return scatter.in;
    }
    return models::kNoSlot;
}

std::vector<Touch> touches_of(const Body& body, const Instruction& instruction) {
    std::vector<Touch> touches;
    const auto add = [&](models::SlotIndex slot, bool write, models::SlotIndex gradient) {
        if (slot != models::kNoSlot) touches.push_back({slot, write, gradient});
    };
    if (instruction.is_communication) {
        const Communication& comm = instruction.communication;
        // Only the root of a broadcast in place reads, and ranks of a class differ in whether they are the root.
        const bool receives = comm.kind == CommKind::broadcast && comm.in == comm.out;
        visit_accesses(body, instruction, [&](models::SlotIndex slot, bool write) {
            if (write || !receives) add(slot, write, models::kNoSlot);
        });
        const models::SlotIndex bucket = bucket_of_sum(body, comm);
        if (bucket != models::kNoSlot) touches.push_back({.slot = bucket, .write = true, .as_alias = true});
        return touches;
    }
    for (const models::Operator& op : operators_of(body, instruction)) {
        const bool stages = operand_in(body, op, Space::reduction) != models::kNoSlot;
        const models::SlotIndex gradient = stages ? operand_in(body, op, Space::gradient) : models::kNoSlot;
        for (const models::SlotIndex slot : op.in) add(slot, false, gradient);
        add(op.scratch, true, gradient);
        for (const models::SlotIndex slot : op.out) add(slot, true, gradient);
    }
    return touches;
}

IndexedVector<BodyId, BodyView> view_bodies(const Program& program) {
    std::map<std::string_view, std::int32_t> known;
    const TouchedSlots touched = touched_slots(program);
    IndexedVector<BodyId, BodyView> views(program.bodies.size());
    for (const BodyId b : views.indices()) {
        const Body& body = program.bodies[b];
        views[b].slots = touched[b];
        for (const Instruction& instruction : body.instructions) {
            views[b].touches.push_back(touches_of(body, instruction));
        }
        for (const Slot& slot : body.slots) {
            const auto next = static_cast<std::int32_t>(known.size()) + 1;
            views[b].names.push_back(known.try_emplace(slot.decl.name, next).first->second);
        }
    }
    return views;
}

/// The region whose cuts a region shares. A boundary buffer may be bound as several regions, so these share their cuts.
constexpr Region cuts_of(Region region) {
    return region > Region::host_frame ? Region::input_boundary : region;
}

/// The cells that each instruction of each segment accesses.
class CellMap {
  public:
    CellMap(const Program& program, const IndexedVector<BodyId, BodyView>& views, const RankClass& ranks)
        : program_(program), views_(views), ranks_(ranks) {
        for (const auto& list : ranks.segment_lists) {
            for (const Segment& segment : list) collect_cuts(segment);
        }
        for (auto& cuts : cuts_) {
            std::sort(cuts.begin(), cuts.end());
            cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
        }
        for (const auto& list : ranks.segment_lists) {
            auto& of_list = runs_.emplace_back();
            of_list.reserve(list.size());
            for (const Segment& segment : list) of_list.push_back(runs_of(segment));
        }
    }

    /// Whether the region, of parameters or gradients, is a window that units use in turn.
    [[nodiscard]] bool windowed(Region region) const {
        const bool alias = region == Region::parameter ? ranks_.parameter_shards_alias : ranks_.gradient_shards_alias;
        return ranks_.shard_elements > 0 && !alias;
    }
    [[nodiscard]] std::size_t cells_in(Region region) const { return cuts_[cuts_of(region)].size(); }
    [[nodiscard]] const std::vector<CellRun>& runs(const Action& action, const Call& call) const {
        return runs_[action.segments][call.segment][call.instruction];
    }

  private:
    using SegmentRuns = IndexedVector<InstructionIndex, std::vector<CellRun>>;  // by access

    void collect_cuts(const Segment& segment) {
        const Body& body = program_.bodies[segment.body];
        for (const models::SlotIndex slot : views_[segment.body].slots) {
            const MemoryRange range = resolve(ranks_, body.phase, segment, body.slots[slot]);
            auto& cuts = cuts_[cuts_of(range.region)];
            cuts.insert(cuts.end(), {range.begin, range.end});
            if (body.phase == Phase::forward && range.region == Region::offload_window) {
                const std::int64_t base = segment.activation_base;
                saved_[segment.layer].emplace(range.begin - base, range.end - base);
            }
        }
    }

    [[nodiscard]] SegmentRuns runs_of(const Segment& segment) const {
        const Body& body = program_.bodies[segment.body];
        const BodyView& view = views_[segment.body];
        IndexedVector<models::SlotIndex, std::vector<CellRun>> of_slot(body.slots.size());  // from its first access on
        SegmentRuns result(body.instructions.size());
        for (const InstructionIndex i : result.indices()) {
            result[i].reserve(view.touches[i].size());
            for (const Touch& touch : view.touches[i]) {
                if (touch.as_alias && !ranks_.gradient_shards_alias) continue;
                std::vector<CellRun>& runs = of_slot[touch.slot];
                if (runs.empty()) runs = find_runs(body, segment, touch);
                const ValueId value = value_of(body, segment, touch, view.names[touch.slot]);
                for (CellRun run : runs) {
                    run.write = touch.write;
                    run.value = value;
                    result[i].push_back(run);
                }
            }
        }
        return result;
    }

    /// The runs of the slot's used parts, usually one.
    [[nodiscard]] std::vector<CellRun> find_runs(const Body& body, const Segment& segment, const Touch& touch) const {
        const Slot& slot = body.slots[touch.slot];
        const MemoryRange range = resolve(ranks_, body.phase, segment, slot);
        const auto& cuts = cuts_[cuts_of(range.region)];
        const auto cell = [&](std::int64_t cut) {
            return static_cast<std::int32_t>(std::lower_bound(cuts.begin(), cuts.end(), cut) - cuts.begin());
        };
        std::vector<CellRun> runs;
        const auto add = [&](std::int64_t begin, std::int64_t end) {
            const std::int32_t last = cell(std::min(end, range.end));
            runs.push_back({.region = range.region, .first = cell(begin), .last = last, .slot = touch.slot});
        };
        if (body.phase == Phase::offload && range.region == Region::offload_window && !touch.write &&
            saved_.contains(segment.layer)) {
            // A copy of a layer's saved activations reads only the slots that the forward pass has written.
            for (const auto& [begin, end] : saved_.at(segment.layer)) add(range.begin + begin, range.begin + end);
            return runs;
        }
        std::int64_t begin = range.begin;
        if (slot.space == Space::gradient && body.phase == Phase::reduce && windowed(Region::gradient)) {
            for (const auto& [from, to] : padding_of(segment, slot)) {  // a reduction of a unit does not read it
                add(begin, range.begin + from);
                begin = std::min(range.end, range.begin + to);
            }
        }
        add(begin, range.end);
        return runs;
    }

    /// The padding of parameters in a unit's gradients, relative to the slot's begin.
    [[nodiscard]] std::vector<std::pair<std::int64_t, std::int64_t>> padding_of(const Segment& segment,
                                                                                const Slot& slot) const {
        std::vector<std::pair<std::int64_t, std::int64_t>> padding;
        const auto bucket = std::find_if(ranks_.buckets.begin(), ranks_.buckets.end(), [&](const Bucket& one) {
            return (one.range == ParameterRange::expert) == (slot.range == ParameterRange::expert) &&
                   one.shard_offset == segment.shard_base[slot.range];
        });
        if (bucket == ranks_.buckets.end()) return padding;
        for (const Parameter& parameter : ranks_.parameters) {
            const std::int64_t from = parameter.offset + parameter.elements - bucket->offset - slot.offset;
            if (parameter.padding == 0 || from < 0 || from >= slot.decl.elements()) continue;
            padding.emplace_back(from, from + parameter.padding);
        }
        return padding;
    }

    [[nodiscard]] ValueId value_of(const Body& body, const Segment& segment, const Touch& touch,
                                   std::int32_t name) const {
        const Slot& slot = body.slots[touch.slot];
        if (body.phase == Phase::exchange) return kAnyValue;
        switch (slot.space) {
            case Space::activation:
            case Space::weight_copy:
                return layer_slot(segment.layer, body.phase == Phase::offload ? 0 : name);
            case Space::transient:  // lives in one call of one body, so that the layer does not matter
            case Space::optimizer:
                return layer_slot(-1, name);
            case Space::parameter:
            case Space::gradient: {
                const Region region = slot.space == Space::parameter ? Region::parameter : Region::gradient;
                return windowed(region) ? layer_slot(0, 1) + 4 * segment.shard_base[slot.range] : kAnyValue;
            }
            case Space::host:
                if (body.phase == Phase::offload) return layer_slot(segment.layer, 0);
                // Parameters and gradients have several names in host memory.
                if (slot.decl.role == models::SlotRole::parameter) return layer_slot(0, 1);
                return slot.decl.role == models::SlotRole::gradient ? layer_slot(1, 1) : layer_slot(2, name);
            case Space::reduction:  // identified by the offset of the gradients
                if (touch.gradient == models::kNoSlot) return touch.write ? kSameValue : kAnyValue;
                return resolve(ranks_, body.phase, segment, body.slots[touch.gradient]).begin;
            default:
                return kAnyValue;
        }
    }

    const Program& program_;
    const IndexedVector<BodyId, BodyView>& views_;
    const RankClass& ranks_;
    PerRegion<std::vector<std::int64_t>> cuts_;  // cell i is [cuts[i], cuts[i + 1])
    /// By layer: the ranges of its forward pass's slots in the offload window, relative to the layer's base.
    std::map<std::int32_t, std::set<std::pair<std::int64_t, std::int64_t>>> saved_;
    IndexedVector<SegmentListId, IndexedVector<SegmentIndex, SegmentRuns>> runs_;
};

class AccessWalk {
  public:
    AccessWalk(const Program& program, const IndexedVector<BodyId, BodyView>& views, const Trace& trace)
        : program_(program), trace_(trace), ranks_(program.classes[trace.rank_class]), map_(program, views, ranks_) {
        for (const Region region : kRegions) {
            scopes_[region] = scope_of(region);
            if (region == Region::gradient_out) continue;  // kept with the backward boundaries
            for (const ChunkIndex chunk : ranks_.chunks.indices()) {
                const std::int32_t count = instance_count(ranks_, ranks_.chunks[chunk], region);
                const bool has_any = chunk == 0 || region == Region::activation || region == Region::host_frame;
                cells_[region].emplace_back(has_any ? map_.cells_in(region) * static_cast<std::size_t>(count) : 0);
            }
        }
    }

    void run() {
        for (step_ = 0; step_ < 2; ++step_) {
            current_.swap(previous_);
            current_.resize(trace_.calls.size());
            for (std::size_t i = 0; i < trace_.calls.size(); ++i) {
                current_[i] = clock_of(trace_.calls[i]);
                visit(trace_.calls[i], current_[i]);
            }
        }
    }

  private:
    /// The cells of the instance of the region that the action binds.
    [[nodiscard]] Cell* cells_of(const Action& action, Region region) {
        if (!is_bound(region)) return cells_[region].front().data();
        const Instance bound = bound_by(action, region);
        return cells_[bound.region][bound.chunk].data() + static_cast<std::size_t>(bound.index) * map_.cells_in(region);
    }

    /// Adds to `clock` that the instruction at `position` on the stream, in this step or the previous one, has
    /// completed, together with that instruction's own clock.
    void join(Clock& clock, Stream stream, std::int32_t position, std::int32_t steps_back) const {
        if (position == 0 || steps_back > step_) return;
        const auto call = static_cast<std::size_t>(trace_.calls_on[stream][static_cast<std::size_t>(position - 1)]);
        const Clock& known = steps_back == 0 ? current_[call] : previous_[call];
        for (const Stream s : kStreams) clock[s] = std::max(clock[s], known[s]);
        clock[stream] = std::max(clock[stream], (step_ - steps_back) * trace_.count_on(stream) + position);
    }

    [[nodiscard]] Clock clock_of(const Call& call) const {
        Clock clock{};
        const bool first = call.position == 1;  // it follows the last one of the previous step
        join(clock, call.stream, first ? trace_.count_on(call.stream) : call.position - 1, first ? 1 : 0);
        for (const Event& event : events_of(trace_, call)) join(clock, event.stream, event.count, event.steps_back);
        return clock;
    }

    [[nodiscard]] const Call& call_at(Stream stream, std::int32_t position) const {
        const auto& calls = trace_.calls_on[stream];
        return call_of(trace_, calls[static_cast<std::size_t>(position - 1) % calls.size()]);
    }

    template <typename... T>
    [[noreturn]] void refuse(std::string_view rule, const Call& call, const CellRun& run, Form<T...> form,
                             const T&... values) const {
        const Segment& segment = ranks_.segment_lists[ranks_.actions[call.action].segments][call.segment];
        fail(program_, rule, site_of(trace_, call), "its {} of slot '{}' in the {} {}", run.write ? "write" : "read",
             program_.bodies[segment.body].slots[run.slot].decl.name, run.region, text(form, values...));
    }
    [[nodiscard]] std::string described(const Call& call) const { return describe(program_, site_of(trace_, call)); }

    void check_ordered(const Call& call, const Clock& clock, const CellRun& run, Stream stream, std::int32_t position,
                       std::string_view earlier_access) const {
        if (position <= clock[stream]) return;
        // Accesses within one instruction are ordered. The same instruction of the previous step has another position.
        if (stream == call.stream && position == position_of(call)) return;
        refuse("ordered accesses", call, run, "is not ordered after the {} by {}", earlier_access,
               described(call_at(stream, position)));
    }

    /// What a read and the write of its value must have in common: nothing, the step, the step and the micro-batch, or
    /// the step and the call of a body, which may run in parts.
    enum class Scope : std::uint8_t { any, step, micro_batch, call };
    [[nodiscard]] Scope scope_of(Region region) const {
        if (is_bound(region) || region == Region::offload_window) return Scope::micro_batch;
        if (region == Region::transient) return Scope::call;
        if (region == Region::weight_copy) return Scope::step;
        // torch DataParallel's inputs come from the host.
        if (region == Region::reduction && !is_replicated(*program_.plan)) return Scope::step;
        if (region == Region::parameter && map_.windowed(region)) return Scope::step;
        if (region == Region::gradient && map_.windowed(region)) return Scope::micro_batch;
        return Scope::any;
    }

    [[nodiscard]] bool same_call(const Call& a, const Call& b) const {
        if (a.action == b.action && a.segment == b.segment) return true;
        const BodyId whole = program_.bodies[a.body].whole;
        if (whole < 0 || whole != program_.bodies[b.body].whole) return false;
        const auto facts = [&](const Call& call) {
            const Action& action = ranks_.actions[call.action];
            return std::tuple(action.kind, action.chunk, action.micro_batch,
                              ranks_.segment_lists[action.segments][call.segment].layer);
        };
        return facts(a) == facts(b);
    }

    void check_fresh(const Call& call, const CellRun& run, const Cell& cell) const {
        const Scope scope = scopes_[run.region];
        if (cell.writer_position == 0) {
            if (scope != Scope::any) refuse(kFreshValues, call, run, "finds bytes that nobody has written");
            return;
        }
        const Call& writer = call_at(cell.writer_stream, cell.writer_position);
        const std::int32_t writer_step = (cell.writer_position - 1) / trace_.count_on(cell.writer_stream);
        const auto micro_batch = [&](const Call& of) { return ranks_.actions[of.action].micro_batch; };
        bool fresh = matches(cell.writer_value, run.value) && (scope == Scope::any || writer_step == step_);
        if (scope == Scope::micro_batch) fresh = fresh && micro_batch(writer) == micro_batch(call);
        if (scope == Scope::call) fresh = fresh && same_call(writer, call);
        if (!fresh) refuse(kFreshValues, call, run, "finds what {} has written there", described(writer));
    }

    /// The position of the call on its stream over both steps, from 1.
    [[nodiscard]] std::int32_t position_of(const Call& call) const {
        return step_ * trace_.count_on(call.stream) + call.position;
    }

    void visit(const Call& call, const Clock& clock) {
        const Action& action = ranks_.actions[call.action];
        const std::int32_t position = position_of(call);
        for (const CellRun& run : map_.runs(action, call)) {
            Cell* cells = cells_of(action, run.region);
            for (std::int32_t i = run.first; i < run.last; ++i) {
                Cell& cell = cells[i];
                if (cell.writer_position > 0) {
                    check_ordered(call, clock, run, cell.writer_stream, cell.writer_position, "write");
                }
                if (!run.write) {
                    check_fresh(call, run, cell);
                    cell.reader_positions[call.stream] = position;
                    continue;
                }
                bool read = false;
                for (const Stream s : kStreams) {
                    if (cell.reader_positions[s] == 0) continue;
                    read = true;
                    check_ordered(call, clock, run, s, cell.reader_positions[s], "read");
                }
                const bool reduces = run.value == kSameValue;
                // Cells after the first one may be padding, which is never read.
                if (cell.reduced_in_place && !read && !reduces && i == run.first) {
                    refuse(kFreshValues, call, run, "overwrites reduced values that have not been read");
                }
                cell.reduced_in_place = reduces;
                cell.writer_position = position;
                cell.writer_stream = call.stream;
                if (!reduces) cell.writer_value = run.value;
                cell.reader_positions = {};
            }
        }
    }

    const Program& program_;
    const Trace& trace_;
    const RankClass& ranks_;
    CellMap map_;
    PerRegion<IndexedVector<ChunkIndex, std::vector<Cell>>> cells_;  // frames: of each chunk; others: of chunk 0
    PerRegion<Scope> scopes_{};
    std::int32_t step_ = 0;
    std::vector<Clock> previous_, current_;  // of the calls of the previous step and of this one
};

}  // namespace

void check_accesses(const Program& program, const Traces& traces) {
    const IndexedVector<BodyId, BodyView> views = view_bodies(program);
    for (const Trace& trace : traces) AccessWalk(program, views, trace).run();
}

}  // namespace orrery::program::rules
