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

#include "sim/program/validate_rules.h"

namespace orrery::program::rules {
namespace {

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

/// The accesses of a body, which are the same for all classes.
struct BodyView {
    struct Touch {
        models::SlotIndex slot = models::kNoSlot;
        bool write = false;
        models::SlotIndex gradient = models::kNoSlot;  // of an operator that stages gradients or copies them back
    };
    IndexedVector<InstructionIndex, std::vector<Touch>> touches;
    IndexedVector<models::SlotIndex, std::int32_t> names;  // slot names as numbers from 1, the same in all bodies
};

/// The slot of the gradient that the operator copies to or from a staging buffer; kNoSlot for other operators.
models::SlotIndex staged_gradient(const Body& body, const models::Operator& op) {
    const auto find = [&](Space space) {
        for (const models::Operands* operands : {&op.in, &op.out}) {
            for (const models::SlotIndex slot : *operands) {
                if (slot != models::kNoSlot && body.slots[slot].space == space) return slot;
            }
        }
        return models::kNoSlot;
    };
    return find(Space::reduction) == models::kNoSlot ? models::kNoSlot : find(Space::gradient);
}

IndexedVector<BodyId, BodyView> view_bodies(const Program& program) {
    std::map<std::string_view, std::int32_t> known;
    IndexedVector<BodyId, BodyView> views(program.bodies.size());
    for (const BodyId b : views.indices()) {
        const Body& body = program.bodies[b];
        for (const Instruction& instruction : body.instructions) {
            auto& touches = views[b].touches.emplace_back();
            const auto add = [&](models::SlotIndex slot, bool write, models::SlotIndex gradient) {
                if (slot != models::kNoSlot) touches.push_back({slot, write, gradient});
            };
            if (instruction.is_communication) {
                const Communication& comm = instruction.communication;
                // Only the root of a broadcast in place reads, and ranks of a class differ in whether they are the
                // root.
                const bool receives = comm.kind == CommKind::broadcast && comm.in == comm.out;
                for (const SlotAccess& access : accesses_of(body, instruction)) {
                    if (access.write || !receives) add(access.slot, access.write, models::kNoSlot);
                }
            }
            for (std::int32_t i = 0; i < instruction.operator_count; ++i) {
                const auto& op = body.operators[instruction.first_operator + i];
                const models::SlotIndex gradient = staged_gradient(body, op);
                for (const models::SlotIndex slot : op.in) add(slot, false, gradient);
                add(op.scratch, true, gradient);
                for (const models::SlotIndex slot : op.out) add(slot, true, gradient);
            }
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
        windowed_parameters_ = ranks.shard_elements > 0 && !ranks.parameter_shards_alias;
        windowed_gradients_ = ranks.shard_elements > 0 && !ranks.gradient_shards_alias;
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

    /// Whether the region is a window that units use in turn.
    [[nodiscard]] bool windowed(Region region) const {
        return (region == Region::parameter && windowed_parameters_) ||
               (region == Region::gradient && windowed_gradients_);
    }
    [[nodiscard]] std::size_t cells_in(Region region) const { return cuts_[cuts_of(region)].size(); }
    [[nodiscard]] const std::vector<CellRun>& runs(const Action& action, const Call& call) const {
        return runs_[action.segments][call.segment][call.instruction];
    }

  private:
    using SegmentRuns = IndexedVector<InstructionIndex, std::vector<CellRun>>;  // by access

    void collect_cuts(const Segment& segment) {
        const Body& body = program_.bodies[segment.body];
        IndexedVector<models::SlotIndex, bool> seen(body.slots.size());
        for (const auto& touches : views_[segment.body].touches) {
            for (const BodyView::Touch& touch : touches) {
                if (seen[touch.slot]) continue;
                seen[touch.slot] = true;
                const MemoryRange range = resolve(ranks_, body.phase, segment, body.slots[touch.slot]);
                auto& cuts = cuts_[cuts_of(range.region)];
                cuts.push_back(range.begin);
                cuts.push_back(range.end);
                if (body.phase == Phase::forward && range.region == Region::offload_window) {
                    saved_[segment.layer].emplace(range.begin - segment.activation_base,
                                                  range.end - segment.activation_base);
                }
            }
        }
    }

    [[nodiscard]] SegmentRuns runs_of(const Segment& segment) const {
        const Body& body = program_.bodies[segment.body];
        const BodyView& view = views_[segment.body];
        IndexedVector<models::SlotIndex, std::vector<CellRun>> of_slot(
            body.slots.size());  // computed at a slot's first access
        SegmentRuns result(body.instructions.size());
        for (const InstructionIndex i : result.indices()) {
            result[i].reserve(view.touches[i].size());
            for (const BodyView::Touch& touch : view.touches[i]) {
                const Slot& slot = body.slots[touch.slot];
                std::vector<CellRun>& runs = of_slot[touch.slot];
                if (runs.empty()) runs = find_runs(body, segment, touch, view.names[touch.slot]);
                for (CellRun run : runs) {
                    run.write = touch.write;
                    if (slot.space == Space::reduction && body.phase != Phase::exchange) {
                        run.value = staged_value(body, segment, touch);
                    }
                    result[i].push_back(run);
                }
            }
        }
        return result;
    }

    /// One run, or several if the slot contains unused bytes: a copy of a layer's saved activations reads only the
    /// slots that the forward pass has written, and a reduction of a unit's gradients does not read the padding.
    [[nodiscard]] std::vector<CellRun> find_runs(const Body& body, const Segment& segment, const BodyView::Touch& touch,
                                                 std::int32_t name) const {
        const Slot& slot = body.slots[touch.slot];
        const MemoryRange range = resolve(ranks_, body.phase, segment, slot);
        const auto& cuts = cuts_[cuts_of(range.region)];
        const auto cell = [&](std::int64_t cut) {
            return static_cast<std::int32_t>(std::lower_bound(cuts.begin(), cuts.end(), cut) - cuts.begin());
        };
        CellRun run{.region = range.region,
                    .first = cell(range.begin),
                    .last = cell(range.end),
                    .slot = touch.slot,
                    .value = value_of(body, segment, slot, name)};
        if (body.phase == Phase::offload && range.region == Region::offload_window && !touch.write) {
            std::vector<CellRun> runs;
            for (const auto& [begin, end] : saved_.at(segment.layer)) {
                run.first = cell(range.begin + begin);
                run.last = cell(std::min(range.begin + end, range.end));
                if (run.first < run.last) runs.push_back(run);
            }
            return runs;
        }
        if (slot.space != Space::gradient || !windowed_gradients_ || body.phase != Phase::reduce) return {run};
        const auto bucket = std::find_if(ranks_.buckets.begin(), ranks_.buckets.end(), [&](const Bucket& one) {
            return (one.range == ParameterRange::expert) == (slot.range == ParameterRange::expert) &&
                   one.shard_offset == segment.shard_base[slot.range];
        });
        if (bucket == ranks_.buckets.end()) return {run};
        std::vector<CellRun> runs;
        const std::int64_t flat = bucket->offset + slot.offset;
        const std::int32_t last = run.last;
        for (const Parameter& parameter : ranks_.parameters) {
            const std::int64_t padding = parameter.offset + parameter.elements;
            if (parameter.padding == 0 || padding < flat || padding >= flat + slot.decl.elements()) continue;
            run.last = cell(range.begin + padding - flat);
            runs.push_back(run);
            run.first = std::min(last, cell(range.begin + padding + parameter.padding - flat));
        }
        run.last = last;
        if (run.first < run.last) runs.push_back(run);
        return runs;
    }

    /// The value in a staging buffer is identified by the offset of its gradients.
    [[nodiscard]] ValueId staged_value(const Body& body, const Segment& segment, const BodyView::Touch& touch) const {
        if (touch.gradient == models::kNoSlot) return touch.write ? kSameValue : kAnyValue;
        return resolve(ranks_, body.phase, segment, body.slots[touch.gradient]).begin;
    }

    [[nodiscard]] ValueId value_of(const Body& body, const Segment& segment, const Slot& slot,
                                   std::int32_t name) const {
        if (body.phase == Phase::exchange) return kAnyValue;
        switch (slot.space) {
            case Space::activation:
            case Space::weight_copy:
                return layer_slot(segment.layer, body.phase == Phase::offload ? 0 : name);
            case Space::transient:  // lives in one call of one body, so that the layer does not matter
            case Space::optimizer:
                return layer_slot(-1, name);
            case Space::parameter:
                return windowed_parameters_ ? layer_slot(0, 1) + 4 * segment.shard_base[slot.range] : kAnyValue;
            case Space::gradient:
                return windowed_gradients_ ? layer_slot(0, 1) + 4 * segment.shard_base[slot.range] : kAnyValue;
            case Space::host:
                if (body.phase == Phase::offload) return layer_slot(segment.layer, 0);
                // Parameters and gradients have several names in host memory.
                if (slot.decl.role == models::SlotRole::parameter) return layer_slot(0, 1);
                return slot.decl.role == models::SlotRole::gradient ? layer_slot(1, 1) : layer_slot(2, name);
            case Space::parameter_shard:
            case Space::gradient_shard:
            case Space::reduction:
            case Space::tied_parameter:
            case Space::tied_gradient:
            case Space::hidden_in:
            case Space::hidden_out:
            case Space::hidden_gradient:
            case Space::hidden_gradient_out:
            case Space::scalars:
                break;
        }
        return kAnyValue;
    }

    const Program& program_;
    const IndexedVector<BodyId, BodyView>& views_;
    const RankClass& ranks_;
    bool windowed_parameters_ = false, windowed_gradients_ = false;
    PerRegion<std::vector<std::int64_t>> cuts_;  // cell i is [cuts[i], cuts[i + 1])
    /// By layer: the ranges of its forward pass's slots in the offload window, relative to the layer's base.
    std::map<std::int32_t, std::set<std::pair<std::int64_t, std::int64_t>>> saved_;
    IndexedVector<SegmentListId, IndexedVector<SegmentIndex, SegmentRuns>> runs_;
};

class AccessWalk {
  public:
    AccessWalk(const Program& program, const IndexedVector<BodyId, BodyView>& views, const Trace& trace)
        : program_(program), trace_(trace), ranks_(program.classes[trace.rank_class]), map_(program, views, ranks_) {
        for (const Chunk& chunk : ranks_.chunks) {
            first_frame_.push_back(frames_);
            frames_ += chunk.frame_count;
        }
        for (const Region region : kRegions) {
            cells_[region].resize(map_.cells_in(region) * static_cast<std::size_t>(instances(region)));
        }
    }

    void run() {
        std::vector<Clock> previous;
        std::vector<Clock> current(trace_.calls.size());
        for (step_ = 0; step_ < 2; ++step_) {
            for (std::size_t i = 0; i < trace_.calls.size(); ++i) {
                current[i] = clock_of(i, previous, current);
                visit(trace_.calls[i], current[i]);
            }
            previous.swap(current);
            current.resize(trace_.calls.size());
        }
    }

  private:
    [[nodiscard]] std::int32_t instances(Region region) const {
        if (region == Region::gradient_out) return 0;  // kept with the backward boundaries
        if (region == Region::activation || region == Region::host_frame) return frames_;
        return instance_count(ranks_, ranks_.chunks.front(), region);
    }

    /// The cells of the region, or of its instance that the action binds.
    [[nodiscard]] Cell* cells_of(const Action& action, Region region) {
        if (!is_bound(region)) return cells_[region].data();
        const Instance bound = bound_by(action, region);
        auto index = static_cast<std::size_t>(bound.index);
        if (region == Region::activation || region == Region::host_frame) {
            index += static_cast<std::size_t>(first_frame_[bound.chunk]);
        }
        return cells_[bound.region].data() + index * map_.cells_in(region);
    }

    /// Adds to `clock` that the instruction at `position` on the stream, in this step or the previous one, has
    /// completed, together with that instruction's own clock.
    void join(Clock& clock, Stream stream, std::int32_t position, std::int32_t steps_back,
              const std::vector<Clock>& previous, const std::vector<Clock>& current) const {
        if (position == 0 || steps_back > step_) return;
        const auto call = static_cast<std::size_t>(trace_.calls_on[stream][static_cast<std::size_t>(position - 1)]);
        const Clock& known = steps_back == 0 ? current[call] : previous[call];
        for (const Stream s : kStreams) clock[s] = std::max(clock[s], known[s]);
        clock[stream] = std::max(clock[stream], (step_ - steps_back) * trace_.count_on(stream) + position);
    }

    [[nodiscard]] Clock clock_of(std::size_t index, const std::vector<Clock>& previous,
                                 const std::vector<Clock>& current) const {
        const Call& call = trace_.calls[index];
        Clock clock{};
        if (call.position > 1) {
            join(clock, call.stream, call.position - 1, 0, previous, current);
        } else {
            join(clock, call.stream, trace_.count_on(call.stream), 1, previous, current);
        }
        for (std::int32_t e = 0; e < call.event_count; ++e) {
            const Event& event = trace_.events[static_cast<std::size_t>(call.first_event + e)];
            join(clock, event.stream, event.count, event.steps_back, previous, current);
        }
        return clock;
    }

    [[nodiscard]] const Call& call_at(Stream stream, std::int32_t position) const {
        const auto& calls = trace_.calls_on[stream];
        const auto index = static_cast<std::size_t>(position - 1) % calls.size();
        return trace_.calls[static_cast<std::size_t>(calls[index])];
    }

    [[noreturn]] void fail_at(std::string_view rule, const Call& call, const CellRun& run,
                              const std::string& what) const {
        const Action& action = ranks_.actions[call.action];
        const Segment& segment = ranks_.segment_lists[action.segments][call.segment];
        const Body& body = program_.bodies[segment.body];
        fail(program_, rule, site_of(trace_, call),
             "its " + std::string(run.write ? "write" : "read") + " of slot '" + body.slots[run.slot].decl.name +
                 "' in the " + std::string(name_of(run.region)) + " " + what);
    }

    void check_ordered(const Call& call, const Clock& clock, const CellRun& run, Stream stream, std::int32_t position,
                       std::string_view earlier_access) const {
        if (position <= clock[stream]) return;
        const Call& earlier = call_at(stream, position);
        // Accesses within one instruction are ordered. The same instruction of the previous step has another position.
        const std::int32_t own = step_ * trace_.count_on(call.stream) + call.position;
        if (stream == call.stream && position == own) return;
        fail_at("ordered accesses", call, run,
                "is not ordered after the " + std::string(earlier_access) + " by " +
                    describe(program_, site_of(trace_, earlier)));
    }

    /// What a read and the write of its value must have in common: nothing, the step, the step and the micro-batch, or
    /// the step and the call of a body.
    enum class Scope : std::uint8_t { any, step, micro_batch, call };
    [[nodiscard]] Scope scope_of(Region region) const {
        switch (region) {
            case Region::activation:
            case Region::host_frame:
            case Region::offload_window:
            case Region::input_boundary:
            case Region::forward_boundary:
            case Region::backward_boundary:
            case Region::gradient_out:
                return Scope::micro_batch;
            case Region::transient:
                return Scope::call;
            case Region::weight_copy:
                return Scope::step;
            case Region::reduction:  // torch DataParallel's inputs come from the host
                return is_replicated(program_) ? Scope::any : Scope::step;
            case Region::parameter:
                return map_.windowed(region) ? Scope::step : Scope::any;
            case Region::gradient:
                return map_.windowed(region) ? Scope::micro_batch : Scope::any;
            case Region::parameter_shard:
            case Region::gradient_shard:
            case Region::optimizer:
            case Region::host:
            case Region::scalars:
                break;
        }
        return Scope::any;
    }

    void check_fresh(const Call& call, const CellRun& run, const Cell& cell) const {
        constexpr std::string_view kRule = "fresh values";
        const Scope scope = scope_of(run.region);
        if (cell.writer_position == 0) {
            if (scope != Scope::any) fail_at(kRule, call, run, "finds bytes that nobody has written");
            return;
        }
        const Call& writer = call_at(cell.writer_stream, cell.writer_position);
        const std::int32_t writer_step = (cell.writer_position - 1) / trace_.count_on(cell.writer_stream);
        const auto micro_batch = [&](const Call& of) { return ranks_.actions[of.action].micro_batch; };
        bool fresh = scope == Scope::any || writer_step == step_;
        if (scope == Scope::micro_batch) fresh = fresh && micro_batch(writer) == micro_batch(call);
        if (scope == Scope::call) fresh = fresh && writer.action == call.action && writer.segment == call.segment;
        fresh = fresh && matches(cell.writer_value, run.value);
        if (!fresh) {
            fail_at(kRule, call, run,
                    "finds what " + describe(program_, site_of(trace_, writer)) + " has written there");
        }
    }

    void visit(const Call& call, const Clock& clock) {
        const Action& action = ranks_.actions[call.action];
        const std::int32_t position = step_ * trace_.count_on(call.stream) + call.position;
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
                    fail_at("fresh values", call, run, "overwrites reduced values that have not been read");
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
    PerRegion<std::vector<Cell>> cells_;
    IndexedVector<ChunkIndex, std::int32_t> first_frame_;
    std::int32_t frames_ = 0;  // of all chunks
    std::int32_t step_ = 0;
};

}  // namespace

void check_accesses(const Program& program, const IndexedVector<ClassIndex, Trace>& traces) {
    const IndexedVector<BodyId, BodyView> views = view_bodies(program);
    for (const Trace& trace : traces) AccessWalk(program, views, trace).run();
}

}  // namespace orrery::program::rules
