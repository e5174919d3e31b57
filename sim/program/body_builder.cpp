#include "sim/program/body_builder.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/error.h"
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
BoundaryAxis axis_of(Boundary::Axis axis) {
    switch (axis) {
        case Boundary::Axis::tp:
            return {GroupAxis::tp, Stream::tp, "tp."};
        case Boundary::Axis::cp:
            return {GroupAxis::cp, Stream::cp, "cp."};
        case Boundary::Axis::ep:
            return {GroupAxis::ep, Stream::ep, "ep."};
        case Boundary::Axis::etp:
            return {GroupAxis::etp, Stream::ep, "etp."};
        case Boundary::Axis::pp:  // vocabulary parallelism requires tp = 1, so the tp stream is unused
            return {GroupAxis::pipeline, Stream::tp, "vocabulary."};
    }
    throw_bug(__FILE__, __LINE__, "Boundary::Axis", "unknown axis");
}

/// The kind of a boundary's communication, and the verb in its name.
struct BoundaryOperation {
    CommKind kind;
    const char* verb;
    ReduceOp reduce = ReduceOp::sum;
};
BoundaryOperation operation_of(Boundary::Kind kind) {
    switch (kind) {
        case Boundary::Kind::gather:
            return {CommKind::all_gather, "gather"};
        case Boundary::Kind::reduce:
            return {CommKind::all_reduce, "reduce"};
        case Boundary::Kind::reduce_scatter:
            return {CommKind::reduce_scatter, "reduce_scatter"};
        case Boundary::Kind::reduce_max:
            return {CommKind::all_reduce, "reduce_max", ReduceOp::max};
        case Boundary::Kind::all_to_all:
            return {CommKind::all_to_all, "all_to_all"};
        case Boundary::Kind::exchange:
            return {CommKind::exchange, "exchange"};
        case Boundary::Kind::broadcast:
            return {CommKind::broadcast, "broadcast"};
        case Boundary::Kind::reduce_to_root:
            return {CommKind::reduce, "reduce"};
    }
    throw_bug(__FILE__, __LINE__, "Boundary::Kind", "unknown kind");
}

/// Splits a pass into instructions. Compute operators are appended to the open instruction until an event closes it.
class InstructionBuilder {
  public:
    explicit InstructionBuilder(Body& body) : body_(body) {}

