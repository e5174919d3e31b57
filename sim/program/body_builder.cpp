#include "sim/program/body_builder.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/error.h"

namespace orrery::program {
namespace {

using models::Boundary;
using models::kNoSlot;
using models::Layer;
using models::Operator;
using models::SlotIndex;

/// Splits a pass into instructions. Compute operators gather in the open instruction until something cuts it.
class Cutter {
  public:
    Cutter(const Layer& layer, Body& body) : layer_(layer), body_(body) {
        writer_.assign(layer.slots.size(), -1);
        reader_.assign(layer.slots.size(), -1);
    }

    void add(const Operator& op) {
        std::set<InstructionIndex> pending;
        for (SlotIndex slot : op.in) collect_writer(slot, pending);
        collect_writer(op.scratch, pending);
        for (SlotIndex slot : op.out) {
            collect_writer(slot, pending);
            collect_reader(slot, pending);
        }
        if (!pending.empty()) {
            close();
            for (InstructionIndex instruction : pending) settle(instruction);
            open(std::vector<InstructionIndex>(pending.begin(), pending.end()));
        } else if (open_ < 0) {
            open({});
        }
        body_.operators.push_back(op);
        ++current().operator_count;
        if (op.flops >= heaviest_flops_) {
            heaviest_flops_ = op.flops;
            name_hint_ = op.out[0] == kNoSlot ? std::string(name_of(op.kind)) : slot_name(op.out[0]);
        }
    }

    void add(const Boundary& boundary) {
        const bool in_place = boundary.in == boundary.out;
        Communication communication{.axis = GroupAxis::tp,
                                    .dtype = boundary.dtype,
                                    .elements = boundary.elements,
                                    .in = boundary.in,
                                    .out = boundary.out};
        std::string verb;
        switch (boundary.kind) {
            case Boundary::Kind::gather_sequence:
                communication.kind = CommKind::all_gather;
                verb = "gather";
                break;
            case Boundary::Kind::reduce:
                communication.kind = CommKind::all_reduce;
                verb = "reduce";
                break;
            case Boundary::Kind::reduce_scatter:
                communication.kind = CommKind::reduce_scatter;
                verb = "reduce_scatter";
                break;
            case Boundary::Kind::reduce_max:
                communication.kind = CommKind::all_reduce;
                communication.reduce = ReduceOp::max;
                verb = "reduce_max";
                break;
        }
        const InstructionIndex index =
            communicate("tp." + verb + "." + slot_name(boundary.in), Stream::tp, communication);
        writer_[static_cast<std::size_t>(boundary.out)] = index;
        if (!in_place) reader_[static_cast<std::size_t>(boundary.in)] = index;
    }

    /// A communication that follows everything computed so far.
    InstructionIndex communicate(const std::string& name, Stream stream, const Communication& communication) {
        close();
        if (last_compute_ < 0) {  // what it reads was written before this body: tie it to the compute stream's past
            open({});
            name_hint_ = "event";
            close();
        }
        Instruction instruction{.name = unique(name),
                                .stream = stream,
                                .is_communication = true,
                                .communication = communication,
                                .after = {last_compute_}};
        body_.instructions.push_back(std::move(instruction));
        return static_cast<InstructionIndex>(body_.instructions.size() - 1);
    }

    /// Ends the body: what other streams still have under way is tied back to the compute stream, so that whatever
    /// follows there comes after it. Gradient buckets are not: only the optimizer waits for them.
    void finish() {
        std::set<InstructionIndex> pending;
        for (InstructionIndex writer : writer_) {
            if (writer >= 0) pending.insert(writer);
        }
        close();
        if (pending.empty()) return;
        open(std::vector<InstructionIndex>(pending.begin(), pending.end()));
        name_hint_ = "event";
        close();
    }

    void close() {
        if (open_ < 0) return;
        current().name = unique(name_hint_);
        last_compute_ = open_;
        open_ = -1;
    }

  private:
    [[nodiscard]] Instruction& current() { return body_.instructions[static_cast<std::size_t>(open_)]; }
    [[nodiscard]] const std::string& slot_name(SlotIndex slot) const {
        return layer_.slots[static_cast<std::size_t>(slot)].name;
    }

