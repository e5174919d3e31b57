// Rule "ordered accesses": two accesses to the same bytes, one of them a write, are ordered by a stream or by events.
// Rule "fresh values": what is read was written for that purpose: from a frame or boundary for the same micro-batch,
// from a transient by the same call, from a window or staging buffer for the same layers.
//
// Each rank's streams carry vector clocks: clock[s] is how many instructions of stream s are known to have completed.
// Since streams are FIFOs, one number a stream is enough, for the clock and for the last readers of a cell. Memory is
// cut into cells at every boundary of a slot, so an access is a run of cells, mostly one. The walk goes over two steps,
// so that what the second step reuses is compared with the first one's last uses.
#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "sim/program/validate_rules.h"

namespace orrery::program::rules {
namespace {

using Clock = PerStream<std::int32_t>;

/// What the bytes stand for; a value is read as what it was written as. Hidden states and what exists once go by
/// several names.
using Owner = std::int64_t;
constexpr Owner kAnyOwner = -1;
constexpr Owner kSameOwner = -2;  // of a write: whatever stood there, now reduced over ranks

/// A slot of a layer; name 0: everything that the layer keeps, as one block of bytes.
constexpr Owner layer_slot(std::int32_t layer, std::int32_t name) {
    return (static_cast<Owner>(layer + 2) << 32) + name;  // layers count from -1
}
constexpr bool is_block(Owner owner) {
    return owner >= 0 && (owner & 0xffffffff) == 0;
}
constexpr bool matches(Owner a, Owner b) {
    if (a == b || a < 0 || b < 0) return true;
    return (is_block(a) || is_block(b)) && a >> 32 == b >> 32;
}

struct CellRun {
    Region region{};
    std::int32_t first = 0;
    std::int32_t last = 0;  // exclusive
    bool write = false;
    models::SlotIndex slot = models::kNoSlot;
    Owner owner = kAnyOwner;
};

struct Cell {
    std::int32_t writer_position = 0;  // 1 for the stream's first instruction of the first step; 0: nobody
    Stream writer_stream{};
    bool reduced_in_place = false;
    Owner writer_owner = kAnyOwner;
    Clock reader_positions{};  // last read since the last write, by stream
};

/// What the classes' walks need of a body, worked out once.
struct BodyView {
    struct Touch {
        models::SlotIndex slot = models::kNoSlot;
        bool write = false;
        models::SlotIndex gradient = models::kNoSlot;  // the gradients that an operator stages, or copies back
    };
    std::vector<std::vector<Touch>> touches;  // by instruction
    std::vector<std::int32_t> names;          // by slot: equal numbers, from 1, for equal names in all bodies
};

/// Operators between gradients and staging buffers: the gradient's slot.
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

std::vector<BodyView> view_bodies(const Program& program) {
    std::map<std::string_view, std::int32_t> known;
    std::vector<BodyView> views(program.bodies.size());
    for (std::size_t b = 0; b < views.size(); ++b) {
        const Body& body = program.bodies[b];
        for (const Instruction& instruction : body.instructions) {
            auto& touches = views[b].touches.emplace_back();
            const auto add = [&](models::SlotIndex slot, bool write, models::SlotIndex gradient) {
                if (slot != models::kNoSlot) touches.push_back({slot, write, gradient});
            };
            if (instruction.is_communication) {
                const Communication& comm = instruction.communication;
                // Of a broadcast in place only the root reads, and which rank that is no class says.
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

/// Boundary buffers are bound to actions in several parts: one set of cuts for all.
constexpr Region cuts_of(Region region) {
    return region > Region::host_frame ? Region::input_boundary : region;
}

/// Where the slots of each instruction of each segment lie, in cells.
class CellMap {
  public:
    CellMap(const Program& program, const std::vector<BodyView>& views, const RankClass& ranks)
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
            first_segment_.push_back(runs_.size());
            for (const Segment& segment : list) runs_.push_back(runs_of(segment));
        }
    }

    [[nodiscard]] bool windowed(Region region) const {
        return (region == Region::parameter && windowed_parameters_) ||
               (region == Region::gradient && windowed_gradients_);
    }
    [[nodiscard]] std::size_t cells_in(Region region) const {
        return cuts_[static_cast<std::size_t>(cuts_of(region))].size();
    }
    [[nodiscard]] const std::vector<CellRun>& runs(const Action& action, const Call& call) const {
        const std::size_t segment =
            first_segment_[static_cast<std::size_t>(action.segments)] + static_cast<std::size_t>(call.segment);
        return runs_[segment][static_cast<std::size_t>(call.instruction)];
    }

  private:
    void collect_cuts(const Segment& segment) {
        const Body& body = program_.bodies[segment.body];
        std::vector<bool> seen(body.slots.size());
        for (const auto& touches : views_[static_cast<std::size_t>(segment.body)].touches) {
            for (const BodyView::Touch& touch : touches) {
                const auto slot = static_cast<std::size_t>(touch.slot);
                if (seen[slot]) continue;
                seen[slot] = true;
                const MemoryRange range = resolve(ranks_, body.phase, segment, body.slots[slot]);
                auto& cuts = cuts_[static_cast<std::size_t>(cuts_of(range.region))];
                cuts.push_back(range.begin);
                cuts.push_back(range.end);
                if (body.phase == Phase::forward && range.region == Region::offload_window) {
                    kept_[segment.layer].emplace(range.begin - segment.activation_base,
                                                 range.end - segment.activation_base);
                }
            }
        }
    }

    [[nodiscard]] std::vector<std::vector<CellRun>> runs_of(const Segment& segment) const {
        const Body& body = program_.bodies[segment.body];
        const BodyView& view = views_[static_cast<std::size_t>(segment.body)];
        std::vector<std::vector<CellRun>> of_slot(body.slots.size());  // found once a slot
        std::vector<std::vector<CellRun>> result(body.instructions.size());
        for (std::size_t i = 0; i < result.size(); ++i) {
            result[i].reserve(view.touches[i].size());
            for (const BodyView::Touch& touch : view.touches[i]) {
                const auto s = static_cast<std::size_t>(touch.slot);
                const Slot& slot = body.slots[s];
                if (of_slot[s].empty()) of_slot[s] = find_runs(body, segment, touch, view.names[s]);
                for (CellRun run : of_slot[s]) {
                    run.write = touch.write;
                    if (slot.space == Space::reduction && body.phase != Phase::exchange) {
                        run.owner = staging_owner(body, segment, touch);
                    }
                    result[i].push_back(run);
                }
            }
        }
        return result;
    }

    /// One run, or several where bytes in between are nobody's: of the block that a layer keeps its forward's slots are
    /// read, of a unit's gradients what lies between the padding.
    [[nodiscard]] std::vector<CellRun> find_runs(const Body& body, const Segment& segment, const BodyView::Touch& touch,
                                                 std::int32_t name) const {
        const Slot& slot = body.slots[touch.slot];
        const MemoryRange range = resolve(ranks_, body.phase, segment, slot);
        const auto& cuts = cuts_[static_cast<std::size_t>(cuts_of(range.region))];
        const auto cell = [&](std::int64_t cut) {
            return static_cast<std::int32_t>(std::lower_bound(cuts.begin(), cuts.end(), cut) - cuts.begin());
        };
        CellRun run{.region = range.region,
                    .first = cell(range.begin),
                    .last = cell(range.end),
                    .slot = touch.slot,
                    .owner = owner_of(body, segment, slot, name)};
        if (body.phase == Phase::offload && range.region == Region::offload_window && !touch.write) {
            std::vector<CellRun> runs;
            for (const auto& [begin, end] : kept_.at(segment.layer)) {
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

    /// Staged gradients are those of their place among the gradients.
    [[nodiscard]] Owner staging_owner(const Body& body, const Segment& segment, const BodyView::Touch& touch) const {
        if (touch.gradient == models::kNoSlot) return touch.write ? kSameOwner : kAnyOwner;
        return resolve(ranks_, body.phase, segment, body.slots[touch.gradient]).begin;
    }

    [[nodiscard]] Owner owner_of(const Body& body, const Segment& segment, const Slot& slot, std::int32_t name) const {
        if (body.phase == Phase::exchange) return kAnyOwner;
        const auto r = static_cast<std::size_t>(slot.range);
        switch (slot.space) {
            case Space::activation:
            case Space::weight_copy:
                return layer_slot(segment.layer, body.phase == Phase::offload ? 0 : name);
            case Space::transient:  // lives in one call of one body, whatever the layer
            case Space::optimizer:
                return layer_slot(-1, name);
            case Space::parameter:
                return windowed_parameters_ ? layer_slot(0, 1) + 4 * segment.shard_base[r] : kAnyOwner;
            case Space::gradient:
                return windowed_gradients_ ? layer_slot(0, 1) + 4 * segment.shard_base[r] : kAnyOwner;
            case Space::host:
                if (body.phase == Phase::offload) return layer_slot(segment.layer, 0);
                // Parameters and gradients go by several names there.
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
        return kAnyOwner;
    }

    const Program& program_;
    const std::vector<BodyView>& views_;
    const RankClass& ranks_;
    bool windowed_parameters_ = false, windowed_gradients_ = false;
    PerRegion<std::vector<std::int64_t>> cuts_;  // cell i is [cuts[i], cuts[i + 1])
    /// By layer: where its forward's slots lie within its place in the offload window.
    std::map<std::int32_t, std::set<std::pair<std::int64_t, std::int64_t>>> kept_;
    std::vector<std::size_t> first_segment_;               // by segment list
    std::vector<std::vector<std::vector<CellRun>>> runs_;  // by segment, instruction, access
};

class AccessWalk {
  public:
    AccessWalk(const Program& program, const std::vector<BodyView>& views, const Trace& trace)
        : program_(program),
          trace_(trace),
          ranks_(program.classes[trace.rank_class]),
          map_(program, views, ranks_) {
        for (const Chunk& chunk : ranks_.chunks) {
            first_frame_.push_back(frames_);
            frames_ += chunk.frame_count;
        }
        for (std::size_t r = 0; r < kRegionCount; ++r) {
            const auto region = static_cast<Region>(r);
            cells_[r].resize(map_.cells_in(region) * static_cast<std::size_t>(instances(region)));
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

    /// The cells of the region's instance that the action binds.
    [[nodiscard]] Cell* cells_of(const Action& action, Region region) {
        if (!is_bound(region)) return cells_[static_cast<std::size_t>(region)].data();
        const Instance bound = bound_by(action, region);
        auto index = static_cast<std::size_t>(bound.index);
        if (region == Region::activation || region == Region::host_frame) {
            index += static_cast<std::size_t>(first_frame_[static_cast<std::size_t>(bound.chunk)]);
        }
        return cells_[static_cast<std::size_t>(bound.region)].data() + index * map_.cells_in(region);
    }

    /// Adds to `clock` that instruction `position` of this or the previous step's stream has completed, and what it
    /// knew when it began.
    void join(Clock& clock, Stream stream, std::int32_t position, std::int32_t steps_back,
              const std::vector<Clock>& previous, const std::vector<Clock>& current) const {
        if (position == 0 || steps_back > step_) return;
        const auto s = static_cast<std::size_t>(stream);
        const auto call = static_cast<std::size_t>(trace_.calls_on[s][static_cast<std::size_t>(position - 1)]);
        const Clock& known = steps_back == 0 ? current[call] : previous[call];
        for (std::size_t i = 0; i < kStreamCount; ++i) clock[i] = std::max(clock[i], known[i]);
        clock[s] = std::max(clock[s], (step_ - steps_back) * trace_.count_on(stream) + position);
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
        const auto& calls = trace_.calls_on[static_cast<std::size_t>(stream)];
        const auto index = static_cast<std::size_t>(position - 1) % calls.size();
        return trace_.calls[static_cast<std::size_t>(calls[index])];
    }

    [[noreturn]] void fail_at(std::string_view rule, const Call& call, const CellRun& run,
                              const std::string& what) const {
        const Action& action = ranks_.actions[call.action];
        const Segment& segment =
            ranks_.segment_lists[action.segments][static_cast<std::size_t>(call.segment)];
        const Body& body = program_.bodies[segment.body];
        fail(program_, rule, site_of(trace_, call),
             "its " + std::string(run.write ? "write" : "read") + " of slot '" +
                 body.slots[run.slot].decl.name + "' in the " +
                 std::string(name_of(run.region)) + " " + what);
    }

    void check_ordered(const Call& call, const Clock& clock, const CellRun& run, Stream stream, std::int32_t position,
                       std::string_view earlier_access) const {
        if (position <= clock[static_cast<std::size_t>(stream)]) return;
        const Call& earlier = call_at(stream, position);
        // Within one instruction nothing needs an event; the step tells it from itself one step ago.
        const std::int32_t own = step_ * trace_.count_on(call.stream) + call.position;
        if (stream == call.stream && position == own) return;
        fail_at("ordered accesses", call, run,
                "is not ordered after the " + std::string(earlier_access) + " by " +
                    describe(program_, site_of(trace_, earlier)));
    }

    /// How far back the writer of what is read may stand.
    enum class Since : std::uint8_t { ever, step, micro_batch, call };
    [[nodiscard]] Since since(Region region) const {
        switch (region) {
            case Region::activation:
            case Region::host_frame:
            case Region::offload_window:
            case Region::input_boundary:
            case Region::forward_boundary:
            case Region::backward_boundary:
            case Region::gradient_out:
                return Since::micro_batch;
            case Region::transient:
                return Since::call;
            case Region::weight_copy:
                return Since::step;
            case Region::reduction:  // torch DataParallel's inputs come from the host
                return is_replicated(program_) ? Since::ever : Since::step;
            case Region::parameter:
                return map_.windowed(region) ? Since::step : Since::ever;
            case Region::gradient:
                return map_.windowed(region) ? Since::micro_batch : Since::ever;
            case Region::parameter_shard:
            case Region::gradient_shard:
            case Region::optimizer:
            case Region::host:
            case Region::scalars:
                break;
        }
        return Since::ever;
    }

    void check_fresh(const Call& call, const CellRun& run, const Cell& cell) const {
        constexpr std::string_view kRule = "fresh values";
        const Since earliest = since(run.region);
        if (cell.writer_position == 0) {
            if (earliest != Since::ever) fail_at(kRule, call, run, "finds what nobody has written");
            return;
        }
        const Call& writer = call_at(cell.writer_stream, cell.writer_position);
        const std::int32_t writer_step = (cell.writer_position - 1) / trace_.count_on(cell.writer_stream);
        const auto micro_batch = [&](const Call& of) {
            return ranks_.actions[of.action].micro_batch;
        };
        bool fresh = earliest == Since::ever || writer_step == step_;
        if (earliest == Since::micro_batch) fresh = fresh && micro_batch(writer) == micro_batch(call);
        if (earliest == Since::call) fresh = fresh && writer.action == call.action && writer.segment == call.segment;
        fresh = fresh && matches(cell.writer_owner, run.owner);
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
                    cell.reader_positions[static_cast<std::size_t>(call.stream)] = position;
                    continue;
                }
                bool read = false;
                for (std::size_t s = 0; s < kStreamCount; ++s) {
                    if (cell.reader_positions[s] == 0) continue;
                    read = true;
                    check_ordered(call, clock, run, static_cast<Stream>(s), cell.reader_positions[s], "read");
                }
                const bool reduces = run.owner == kSameOwner;
                // What is beyond the first cell may be padding, which nobody takes.
                if (cell.reduced_in_place && !read && !reduces && i == run.first) {
                    fail_at("fresh values", call, run, "overwrites sums over ranks that nobody has taken from there");
                }
                cell.reduced_in_place = reduces;
                cell.writer_position = position;
                cell.writer_stream = call.stream;
                if (!reduces) cell.writer_owner = run.owner;
                cell.reader_positions = {};
            }
        }
    }

    const Program& program_;
    const Trace& trace_;
    const RankClass& ranks_;
    CellMap map_;
    PerRegion<std::vector<Cell>> cells_;
    std::vector<std::int32_t> first_frame_;  // by chunk
    std::int32_t frames_ = 0;                // of all chunks
    std::int32_t step_ = 0;
};

}  // namespace

void check_accesses(const Program& program, const std::vector<Trace>& traces) {
    const std::vector<BodyView> views = view_bodies(program);
    for (const Trace& trace : traces) AccessWalk(program, views, trace).run();
}

}  // namespace orrery::program::rules