    void add(const Operator& op) {
        const std::set<InstructionIndex> pending = pending_of(op);
        if (!pending.empty()) {
            close();
            for (const InstructionIndex instruction : pending) settle(instruction);
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

    /// An operator on another local stream, as an instruction by itself.
    void add(const Operator& op, Stream stream, const std::string& name, Follows follows) {
        const std::set<InstructionIndex> pending = pending_of(op);
        Instruction instruction{.name = unique(name), .stream = stream, .operator_count = 1};
        instruction.after = after_compute(pending, stream, follows);
        instruction.first_operator = body_.operators.add(op);
        const InstructionIndex index = append(std::move(instruction));
        for (const SlotIndex slot : op.in) note(reader_, slot, index);
        for (const SlotIndex slot : op.out) note(writer_, slot, index);
    }

    /// The host waits until everything so far has completed.
    void host_wait(const std::string& name, Follows follows) {
        PerStream<InstructionIndex> last{};
        last.fill(-1);
        for (const InstructionIndex i : body_.instructions.indices()) last[stream_of(i)] = i;
        Instruction instruction{.name = unique(name), .stream = Stream::host, .operator_count = 1};
        instruction.after = after_compute({}, Stream::host, follows);
        for (const Stream stream : kStreams) {
            if (last[stream] >= 0 && stream != Stream::compute && stream != Stream::host) {
                instruction.after.push_back(last[stream]);
            }
        }
        instruction.first_operator = body_.operators.add({.kind = models::OpKind::host_wait});
        append(std::move(instruction));
    }

    void add(const Boundary& boundary, Follows follows) {
        const BoundaryAxis across = axis_of(boundary.axis);
        const BoundaryOperation by = operation_of(boundary.kind);
        const Communication communication{.kind = by.kind,
                                          .axis = across.axis,
                                          .reduce = by.reduce,
                                          .dtype = boundary.dtype,
                                          .elements = boundary.elements,
                                          .in = boundary.in,
                                          .out = boundary.out,
                                          .root = boundary.root,
                                          .send_counts = boundary.send_counts,
                                          .receive_counts = boundary.receive_counts,
                                          .row_elements = boundary.row_elements};
        const std::string name = std::string(across.prefix) + by.verb + "." + slot_name(boundary.in);
        note_accesses(communicate(name, across.stream, communication, follows));
    }

    /// A communication. It waits for the computation that `follows` names and for conflicting accesses to its slots on
    /// other streams.
    InstructionIndex communicate(const std::string& name, Stream stream, const Communication& communication,
                                 Follows follows = Follows::computation) {
        std::set<InstructionIndex> pending;
        for (const SlotIndex slot : communication.slots_read()) collect(writer_, slot, pending);
        collect(writer_, communication.out, pending);
        collect(reader_, communication.out, pending);
        if (communication.consumes) collect(reader_, communication.in, pending);
        Instruction instruction{
            .name = unique(name), .stream = stream, .is_communication = true, .communication = communication};
        instruction.after = after_compute(pending, stream, follows);
        return append(std::move(instruction));
    }
    /// Makes later computation on the communication's slots wait for it.
    void note_accesses(InstructionIndex index) {
        const Communication& communication = body_.instructions[index].communication;
        note(writer_, communication.out, index);
        if (communication.consumes) note(writer_, communication.in, index);
        for (const SlotIndex slot : communication.slots_read()) {
            if (slot != communication.out) note(reader_, slot, index);
        }
    }

    /// Declares that two slots are the same memory.
    void alias(SlotIndex slot, SlotIndex of) { aliases_[slot] = of; }

    /// Lets the compute stream wait for the noted writes that are still in flight on other streams. Reductions of
    /// buckets in place are not noted: only the optimizer waits for them.
    void finish() {
        std::set<InstructionIndex> pending;
        for (const InstructionIndex writer : writer_) {
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
    using Table = IndexedVector<SlotIndex, InstructionIndex>;
    [[nodiscard]] Instruction& current() { return body_.instructions[open_]; }
    [[nodiscard]] const std::string& slot_name(SlotIndex slot) const { return body_.slots[slot].decl.name; }
    [[nodiscard]] Stream stream_of(InstructionIndex index) const { return body_.instructions[index].stream; }
    InstructionIndex append(Instruction instruction) { return body_.instructions.add(std::move(instruction)); }

    void open(std::vector<InstructionIndex> after) {
        open_ = append(
            {.stream = Stream::compute, .first_operator = body_.operators.next_index(), .after = std::move(after)});
        heaviest_flops_ = -1;
        name_hint_.clear();
    }

    /// Closes the open instruction and returns what an instruction on `stream` must wait for: the last computation of
    /// the body, and the pending instructions on other streams. If the body has not computed anything yet and
    /// `follows` asks for all earlier computation, an empty compute instruction serves as the event.
    [[nodiscard]] std::vector<InstructionIndex> after_compute(const std::set<InstructionIndex>& pending, Stream stream,
                                                              Follows follows) {
        close();
        if (last_compute_ < 0 && follows == Follows::computation) {
            open({});
            name_hint_ = "event";
            close();
        }
        std::vector<InstructionIndex> after;
        if (last_compute_ >= 0) after.push_back(last_compute_);
        for (const InstructionIndex instruction : pending) {
            if (stream_of(instruction) != stream) after.push_back(instruction);
        }
        return after;
    }

    std::string unique(const std::string& name) {
        const int count = ++used_[name];
        return count == 1 ? name : name + "." + std::to_string(count);
    }

    [[nodiscard]] SlotIndex canonical(SlotIndex slot) const {
        const auto found = aliases_.find(slot);
        return found == aliases_.end() ? slot : found->second;
    }
    void collect(const Table& table, SlotIndex named, std::set<InstructionIndex>& pending) const {
        const SlotIndex slot = canonical(named);
        if (slot == kNoSlot || slot >= table.next_index()) return;
        if (table[slot] >= 0) pending.insert(table[slot]);
    }
    [[nodiscard]] std::set<InstructionIndex> pending_of(const Operator& op) const {
        std::set<InstructionIndex> pending;
        for (const SlotIndex slot : op.in) collect(writer_, slot, pending);
        collect(writer_, op.scratch, pending);
        for (const SlotIndex slot : op.out) {
            collect(writer_, slot, pending);
            collect(reader_, slot, pending);
        }
        return pending;
    }
    void note(Table& table, SlotIndex named, InstructionIndex index) const {
        const SlotIndex slot = canonical(named);
        if (slot == kNoSlot) return;
        if (slot >= table.next_index()) table.resize(slot.position() + 1, -1);
        table[slot] = index;
    }
    /// The compute stream has waited for this instruction, and so, streams being FIFOs, for all earlier ones of its
    /// stream: they are no longer pending.
    void settle(InstructionIndex instruction) {
        for (Table* table : {&writer_, &reader_}) {
            for (InstructionIndex& entry : *table) {
                if (entry >= 0 && entry <= instruction && stream_of(entry) == stream_of(instruction)) entry = -1;
            }
        }
    }

    Body& body_;
    Table writer_, reader_;  // by slot: other streams' last write and read, if the compute stream has not waited for it
    std::map<SlotIndex, SlotIndex> aliases_;
    std::map<std::string, int> used_;
    InstructionIndex open_ = -1;
    InstructionIndex last_compute_ = -1;
    double heaviest_flops_ = -1;
    std::string name_hint_;
};

SlotDecl flat(const std::string& name, SlotRole role, DType dtype, std::int64_t elements) {
    return {.name = name, .role = role, .dtype = dtype, .shape = {elements}};
}

Operator streaming(models::OpKind kind, std::int64_t elements, SlotIndex from, DType from_type, SlotIndex to,
                   DType to_type) {
    Operator op{.kind = kind, .elements = elements, .in = {from}, .out = {to}};
    op.flops = static_cast<double>(elements);
    op.bytes_read = static_cast<double>(elements * size_of(from_type));
    op.bytes_written = static_cast<double>(elements * size_of(to_type));
    return op;
}

/// The slots of a bucket's reduction.
struct ReductionSlots {
    SlotIndex gradient = kNoSlot;
    SlotIndex source = kNoSlot;  // input of the collective: the gradients, or the staging buffer
    SlotIndex shard = kNoSlot;
};

template <typename AddSlot>
ReductionSlots reduction_slots(const std::string& name, const BucketCut& bucket, DType gradient_dtype, AddSlot&& add) {
    ReductionSlots slots;
    const Reduction& reduction = bucket.reduction;
    const auto range = [&](Space space, const SlotDecl& decl, std::int64_t offset) {
        return add(Slot{.decl = decl, .space = space, .offset = offset, .bytes = decl.bytes(), .range = bucket.range});
    };
    slots.gradient =
        range(Space::gradient, flat(name, SlotRole::gradient, gradient_dtype, bucket.elements), bucket.offset);
    slots.source = slots.gradient;
    if (reduction.staged) {
        slots.source =
            range(Space::reduction, flat(name + ".staged", SlotRole::transient, reduction.dtype, bucket.elements),
                  bucket.reduction_offset);
    }
    if (reduction.kind == CommKind::reduce_scatter) {
        slots.shard = range(Space::gradient_shard,
                            flat(name + ".shard", SlotRole::gradient, reduction.shard_dtype, bucket.shard_elements),
                            bucket.shard_offset);
    }
    return slots;
}

template <typename Compute, typename Communicate>
void emit_reduction(const std::string& name, const BucketCut& bucket, DType gradient_dtype, const ReductionSlots& slots,
                    Compute&& compute, Communicate&& communicate) {
    const Reduction& reduction = bucket.reduction;
    if (reduction.staged) {
        compute(streaming(models::OpKind::cast, bucket.elements, slots.gradient, gradient_dtype, slots.source,
                          reduction.dtype));
    }
    const bool scatters = reduction.kind == CommKind::reduce_scatter;
    if (reduction.staged && scatters && reduction.again) {
        Operator clear{.kind = models::OpKind::clear, .elements = bucket.elements, .out = {slots.gradient}};
        clear.bytes_written = static_cast<double>(bucket.elements * size_of(gradient_dtype));
        compute(clear);
    }
    // The next reduction sums over the ranks again, so that a sum that stayed on all ranks would count several times.
    // An all-reduce therefore leaves the mean on all ranks; a reduce-scatter leaves the sum on one rank only.
    const ReduceOp op = reduction.again ? ReduceOp::mean : ReduceOp::sum;
    communicate(name, Stream::dp,
                Communication{.kind = reduction.kind,
                              .axis = reduction.axis,
                              .reduce = scatters ? ReduceOp::sum : op,
                              .dtype = reduction.dtype,
                              .elements = bucket.elements,
                              .in = slots.source,
                              .out = scatters ? slots.shard : slots.source,
                              .accumulates = reduction.accumulates,
                              .consumes = scatters && reduction.again && !reduction.staged});
    if (!reduction.replicates) return;
    communicate(name + ".replicate", Stream::dp_replicate,
                Communication{.kind = CommKind::all_reduce,
                              .axis = GroupAxis::dp_replicate,
                              .reduce = op,
                              .dtype = reduction.shard_dtype,
                              .elements = bucket.shard_elements,
                              .in = slots.shard,
                              .out = slots.shard});
}

/// The previous bucket in the bucket's staging buffer, which must be copied back first.
BucketCut bucket_before(const BucketCut& bucket) {
    BucketCut before = bucket;
    before.offset = bucket.back_offset;
    before.elements = bucket.back_elements;
    return before;
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
                const SlotPlace& place = layer.places[slot];
                const bool inside = place.space == Space::gradient && place.range == bucket.range &&
                                    place.offset >= bucket.offset && place.offset < bucket.offset + bucket.elements;
                if (inside) positions[b] = static_cast<std::ptrdiff_t>(i);
            }
        }
        if (b > 0) positions[b] = std::max(positions[b], positions[b - 1]);
    }
    return positions;
}

IndexedVector<SlotIndex, Slot> slots_of(const LoweredLayer& layer) {
    ORRERY_CHECK(layer.places.size() == layer.slots.size(), "a layer needs a place for each slot");
    IndexedVector<SlotIndex, Slot> slots;
    for (const SlotIndex i : layer.slots.indices()) {
        const SlotPlace& place = layer.places[i];
        slots.push_back({.decl = layer.slots[i],
                         .space = place.space,
                         .offset = place.offset,
                         .bytes = layer.slots[i].bytes(),
                         .range = place.range,
                         .born = layer.lives[i].born,
                         .dies = layer.lives[i].dies,
                         .own_block = place.own_block});
    }
    return slots;
}

}  // namespace