    void open(std::vector<InstructionIndex> after) {
        Instruction instruction{.stream = Stream::compute,
                                .first_operator = static_cast<std::int32_t>(body_.operators.size()),
                                .after = std::move(after)};
        body_.instructions.push_back(std::move(instruction));
        open_ = static_cast<InstructionIndex>(body_.instructions.size() - 1);
        heaviest_flops_ = -1;
        name_hint_.clear();
    }

    std::string unique(const std::string& name) {
        const int count = ++used_[name];
        return count == 1 ? name : name + "." + std::to_string(count);
    }

    void collect_writer(SlotIndex slot, std::set<InstructionIndex>& pending) const {
        if (slot != kNoSlot && writer_[static_cast<std::size_t>(slot)] >= 0) {
            pending.insert(writer_[static_cast<std::size_t>(slot)]);
        }
    }
    void collect_reader(SlotIndex slot, std::set<InstructionIndex>& pending) const {
        if (slot != kNoSlot && reader_[static_cast<std::size_t>(slot)] >= 0) {
            pending.insert(reader_[static_cast<std::size_t>(slot)]);
        }
    }
    /// The compute stream has waited for this communication; the tensor-parallel stream is a FIFO, so for earlier ones
    /// too.
    void settle(InstructionIndex instruction) {
        for (auto* table : {&writer_, &reader_}) {
            for (InstructionIndex& entry : *table) {
                if (entry >= 0 && entry <= instruction) entry = -1;
            }
        }
    }

    const Layer& layer_;
    Body& body_;
    std::vector<InstructionIndex> writer_,
        reader_;  // communication that last wrote / read the slot, not yet waited for
    std::map<std::string, int> used_;
    InstructionIndex open_ = -1;
    InstructionIndex last_compute_ = -1;
    double heaviest_flops_ = -1;
    std::string name_hint_;
};

/// One operator's or communication's touch of a slot, in issue order.
struct Touch {
    std::int32_t position = 0;  // issue order over operators and communications
    InstructionIndex instruction = 0;
};

struct Lifetimes {
    std::vector<std::vector<Touch>> touches;                    // by slot
    std::vector<InstructionIndex> instruction_at;               // by position
    std::vector<std::array<std::int32_t, kStreamCount>> clock;  // instructions of each stream that have completed
    std::vector<std::int32_t> sequence;                         // index of the instruction on its own stream

