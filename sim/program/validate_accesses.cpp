// Rule "ordered accesses": two accesses to the same bytes, one of them a write, are ordered by a stream or by events.
// Rule "fresh values": what is read from a frame, a boundary or a transient was written for the same micro-batch.
//
// Each rank's streams carry vector clocks: clock[s] is how many instructions of stream s are known to have completed.
// Since streams are FIFOs, one number a stream is enough, for the clock and for the last readers of a cell. Memory is
// cut into cells at every boundary of a slot, so an access is a run of cells, mostly one. The walk goes over two steps,
// so that what the second step reuses is compared with the first one's last uses.
#include <algorithm>
#include <map>
#include <string_view>

#include "sim/program/validate_rules.h"

namespace orrery::program::rules {
namespace {

using Clock = std::array<std::int32_t, kStreamCount>;

/// Which slot of which layer the bytes stand for; a value is read through the slot that it was written through. Hidden
/// states and what exists once go by several names.
constexpr std::int64_t kAnySlot = -1;

struct CellRun {
    Region region{};
    std::int32_t first = 0;
    std::int32_t last = 0;  // exclusive
    bool write = false;
    models::SlotIndex slot = models::kNoSlot;
    std::int64_t owner = kAnySlot;
};

struct Cell {
    std::int32_t writer_position = 0;  // 1 for the stream's first instruction of the first step; 0: nobody
    std::int64_t writer_owner = kAnySlot;
    Stream writer_stream{};
    Clock reader_positions{};  // last read since the last write, by stream
};

/// What the classes' walks need of a body, worked out once.
struct BodyView {
    std::vector<std::vector<Access>> accesses;  // by instruction
    std::vector<std::int32_t> names;            // by slot: equal numbers for equal names in all bodies
};

std::vector<BodyView> view_bodies(const Program& program) {
    std::map<std::string_view, std::int32_t> known;
    std::vector<BodyView> views(program.bodies.size());
    for (std::size_t b = 0; b < views.size(); ++b) {
        const Body& body = program.bodies[b];
        for (const Instruction& instruction : body.instructions) {
            views[b].accesses.push_back(accesses_of(body, instruction));
        }
        for (const Slot& slot : body.slots) {
            const auto next = static_cast<std::int32_t>(known.size());
            views[b].names.push_back(known.try_emplace(slot.decl.name, next).first->second);
        }
    }
    return views;
}

/// Where the slots of each instruction of each segment lie, in cells.
class CellMap {
  public:
    CellMap(const Program& program, const std::vector<BodyView>& views, const RankClass& ranks)
        : program_(program), views_(views), ranks_(ranks) {
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

    [[nodiscard]] std::size_t cells_in(Region region) const { return cuts_[static_cast<std::size_t>(region)].size(); }
    [[nodiscard]] const std::vector<CellRun>& runs(const Action& action, const Call& call) const {
        const std::size_t segment =
            first_segment_[static_cast<std::size_t>(action.segments)] + static_cast<std::size_t>(call.segment);
        return runs_[segment][static_cast<std::size_t>(call.instruction)];
    }

  private:
    void collect_cuts(const Segment& segment) {
        const Body& body = program_.bodies[static_cast<std::size_t>(segment.body)];
        for (const auto& accesses : views_[static_cast<std::size_t>(segment.body)].accesses) {
            for (const Access& access : accesses) {
                const Range range = resolve(ranks_, segment, body.slots[static_cast<std::size_t>(access.slot)]);
                auto& cuts = cuts_[static_cast<std::size_t>(range.region)];
                cuts.push_back(range.begin);
                cuts.push_back(range.end);
            }
        }
    }

    [[nodiscard]] std::vector<std::vector<CellRun>> runs_of(const Segment& segment) const {
        const Body& body = program_.bodies[static_cast<std::size_t>(segment.body)];
        const BodyView& view = views_[static_cast<std::size_t>(segment.body)];
        std::vector<std::vector<CellRun>> result(body.instructions.size());
        for (std::size_t i = 0; i < result.size(); ++i) {
            for (const Access& access : view.accesses[i]) {
                const Slot& slot = body.slots[static_cast<std::size_t>(access.slot)];
                const Range range = resolve(ranks_, segment, slot);
                const auto& cuts = cuts_[static_cast<std::size_t>(range.region)];
                const auto index = [&](std::int64_t cut) {
                    return static_cast<std::int32_t>(std::lower_bound(cuts.begin(), cuts.end(), cut) - cuts.begin());
                };
                result[i].push_back({range.region, index(range.begin), index(range.end), access.write, access.slot,
                                     owner_of(segment, slot, view.names[static_cast<std::size_t>(access.slot)])});
            }
        }
        return result;
    }

    [[nodiscard]] static std::int64_t owner_of(const Segment& segment, const Slot& slot, std::int32_t name) {
        if (slot.space != Space::activation && slot.space != Space::transient) return kAnySlot;
        // Layers count from -1. A transient lives in one call of one body, whatever the layer.
        const std::int64_t layer = slot.space == Space::activation ? segment.layer + 2 : 0;
        return (layer << 32) + name;
    }

    const Program& program_;
    const std::vector<BodyView>& views_;
    const RankClass& ranks_;
    std::array<std::vector<std::int64_t>, kRegionCount> cuts_;  // cell i is [cuts[i], cuts[i + 1])
    std::vector<std::size_t> first_segment_;                    // by segment list
    std::vector<std::vector<std::vector<CellRun>>> runs_;       // by segment, instruction, access
};

class AccessWalk {
  public:
    AccessWalk(const Program& program, const std::vector<BodyView>& views, const Trace& trace)
        : program_(program),
          trace_(trace),
          ranks_(program.classes[static_cast<std::size_t>(trace.rank_class)]),
          map_(program, views, ranks_) {
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
        switch (region) {
            case Region::activation:
                return ranks_.frame_count;
            case Region::input_boundary:
                return ranks_.input_boundary_count;
            case Region::forward_boundary:
                return ranks_.forward_boundary_count;
            case Region::backward_boundary:
                return ranks_.backward_boundary_count;
            case Region::parameter:
            case Region::gradient:
            case Region::optimizer:
            case Region::transient:
            case Region::scalars:
                break;
        }
        return 1;
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
        const Action& action = ranks_.actions[static_cast<std::size_t>(call.action)];
        const Segment& segment =
            ranks_.segment_lists[static_cast<std::size_t>(action.segments)][static_cast<std::size_t>(call.segment)];
        const Body& body = program_.bodies[static_cast<std::size_t>(segment.body)];
        fail(program_, rule, trace_.site(call),
             "its " + std::string(run.write ? "write" : "read") + " of slot '" +
                 body.slots[static_cast<std::size_t>(run.slot)].decl.name + "' in the " +
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
                    describe(program_, trace_.site(earlier)));
    }