Body build_body(const LoweredLayer& layer, Phase phase, const std::vector<models::Step>& steps,
                const std::vector<BucketCut>& buckets) {
    Body body{.phase = phase, .layer_kind = layer.kind, .slots = slots_of(layer)};
    std::map<std::int64_t, SlotIndex> staging;  // by offset
    const auto add_slot = [&](Slot slot) { return body.slots.add(std::move(slot)); };
    InstructionBuilder builder(body);
    const auto compute = [&](const Operator& op) {
        if (runs_on_side(layer, phase, op)) {
            builder.add(op, Stream::side, std::string(name_of(op.kind)), Follows::own);
        } else {
            builder.add(op);
        }
    };
    const std::vector<std::ptrdiff_t> complete_after = bucket_positions(layer, steps, buckets);
    const auto reduce_after = [&](std::ptrdiff_t position) {
        for (std::size_t b = 0; b < buckets.size(); ++b) {
            if (complete_after[b] != position) continue;
            const BucketCut& bucket = buckets[b];
            const DType dtype = layer.slot(bucket.gradient_slot).dtype;
            const std::string name = "dp.bucket." + std::to_string(b);
            ReductionSlots slots = reduction_slots(name, bucket, dtype, add_slot);
            if (bucket.reduction.staged) {
                // Slots in the same staging buffer alias, so that a later bucket's cast waits for the earlier
                // collective.
                const auto share = [&](SlotIndex slot) {
                    builder.alias(slot, staging.try_emplace(bucket.reduction_offset, slot).first->second);
                };
                share(slots.source);
                if (bucket.back_elements > 0) {
                    const BucketCut before = bucket_before(bucket);
                    const ReductionSlots back = reduction_slots(name + ".before", before, dtype, add_slot);
                    share(back.source);
                    compute(streaming(models::OpKind::cast, before.elements, back.source, before.reduction.dtype,
                                      back.gradient, dtype));
                }
            }
            emit_reduction(name, bucket, dtype, slots, compute,
                           [&](const std::string& what, Stream stream, const Communication& communication) {
                               const InstructionIndex index = builder.communicate(what, stream, communication);
                               const bool is_followed = bucket.reduction.staged || bucket.reduction.replicates;
                               if (is_followed) builder.note_accesses(index);
                           });
        }
    };
    reduce_after(-1);
    for (std::size_t i = 0; i < steps.size(); ++i) {
        if (const auto* boundary = std::get_if<Boundary>(&steps[i])) {
            builder.add(*boundary, lists_order_it(layer, *boundary) ? Follows::own : Follows::computation);
        } else {
            compute(std::get<Operator>(steps[i]));
        }
        reduce_after(static_cast<std::ptrdiff_t>(i));
    }
    if (layer.options.leaves_communication_open) {
        builder.close();
    } else {
        builder.finish();
    }
    complete(body);
    return body;
}