    [[nodiscard]] bool before(const Body& body, Touch a, Touch b) const {
        const Stream sa = body.instructions[static_cast<std::size_t>(a.instruction)].stream;
        const Stream sb = body.instructions[static_cast<std::size_t>(b.instruction)].stream;
        if (sa == sb) return a.position < b.position;
        return clock[static_cast<std::size_t>(b.instruction)][static_cast<std::size_t>(sa)] >
               sequence[static_cast<std::size_t>(a.instruction)];
    }
};

Lifetimes find_lifetimes(const Body& body) {
    Lifetimes result;
    result.touches.resize(body.slots.size());
    std::array<std::int32_t, kStreamCount> next{};
    std::array<InstructionIndex, kStreamCount> last{};
    last.fill(-1);
    for (std::size_t i = 0; i < body.instructions.size(); ++i) {
        const Instruction& instruction = body.instructions[i];
        const auto stream = static_cast<std::size_t>(instruction.stream);
        std::array<std::int32_t, kStreamCount> clock{};
        const auto join = [&](InstructionIndex earlier) {
            const auto e = static_cast<std::size_t>(earlier);
            for (std::size_t s = 0; s < kStreamCount; ++s) clock[s] = std::max(clock[s], result.clock[e][s]);
            const auto es = static_cast<std::size_t>(body.instructions[e].stream);
            clock[es] = std::max(clock[es], result.sequence[e] + 1);
        };
        if (last[stream] >= 0) join(last[stream]);
        for (InstructionIndex earlier : instruction.after) join(earlier);
        result.clock.push_back(clock);
        result.sequence.push_back(next[stream]++);
        last[stream] = static_cast<InstructionIndex>(i);
        const auto touch = [&](SlotIndex slot) {
            if (slot == kNoSlot) return;
            auto& list = result.touches[static_cast<std::size_t>(slot)];
            const auto position = static_cast<std::int32_t>(result.instruction_at.size());
            if (list.empty() || list.back().position != position) {
                list.push_back({position, static_cast<InstructionIndex>(i)});
            }
        };
        if (instruction.is_communication) {
            touch(instruction.communication.in);
            touch(instruction.communication.out);
            result.instruction_at.push_back(static_cast<InstructionIndex>(i));
        }
        for (std::int32_t o = 0; o < instruction.operator_count; ++o) {
            const Operator& op = body.operators[static_cast<std::size_t>(instruction.first_operator + o)];
            for (SlotIndex slot : op.in) touch(slot);
            for (SlotIndex slot : op.out) touch(slot);
            touch(op.scratch);
            result.instruction_at.push_back(static_cast<InstructionIndex>(i));
        }
    }
    return result;
}

/// First fit in order of first use. Two transients may share memory when every use of the earlier one happens before
/// the first use of the later one.
void lay_out_transients(Body& body, const Lifetimes& lifetimes) {
    std::vector<std::size_t> order;
    for (std::size_t slot = 0; slot < body.slots.size(); ++slot) {
        if (body.slots[slot].space == Space::transient && !lifetimes.touches[slot].empty()) order.push_back(slot);
    }
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        const auto pa = lifetimes.touches[a].front().position;
        const auto pb = lifetimes.touches[b].front().position;
        return pa != pb ? pa < pb : a < b;
    });
    std::vector<std::size_t> placed;
    for (std::size_t slot : order) {
        const Touch first = lifetimes.touches[slot].front();
        std::vector<std::pair<std::int64_t, std::int64_t>> taken;
        for (std::size_t other : placed) {
            const auto& uses = lifetimes.touches[other];
            const bool over =
                std::all_of(uses.begin(), uses.end(), [&](Touch use) { return lifetimes.before(body, use, first); });
            if (!over) taken.emplace_back(body.slots[other].offset, body.slots[other].offset + body.slots[other].bytes);
        }
        std::sort(taken.begin(), taken.end());
        std::int64_t offset = 0;
        for (const auto& [begin, end] : taken) {
            if (offset + body.slots[slot].bytes <= begin) break;
            offset = std::max(offset, align(end));
        }
        body.slots[slot].offset = offset;
        body.transient_bytes = std::max(body.transient_bytes, align(offset + body.slots[slot].bytes));
        placed.push_back(slot);
    }
}

/// Position after which the slot's memory is free: its last touch, or, when another stream touched it, the first later
/// position whose instruction has waited for all of them.
std::int32_t free_position(const Body& body, const Lifetimes& lifetimes, std::size_t slot) {
    const auto& uses = lifetimes.touches[slot];
    const std::int32_t last = uses.back().position;
    const auto end = static_cast<std::int32_t>(lifetimes.instruction_at.size());
    const bool only_compute = std::all_of(uses.begin(), uses.end(), [&](Touch use) {
        return body.instructions[static_cast<std::size_t>(use.instruction)].stream == Stream::compute;
    });
    if (only_compute) return last;
    for (std::int32_t position = last + 1; position < end; ++position) {
        const Touch here{position, lifetimes.instruction_at[static_cast<std::size_t>(position)]};
        if (std::all_of(uses.begin(), uses.end(), [&](Touch use) { return lifetimes.before(body, use, here); })) {
            return position - 1;
        }
    }
    return end - 1;
}

}  // namespace