    void check_fresh(const Call& call, const CellRun& run, const Cell& cell) const {
        if (run.region != Region::activation && run.region != Region::input_boundary &&
            run.region != Region::forward_boundary && run.region != Region::backward_boundary &&
            run.region != Region::transient) {
            return;
        }
        constexpr std::string_view kRule = "fresh values";
        if (cell.writer_position == 0) fail_at(kRule, call, run, "finds what nobody has written");
        const Call& writer = call_at(cell.writer_stream, cell.writer_position);
        const std::int32_t writer_step = (cell.writer_position - 1) / trace_.count_on(cell.writer_stream);
        const auto micro_batch = [&](const Call& of) {
            return ranks_.actions[static_cast<std::size_t>(of.action)].micro_batch;
        };
        bool fresh = writer_step == step_ && micro_batch(writer) == micro_batch(call);
        if (run.region == Region::transient) {
            fresh = fresh && writer.action == call.action && writer.segment == call.segment;
        }
        fresh = fresh && cell.writer_owner == run.owner;
        if (!fresh) {
            fail_at(kRule, call, run, "finds what " + describe(program_, trace_.site(writer)) + " has written there");
        }
    }

    void visit(const Call& call, const Clock& clock) {
        const Action& action = ranks_.actions[static_cast<std::size_t>(call.action)];
        const std::int32_t position = step_ * trace_.count_on(call.stream) + call.position;
        for (const CellRun& run : map_.runs(action, call)) {
            const auto r = static_cast<std::size_t>(run.region);
            Cell* cells = cells_[r].data() +
                          map_.cells_in(run.region) * static_cast<std::size_t>(instance_of(action, run.region));
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
                for (std::size_t s = 0; s < kStreamCount; ++s) {
                    if (cell.reader_positions[s] > 0) {
                        check_ordered(call, clock, run, static_cast<Stream>(s), cell.reader_positions[s], "read");
                    }
                }
                cell.writer_position = position;
                cell.writer_stream = call.stream;
                cell.writer_owner = run.owner;
                cell.reader_positions = {};
            }
        }
    }

    const Program& program_;
    const Trace& trace_;
    const RankClass& ranks_;
    CellMap map_;
    std::array<std::vector<Cell>, kRegionCount> cells_;
    std::int32_t step_ = 0;
};

}  // namespace

void check_accesses(const Program& program, const std::vector<Trace>& traces) {
    const std::vector<BodyView> views = view_bodies(program);
    for (const Trace& trace : traces) AccessWalk(program, views, trace).run();
}

}  // namespace orrery::program::rules