struct BodyWriter::State {
    Body body;
    InstructionBuilder builder{body};
};

BodyWriter::BodyWriter(Phase phase, models::LayerKind kind) : state_(std::make_unique<State>()) {
    state_->body.phase = phase;
    state_->body.layer_kind = kind;
}
BodyWriter::~BodyWriter() = default;

SlotIndex BodyWriter::slot(Slot slot) {
    return state_->body.slots.add(std::move(slot));
}

void BodyWriter::op(const Operator& op, Stream stream, const std::string& name, Follows follows) {
    if (stream == Stream::compute) {
        state_->builder.add(op);
    } else {
        state_->builder.add(op, stream, name.empty() ? std::string(name_of(op.kind)) : name, follows);
    }
}

void BodyWriter::communicate(const std::string& name, Stream stream, const Communication& communication,
                             Follows follows) {
    // At the end of a step the action's waits order the instruction after earlier computation.
    if (state_->body.phase == Phase::gradient_sync) follows = Follows::own;
    state_->builder.note_accesses(state_->builder.communicate(name, stream, communication, follows));
}

void BodyWriter::host_wait(const std::string& name, Follows follows) {
    state_->builder.host_wait(name, follows);
}

void BodyWriter::join() {
    state_->builder.finish();
}

Body BodyWriter::finish() {
    state_->builder.close();
    complete(state_->body);
    return std::move(state_->body);
}