Body build_body(const Layer& layer, Phase phase, const std::vector<SlotPlace>& places,
                const std::vector<BucketCut>& buckets) {
    ORRERY_CHECK(places.size() == layer.slots.size(), "a place for each slot");
    Body body{.phase = phase, .layer_kind = layer.kind};
    for (std::size_t i = 0; i < layer.slots.size(); ++i) {
        body.slots.push_back({layer.slots[i], places[i].space, places[i].offset, layer.slots[i].bytes()});
    }
    Cutter cutter(layer, body);
    for (const models::Step& step : phase == Phase::forward ? layer.forward : layer.backward) {
        if (const auto* boundary = std::get_if<Boundary>(&step)) {
            cutter.add(*boundary);
            continue;
        }
        const Operator& op = std::get<Operator>(step);
        cutter.add(op);
        for (std::size_t b = 0; b < buckets.size(); ++b) {
            const BucketCut& bucket = buckets[b];
            if (std::find(op.out.begin(), op.out.end(), bucket.gradient_slot) == op.out.end()) continue;
            models::SlotDecl decl = layer.slots[static_cast<std::size_t>(bucket.gradient_slot)];
            decl.name = "dp.bucket." + std::to_string(b);
            decl.shape = {bucket.elements};
            decl.parts.clear();
            decl.parameter_slot = kNoSlot;
            const auto slot = static_cast<SlotIndex>(body.slots.size());
            const Communication communication{.kind = CommKind::all_reduce,
                                              .axis = GroupAxis::dp,
                                              .dtype = decl.dtype,
                                              .elements = bucket.elements,
                                              .in = slot,
                                              .out = slot};
            const std::string name = decl.name;
            const std::int64_t bytes = decl.bytes();
            body.slots.push_back({std::move(decl), bucket.space, bucket.offset, bytes});
            (void)cutter.communicate(name, Stream::dp, communication);
        }
    }
    cutter.finish();
    for (const Instruction& instruction : body.instructions) {
        ++body.stream_counts[static_cast<std::size_t>(instruction.stream)];
    }
    const Lifetimes lifetimes = find_lifetimes(body);
    lay_out_transients(body, lifetimes);
    body.transient_live_peak = walk_body(body, true, true).transient_peak;
    return body;
}

Body communication_body(Phase phase, const std::string& name, Stream stream, CommKind kind, GroupAxis axis, Slot slot) {
    Body body{.phase = phase, .layer_kind = models::LayerKind::block};
    Communication communication{.kind = kind,
                                .axis = axis,
                                .dtype = slot.decl.dtype,
                                .elements = slot.decl.elements(),
                                .in = kind == CommKind::recv ? kNoSlot : SlotIndex{0},
                                .out = kind == CommKind::send ? kNoSlot : SlotIndex{0}};
    body.slots.push_back(std::move(slot));
    body.instructions.push_back(
        {.name = name, .stream = stream, .is_communication = true, .communication = communication});
    body.stream_counts[static_cast<std::size_t>(stream)] = 1;
    return body;
}

BodyMemory walk_body(const Body& body, bool hidden_in_in_frame, bool hidden_out_in_frame) {
    const Lifetimes lifetimes = find_lifetimes(body);
    const std::size_t positions = lifetimes.instruction_at.size();
    std::vector<std::int64_t> activation_before(positions + 1, 0), activation_after(positions + 1, 0);
    std::vector<std::int64_t> transient_before(positions + 1, 0), transient_after(positions + 1, 0);
    for (std::size_t slot = 0; slot < body.slots.size(); ++slot) {
        const auto& uses = lifetimes.touches[slot];
        if (uses.empty()) continue;
        const auto first = static_cast<std::size_t>(uses.front().position);
        const auto freed = static_cast<std::size_t>(free_position(body, lifetimes, slot));
        const std::int64_t bytes = body.slots[slot].bytes;
        const bool in_frame = body.slots[slot].space == Space::activation ||
                              (body.slots[slot].space == Space::hidden_in && hidden_in_in_frame);
        if (body.slots[slot].space == Space::transient) {
            transient_before[first] += bytes;
            transient_after[freed] += bytes;
        } else if (body.phase == Phase::forward &&
                   (body.slots[slot].space == Space::activation ||
                    (body.slots[slot].space == Space::hidden_out && hidden_out_in_frame))) {
            activation_before[first] += bytes;
        } else if (body.phase == Phase::backward && in_frame) {
            activation_after[freed] += bytes;
        }
    }
    BodyMemory memory;
    std::int64_t activations = 0, transients = 0;
    for (std::size_t position = 0; position < positions; ++position) {
        activations += activation_before[position];
        transients += transient_before[position];
        memory.activation_peak = std::max(memory.activation_peak, activations);
        memory.transient_peak = std::max(memory.transient_peak, transients);
        memory.joint_peak = std::max(memory.joint_peak, activations + transients);
        activations -= activation_after[position];
        transients -= transient_after[position];
    }
    memory.activation_net = activations;
    return memory;
}

}  // namespace orrery::program
