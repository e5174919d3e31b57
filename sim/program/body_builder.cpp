#include "sim/program/body_builder.h"

#include <algorithm>

#include "sim/program/step_slots.h"

namespace orrery::program {
namespace {

using models::Boundary;
using models::kNoSlot;
using models::Operator;
using models::SlotDecl;
using models::SlotIndex;
using models::SlotRole;

/// The group axis and stream of a boundary's communication, and the prefix of its name.
struct BoundaryAxis {
    GroupAxis axis;
    Stream stream;
    const char* prefix;
};
constexpr EnumArray<Boundary::Axis, BoundaryAxis, 5> kBoundaryAxes{{{
    {GroupAxis::tp, Stream::tp, "tp."},
    {GroupAxis::cp, Stream::cp, "cp."},
    {GroupAxis::ep, Stream::ep, "ep."},
    {GroupAxis::etp, Stream::ep, "etp."},
    {GroupAxis::pipeline, Stream::tp, "vocabulary."},  // vocabulary parallelism requires tp = 1
}}};

/// The kind of a boundary's communication, and the verb in its name.
struct BoundaryOperation {
    CommKind kind;
    const char* verb;
    ReduceOp reduce = ReduceOp::sum;
};
constexpr EnumArray<Boundary::Kind, BoundaryOperation, 8> kBoundaryOperations{{{
    {CommKind::all_gather, "gather"},
    {CommKind::all_reduce, "reduce"},
    {CommKind::reduce_scatter, "reduce_scatter"},
    {CommKind::all_reduce, "reduce_max", ReduceOp::max},
    {CommKind::all_to_all, "all_to_all"},
    {CommKind::exchange, "exchange"},
    {CommKind::broadcast, "broadcast"},
    {CommKind::reduce, "reduce"},
}}};
static_assert(kBoundaryAxes[Boundary::Axis::pp].axis == GroupAxis::pipeline &&
              kBoundaryOperations[Boundary::Kind::reduce_to_root].kind == CommKind::reduce);

/// The slots of a bucket's reduction.
struct ReductionSlots {
    SlotIndex gradient = kNoSlot;
    SlotIndex source = kNoSlot;  // input of the collective: the gradients, or the staging buffer
    SlotIndex shard = kNoSlot;
};
ReductionSlots add_slots(BodyWriter& writer, const std::string& name, const BucketCut& bucket) {
    ReductionSlots slots;
    const Reduction& reduction = bucket.reduction;
    slots.source = slots.gradient =
        writer.slot(flat_slot(Space::gradient, name, SlotRole::gradient, reduction.gradient_dtype, bucket.elements,
                              bucket.offset, bucket.range));
    if (reduction.staged) {
        slots.source = writer.slot(flat_slot(Space::reduction, name + ".staged", SlotRole::transient, reduction.dtype,
                                             bucket.elements, bucket.reduction_offset, bucket.range));
        writer.stage(slots.source, bucket.reduction_offset);
    }
    if (reduction.kind == CommKind::reduce_scatter) {
        slots.shard =
            writer.slot(flat_slot(Space::gradient_shard, name + ".shard", SlotRole::gradient, reduction.shard_dtype,
                                  bucket.shard_elements, bucket.shard_offset, bucket.range));
    }
    return slots;
}

/// Vocabulary parallelism: the operators that wait for other ranks' statistics while the pass continues, and embedding
/// lookups, for which the first stage waits.
bool runs_on_side(const LoweredLayer& layer, Phase phase, const Operator& op) {
    if (phase != Phase::forward || !layer.options.leaves_communication_open) return false;
    return op.kind == models::OpKind::cross_entropy_loss || op.kind == models::OpKind::cross_entropy_correct ||
           op.kind == models::OpKind::load_tokens || op.kind == models::OpKind::embedding_forward;
}

/// Whether the segment lists order the communication after earlier bodies, so that it need not wait for unrelated
/// computation.
bool lists_order_it(const LoweredLayer& layer, const Boundary& boundary) {
    const bool looks_up = layer.options.leaves_communication_open && layer.kind == models::LayerKind::embedding;
    return boundary.receives || looks_up;
}

/// For each bucket the last step that writes into it. -1: the bucket is complete before the pass, because the input
/// gradients of a split backward were the last to write into it. Buckets keep their order.
std::vector<std::ptrdiff_t> bucket_positions(const LoweredLayer& layer, const std::vector<models::Step>& steps,
                                             const std::vector<BucketCut>& buckets) {
    std::vector<std::ptrdiff_t> positions(buckets.size(), -1);
    for (std::size_t b = 0; b < buckets.size(); ++b) {
        const BucketCut& bucket = buckets[b];
        for (std::size_t i = 0; i < steps.size(); ++i) {
            for (const SlotIndex slot : slots_written(steps[i])) {
                const Slot& place = layer.slots[slot];
                const bool inside = place.space == Space::gradient && place.range == bucket.range &&
                                    place.offset >= bucket.offset && place.offset < bucket.offset + bucket.elements;
                if (inside) positions[b] = static_cast<std::ptrdiff_t>(i);
            }
        }
        if (b > 0) positions[b] = std::max(positions[b], positions[b - 1]);
    }
    return positions;
}

}  // namespace

Slot slot_at(Space space, SlotDecl decl, std::int64_t offset, ParameterRange range) {
    const std::int64_t bytes = decl.bytes();
    return {.decl = std::move(decl), .space = space, .offset = offset, .bytes = bytes, .range = range};
}

Slot flat_slot(Space space, const std::string& name, SlotRole role, DType dtype, std::int64_t elements,
               std::int64_t offset, ParameterRange range) {
    return slot_at(space, {.name = name, .role = role, .dtype = dtype, .shape = {elements}}, offset, range);
}

Body build_body(const LoweredLayer& layer, Phase phase, const std::vector<BucketCut>& buckets) {
    const std::vector<models::Step>& steps = layer.steps(phase);
    BodyWriter writer(phase, layer.kind);
    for (const Slot& slot : layer.slots) writer.slot(slot);
    const std::vector<std::ptrdiff_t> complete_after = bucket_positions(layer, steps, buckets);
    const auto reduce_after = [&](std::ptrdiff_t position) {
        for (std::size_t b = 0; b < buckets.size(); ++b) {
            if (complete_after[b] == position) write_reduction(writer, "dp.bucket." + std::to_string(b), buckets[b]);
        }
    };
    reduce_after(-1);
    for (std::size_t i = 0; i < steps.size(); ++i) {
        if (const auto* boundary = std::get_if<Boundary>(&steps[i])) {
            writer.communicate(*boundary, lists_order_it(layer, *boundary) ? Follows::own : Follows::computation);
        } else if (const auto& op = std::get<Operator>(steps[i]); runs_on_side(layer, phase, op)) {
            writer.op(op, Stream::side, "", Follows::own);
        } else {
            writer.op(op);
        }
        reduce_after(static_cast<std::ptrdiff_t>(i));
    }
    if (!layer.options.leaves_communication_open) writer.join();
    return writer.finish();
}

BodyWriter::BodyWriter(Phase phase, models::LayerKind kind) {
    body_.phase = phase;
    body_.layer_kind = kind;
}

void BodyWriter::stage(SlotIndex slot, std::int64_t offset) {
    aliases_[slot] = staging_.try_emplace(offset, slot).first->second;
}

Operator BodyWriter::streaming(models::OpKind kind, SlotIndex from, SlotIndex to) const {
    Operator op{.kind = kind, .elements = body_.slots[from].decl.elements(), .in = {from}, .out = {to}};
    op.flops = static_cast<double>(op.elements);
    op.bytes_read = static_cast<double>(body_.slots[from].bytes);
    op.bytes_written = static_cast<double>(body_.slots[to].bytes);
    return op;
}

void BodyWriter::op(const Operator& op, Stream stream, const std::string& name, Follows follows) {
    if (stream == Stream::compute) return add_computation(op);
    add_alone(op, stream, name.empty() ? std::string(name_of(op.kind)) : name, pending_of(op), follows);
}

void BodyWriter::add_alone(const Operator& op, Stream stream, const std::string& name, const Instructions& pending,
                           Follows follows) {
    Instruction instruction{.name = unique(name), .stream = stream, .operator_count = 1};
    instruction.after = after_compute(pending, stream, follows);
    instruction.first_operator = body_.operators.add(op);
    const InstructionIndex index = body_.instructions.add(std::move(instruction));
    for (const SlotIndex slot : op.in) note(reader_, slot, index);
    for (const SlotIndex slot : op.out) note(writer_, slot, index);
}

void BodyWriter::add_computation(const Operator& op) {
    const Instructions pending = pending_of(op);
    if (!pending.empty()) {
        close();
        for (const InstructionIndex instruction : pending) settle(instruction);
        open(pending);
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

void BodyWriter::clear(SlotIndex slot) {
    Operator op{.kind = models::OpKind::clear, .elements = body_.slots[slot].decl.elements(), .out = {slot}};
    op.bytes_written = static_cast<double>(body_.slots[slot].bytes);
    add_computation(op);
}

/// A communication waits for the computation that `follows` names and for conflicting accesses to its slots on other
/// streams.
InstructionIndex BodyWriter::communicate(const std::string& name, Stream stream, const Communication& communication,
                                         Follows follows, bool is_followed, InstructionIndex after) {
    // At the end of a step the action's waits order the instruction after earlier computation.
    if (body_.phase == Phase::gradient_sync) follows = Follows::own;
    Instructions pending;
    if (after >= 0) pending.insert(after);
    for (const SlotIndex slot : communication.slots_read()) collect(writer_, slot, pending);
    collect(writer_, communication.out, pending);
    collect(reader_, communication.out, pending);
    if (communication.consumes) collect(reader_, communication.in, pending);
    Instruction instruction{
        .name = unique(name), .stream = stream, .is_communication = true, .communication = communication};
    instruction.after = after_compute(pending, stream, follows);
    const InstructionIndex index = body_.instructions.add(std::move(instruction));
    if (!is_followed) return index;
    note(writer_, communication.out, index);
    if (communication.consumes) note(writer_, communication.in, index);
    for (const SlotIndex slot : communication.slots_read()) {
        if (slot != communication.out) note(reader_, slot, index);
    }
    return index;
}

void BodyWriter::communicate(const Boundary& boundary, Follows follows) {
    const BoundaryAxis& across = kBoundaryAxes[boundary.axis];
    const BoundaryOperation& by = kBoundaryOperations[boundary.kind];
    communicate(std::string(across.prefix) + by.verb + "." + slot_name(boundary.in), across.stream,
                Communication{.kind = by.kind,
                              .axis = across.axis,
                              .reduce = by.reduce,
                              .dtype = boundary.dtype,
                              .elements = boundary.elements,
                              .in = boundary.in,
                              .out = boundary.out,
                              .root = boundary.root,
                              .send_counts = boundary.send_counts,
                              .receive_counts = boundary.receive_counts,
                              .row_elements = boundary.row_elements,
                              .tokens_once = boundary.tokens_once},
                follows);
}

void BodyWriter::all_reduce(const std::string& name, Stream stream, GroupAxis axis, SlotIndex slot) {
    const SlotDecl& decl = body_.slots[slot].decl;
    communicate(name, stream,
                {.kind = CommKind::all_reduce,
                 .axis = axis,
                 .dtype = decl.dtype,
                 .elements = decl.elements(),
                 .in = slot,
                 .out = slot});
}

void BodyWriter::host_wait(const std::string& name, Follows follows) {
    PerStream<InstructionIndex> last{};
    last.fill(-1);
    for (const InstructionIndex i : body_.instructions.indices()) last[stream_of(i)] = i;
    Instructions pending;
    for (const InstructionIndex i : last) {
        if (i >= 0 && stream_of(i) != Stream::compute) pending.insert(i);
    }
    add_alone({.kind = models::OpKind::host_wait}, Stream::host, name, pending, follows);
}

void BodyWriter::join() {
    Instructions pending;
    for (const InstructionIndex writer : writer_) {
        if (writer >= 0) pending.insert(writer);
    }
    close();
    if (!pending.empty()) add_event(pending);
}

Body BodyWriter::finish() {
    close();
    complete(body_);
    return std::move(body_);
}

void BodyWriter::open(const Instructions& after) {
    open_ = body_.instructions.add({.stream = Stream::compute,
                                    .first_operator = body_.operators.next_index(),
                                    .after = {after.begin(), after.end()}});
    heaviest_flops_ = -1;
    name_hint_.clear();
}

void BodyWriter::close() {
    if (open_ < 0) return;
    current().name = unique(name_hint_);
    last_compute_ = open_;
    open_ = -1;
}

void BodyWriter::add_event(const Instructions& after) {
    open(after);
    name_hint_ = "event";
    close();
}

/// Closes the open instruction and returns what an instruction on `stream` must wait for: the last computation of the
/// body, and the pending instructions on other streams. If the body has not computed anything yet and `follows` asks
/// for all earlier computation, an empty compute instruction serves as the event.
std::vector<InstructionIndex> BodyWriter::after_compute(const Instructions& pending, Stream stream, Follows follows) {
    close();
    if (last_compute_ < 0 && follows == Follows::computation) add_event({});
    std::vector<InstructionIndex> after;
    if (last_compute_ >= 0) after.push_back(last_compute_);
    for (const InstructionIndex instruction : pending) {
        if (stream_of(instruction) != stream) after.push_back(instruction);
    }
    return after;
}

std::string BodyWriter::unique(const std::string& name) {
    const int count = ++used_[name];
    return count == 1 ? name : name + "." + std::to_string(count);
}

SlotIndex BodyWriter::canonical(SlotIndex slot) const {
    const auto found = aliases_.find(slot);
    return found == aliases_.end() ? slot : found->second;
}

void BodyWriter::collect(const Table& table, SlotIndex named, Instructions& pending) const {
    const SlotIndex slot = canonical(named);
    if (slot == kNoSlot || slot >= table.next_index()) return;
    if (table[slot] >= 0) pending.insert(table[slot]);
}

BodyWriter::Instructions BodyWriter::pending_of(const Operator& op) const {
    Instructions pending;
    for (const SlotIndex slot : op.in) collect(writer_, slot, pending);
    collect(writer_, op.scratch, pending);
    for (const SlotIndex slot : op.out) {
        collect(writer_, slot, pending);
        collect(reader_, slot, pending);
    }
    return pending;
}

void BodyWriter::note(Table& table, SlotIndex named, InstructionIndex index) const {
    const SlotIndex slot = canonical(named);
    if (slot == kNoSlot) return;
    if (slot >= table.next_index()) table.resize(slot.position() + 1, -1);
    table[slot] = index;
}

/// The compute stream has waited for this instruction, and so, streams being FIFOs, for all earlier ones of its stream:
/// they are no longer pending.
void BodyWriter::settle(InstructionIndex instruction) {
    for (Table* table : {&writer_, &reader_}) {
        for (InstructionIndex& entry : *table) {
            if (entry >= 0 && entry <= instruction && stream_of(entry) == stream_of(instruction)) entry = -1;
        }
    }
}

void write_reduction(BodyWriter& writer, const std::string& name, const BucketCut& bucket, bool copies_back) {
    const Reduction& reduction = bucket.reduction;
    const bool scatters = reduction.kind == CommKind::reduce_scatter;
    const ReductionSlots slots = add_slots(writer, name, bucket);
    if (bucket.back_elements > 0) {
        BucketCut before = bucket;
        before.offset = bucket.back_offset;
        before.elements = bucket.back_elements;
        write_copy_back(writer, name + ".before", before);
    }
    if (reduction.staged) writer.op(writer.streaming(models::OpKind::cast, slots.gradient, slots.source));
    if (reduction.staged && scatters && reduction.again) writer.clear(slots.gradient);
    // The next reduction sums over the ranks again, so that a sum that stayed on all ranks would count several times.
    // An all-reduce therefore leaves the mean on all ranks; a reduce-scatter leaves the sum on one rank only.
    const ReduceOp op = reduction.again ? ReduceOp::mean : ReduceOp::sum;
    // Only the optimizer waits for a bucket that is reduced in place, and for the last sum over the sets of shards. An
    // earlier sum changes a part of the bucket to which the next backward adds. As a shard that part has a space of its
    // own, so that the orders of accesses do not see it, and computation waits here.
    const bool is_followed = reduction.staged || (reduction.replicates && reduction.again);
    const InstructionIndex reduced = writer.communicate(name, Stream::dp,
                                                        {.kind = reduction.kind,
                                                         .axis = reduction.axis,
                                                         .reduce = scatters ? ReduceOp::sum : op,
                                                         .dtype = reduction.dtype,
                                                         .elements = bucket.elements,
                                                         .in = slots.source,
                                                         .out = scatters ? slots.shard : slots.source,
                                                         .accumulates = reduction.accumulates,
                                                         .consumes = scatters && reduction.again && !reduction.staged},
                                                        Follows::computation, is_followed);
    if (reduction.replicates) {
        writer.communicate(name + ".replicate", Stream::dp_replicate,
                           {.kind = CommKind::all_reduce,
                            .axis = GroupAxis::dp_replicate,
                            .reduce = op,
                            .dtype = reduction.shard_dtype,
                            .elements = bucket.shard_elements,
                            .in = slots.shard,
                            .out = slots.shard},
                           Follows::computation, is_followed, reduced);
    }
    if (copies_back) writer.op(writer.streaming(models::OpKind::cast, slots.source, slots.gradient));
}

void write_copy_back(BodyWriter& writer, const std::string& name, const BucketCut& bucket) {
    const ReductionSlots slots = add_slots(writer, name, bucket);
    writer.op(writer.streaming(models::OpKind::cast, slots.source, slots.gradient));
}

}  // namespace orrery::program