void write_reduction(BodyWriter& writer, const std::string& name, const BucketCut& bucket, DType gradient_dtype,
                     bool copies_back) {
    const ReductionSlots slots =
        reduction_slots(name, bucket, gradient_dtype, [&](Slot slot) { return writer.slot(std::move(slot)); });
    emit_reduction(
        name, bucket, gradient_dtype, slots, [&](const Operator& op) { writer.op(op); },
        [&](const std::string& what, Stream stream, const Communication& communication) {
            writer.communicate(what, stream, communication);
        });
    if (!copies_back) return;
    writer.op(streaming(models::OpKind::cast, bucket.elements, slots.source, bucket.reduction.dtype, slots.gradient,
                        gradient_dtype));
}

void write_copy_back(BodyWriter& writer, const BucketCut& bucket, DType gradient_dtype) {
    const std::string name =
        "dp.bucket.at." + std::to_string(bucket.offset);  // unique, because several copies may follow one another
    const ReductionSlots slots =
        reduction_slots(name, bucket, gradient_dtype, [&](Slot slot) { return writer.slot(std::move(slot)); });
    writer.op(streaming(models::OpKind::cast, bucket.elements, slots.source, bucket.reduction.dtype, slots.gradient,
                        gradient_dtype));
}

}  // namespace orrery::program
