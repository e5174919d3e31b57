#include "sim/program/stage_lists.h"

#include <algorithm>

#include "sim/program/step_slots.h"
#include "sim/program/transfer_rules.h"

namespace orrery::program {
namespace {

using models::kNoSlot;
using models::SlotIndex;
using models::SlotRole;

class ListMaker : ListParts {
  public:
    ListMaker(const ListParts& parts, const ScheduleShape& shape) : ListParts(parts), shape_(shape) {}

    void run() {
        lists.gathers_units = layout.rules.gathers_units;
        for (const ChunkIndex c : layout.chunks.indices()) lists.chunks.push_back(chunk_lists(c));
        list_gradient_sync(*this);
        list_optimizer(*this);
    }

  private:
    [[nodiscard]] ChunkLists chunk_lists(ChunkIndex c);
    void make_transfers(ChunkIndex c, ChunkLists& made);
    [[nodiscard]] Transfer transfer(ActionKind kind, bool up, Space space, SlotRole role);
    [[nodiscard]] SegmentListId forward_list(const LaidChunk& chunk, bool first_of_step);
    [[nodiscard]] SegmentListId backward_list(const LaidChunk& chunk, Phase phase, bool last_of_step);
    void gather_unit(ListBuilder& list, const LaidChunk& chunk, const Unit& unit);
    void gather_piece(BodyWriter& writer, const Unit& unit, const BucketCut& piece) const;
    void reduce_unit(ListBuilder& list, const LaidChunk& chunk, const Unit& unit, bool last_of_step);
    void keep_unit(BodyWriter& writer, const Unit::Part& part);
    void sum_over_tensor_ranks(BodyWriter& writer, const LaidChunk& chunk, const Unit& unit);
    void gather_buckets(ListBuilder& list, ChunkIndex chunk);
    void add_offload(ListBuilder& list, const LaidLayer& layer, bool out);
    [[nodiscard]] static Body offload_body(std::int64_t bytes, bool out);

    const ScheduleShape& shape_;
    const models::DataParallelChoices& choices_ = plan.implementation.data_parallel;
    std::map<std::pair<std::int64_t, bool>, BodyId> offload_bodies_;  // by bytes and direction
};

/// Whether a backward_weight pass of the chunk reads a slot of Space::hidden_in or hidden_gradient that lies in a
/// boundary buffer and not in the frame.
bool weights_read(const LaidChunk& chunk, Space space) {
    for (const LaidLayer& layer : chunk.layers) {
        const Segment& segment = layer.segment;
        if ((space == Space::hidden_in ? segment.hidden_in_offset : segment.gradient_in_offset) >= 0) continue;
        for (const models::Step& step : layer.lowered->backward_weight) {
            for (const SlotIndex slot : slots_read(step)) {
                if (layer.lowered->slots[slot].space == space) return true;
            }
        }
    }
    return false;
}

ChunkLists ListMaker::chunk_lists(ChunkIndex c) {
    const LaidChunk& chunk = layout.chunks[c];
    const Chunk& described = result.chunks[c];
    ChunkLists made;
    if (plan.parallelism.spreads_vocabulary()) {
        made.is_vocabulary = described.part != ChunkPart::stage;
        made.is_root = result.pp_index == (c == kInputChunk ? 0 : plan.parallelism.pp - 1);
        const bool corrects = plan.parallelism.vocabulary_parallel == VocabularyParallel::one_barrier;
        const bool looks_up = plan.parallelism.vocabulary_parallel != VocabularyParallel::interlaced;
        made.uses_side = (c == kOutputChunk && corrects) || (c == kInputChunk && looks_up);
        made.output_goes_everywhere = !made.is_vocabulary && made.is_root;
    }
    made.forward = forward_list(chunk, false);
    const bool copies = std::any_of(chunk.layers.begin(), chunk.layers.end(),
                                    [](const LaidLayer& layer) { return layer.lowered->weight_copy_bytes > 0; });
    made.forward_first = copies || gathers_buckets_ahead() ? forward_list(chunk, true) : made.forward;
    if (row_of(shape_.schedule).splits_backward()) {
        made.backward_input = backward_list(chunk, Phase::backward_input, false);
        made.backward_weight = backward_list(chunk, Phase::backward_weight, false);
        made.backward_weight_last = backward_list(chunk, Phase::backward_weight, true);
        made.weight_reads_input = weights_read(chunk, Space::hidden_in);
        made.weight_reads_gradient = weights_read(chunk, Space::hidden_gradient);
    }
    if (row_of(shape_.schedule).backward != BackwardPass::split) {
        const bool empty = std::all_of(chunk.layers.begin(), chunk.layers.end(),
                                       [](const LaidLayer& layer) { return layer.lowered->backward.empty(); });
        if (!empty) made.backward = backward_list(chunk, Phase::backward, false);
        if (!empty) made.backward_last = backward_list(chunk, Phase::backward, true);
    }
    if (made.is_vocabulary) return made;
    made.has_hidden_input = !described.has_embedding;
    const std::int64_t stages = virtual_stages(shape_);
    const auto rank_of = [&](std::int64_t stage) { return stage_holder(shape_, stage, described.direction).rank; };
    if (described.virtual_stage > 0) {
        made.input_stays = rank_of(described.virtual_stage - 1) == result.pp_index;
        made.receives = !made.input_stays;
    }
    if (described.virtual_stage + 1 < stages) {
        made.output_stays = rank_of(described.virtual_stage + 1) == result.pp_index;
        made.sends = !made.output_stays;
    }
    make_transfers(c, made);
    return made;
}

/// The list of one transfer. If transfers are scattered over tp, the receiver gathers the parts.
Transfer ListMaker::transfer(ActionKind kind, bool up, Space space, SlotRole role) {
    const Stream stream = stream_of(kind, up);
    const bool receives = !is_send(stream);
    const std::string name(name_of(kind));
    const DType dtype = precision().activation;
    const std::int64_t moved = layout.hidden_elements / layout.transfer_parts;
    BodyWriter writer(Phase::transfer);
    const SlotIndex slot = writer.slot(flat_slot(space, name, role, dtype, moved));
    writer.communicate(name, stream,
                       {.kind = receives ? CommKind::recv : CommKind::send,
                        .axis = axis_of(stream),
                        .dtype = dtype,
                        .elements = moved,
                        .in = receives ? kNoSlot : slot,
                        .out = receives ? slot : kNoSlot},
                       Follows::own);
    if (layout.transfer_parts > 1 && receives) {
        const SlotIndex whole = writer.slot(flat_slot(space, name + ".whole", role, dtype, layout.hidden_elements));
        writer.communicate(name + ".gather", Stream::tp,
                           {.kind = CommKind::all_gather,
                            .axis = GroupAxis::tp,
                            .dtype = dtype,
                            .elements = layout.hidden_elements,
                            .in = slot,
                            .out = whole},
                           Follows::own);
    }
    const bool host_waits =
        host_waits_for_transfers(plan.parallelism.schedule, plan.parallelism.vocabulary_parallel, plan.implementation);
    if (receives && host_waits) writer.host_wait("host." + name, Follows::own);
    ListBuilder list = new_list();
    list.add({}, writer.finish());
    return {list.finish(), stream};
}

void ListMaker::make_transfers(ChunkIndex c, ChunkLists& made) {
    const Chunk& chunk = result.chunks[c];
    made.scatters_transfers = layout.transfer_parts > 1;
    // Whether a transfer uses the `up` streams depends on the chunk that sends the activations.
    if (made.receives) {
        const StageHolder before = stage_holder(shape_, chunk.virtual_stage - 1, chunk.direction);
        const bool up = chunk_place(shape_, before.rank, before.chunk).up;
        const Space leaves = made.splits_backward() ? Space::hidden_gradient_out : Space::hidden_gradient;
        made.recv_forward = transfer(ActionKind::recv_forward, up, Space::hidden_in, SlotRole::hidden_in);
        made.send_backward = transfer(ActionKind::send_backward, up, leaves, SlotRole::hidden_gradient);
    }
    if (made.sends) {
        const Space arrives = Space::hidden_gradient;
        made.send_forward = transfer(ActionKind::send_forward, chunk.up, Space::hidden_out, SlotRole::hidden_out);
        made.recv_backward = transfer(ActionKind::recv_backward, chunk.up, arrives, SlotRole::hidden_gradient);
    }
}

/// Adds the all-gather of a unit's shards into its place in the window.
void ListMaker::gather_unit(ListBuilder& list, const LaidChunk& chunk, const Unit& unit) {
    for (const Unit::Part& part : unit.parts) {
        if (part.elements == 0) continue;
        Segment segment;
        segment.layer = chunk.layers[unit.layers.front()].index;
        segment.parameter_base[ParameterRange::dense] = part.window_offset;
        segment.shard_base[ParameterRange::dense] = part.shard_offset;
        segment.host_base = part.shard_offset * size_of(layout.stored_dtype);
        BodyWriter writer(Phase::gather);
        for (const BucketCut& piece : part.pieces) gather_piece(writer, unit, piece);
        list.add(segment, writer.finish());
    }
}

/// Gathers one piece. Shards that are stored in another type than the gather's, or on the host, are first cast or
/// copied to this rank's block of the destination.
void ListMaker::gather_piece(BodyWriter& writer, const Unit& unit, const BucketCut& piece) const {
    const bool from_host = plan.training.memory.offload_parameters, expert = piece.range == ParameterRange::expert;
    const bool crosses = layout.rules.of(piece.range).reduces;
    const DType stored = layout.stored_dtype, kept = precision().parameter;
    const DType sent = precision().fp8_parameters && !unit.root ? DType::fp8 : kept;
    const SlotIndex shard =
        writer.slot(flat_slot(from_host ? Space::host : Space::parameter_shard, "shard", SlotRole::parameter, stored,
                              piece.shard_elements, piece.shard_offset * (from_host ? size_of(stored) : 1)));
    SlotIndex source = shard;
    const Slot place = flat_slot(Space::parameter, expert ? "experts.unit" : "unit", SlotRole::parameter, kept,
                                 piece.elements, piece.offset);
    const SlotIndex whole = writer.slot(place);
    const GroupAxis axis = layout.rules.gather_axis(piece.range);
    // The shard goes to this rank's block of the destination, and the gather is in place.
    const auto move = [&](models::OpKind kind, DType to) {
        Slot own = place;
        if (crosses) own.own_block = axis;
        source = writer.slot(std::move(own));
        models::Operator op = writer.streaming(kind, shard, source);
        op.flops = 0;
        op.bytes_written = static_cast<double>(piece.shard_elements * size_of(to));
        return op;
    };
    if (from_host) {
        writer.op(move(models::OpKind::copy_from_host, stored), Stream::copy_in,
                  expert ? "experts.from_host" : "shard.from_host", Follows::own);
    } else if (stored != sent || !crosses) {
        writer.op(move(models::OpKind::cast, crosses ? sent : kept));
    }
    if (!crosses) return;  // this rank holds the only shard
    writer.communicate(expert ? "edp.gather" : "dp.gather", Stream::dp_gather,
                       {.kind = CommKind::all_gather,
                        .axis = axis,
                        .dtype = sent,
                        .elements = piece.elements,
                        .in = source,
                        .out = whole},
                       Follows::own);
}

/// Sums partial gradients over tensor-parallel ranks before the data-parallel reduction.
void ListMaker::sum_over_tensor_ranks(BodyWriter& writer, const LaidChunk& chunk, const Unit& unit) {
    for (const std::size_t l : unit.layers) {
        const LaidLayer& layer = chunk.layers[l];
        for (const ParameterRange range : {ParameterRange::tensor_sum, ParameterRange::kv_sum}) {
            const std::int64_t elements = layer.lowered->elements[range];
            const GroupAxis axis = sum_axis(range);
            if (elements == 0 || program.mesh->group_size(axis) < 2) continue;
            const std::int64_t offset = layer.segment.gradient_base[range] - unit.dense().gradient_offset;
            const SlotIndex slot =
                writer.slot(flat_slot(Space::gradient, std::string(name_of(range)), SlotRole::gradient,
                                      layout.rules.gradient_dtype, elements, offset));
            writer.all_reduce(std::string(name_of(axis)) + ".partial_gradients", Stream::tp, axis, slot);
        }
    }
}

/// If this rank holds the only shard of a part, the gradients are accumulated into it without communication.
void ListMaker::keep_unit(BodyWriter& writer, const Unit::Part& part) {
    const auto slot = [&](Space space, const std::string& name, DType dtype) {
        return writer.slot(flat_slot(space, name, SlotRole::gradient, dtype, part.elements, 0, part.range));
    };
    const SlotIndex gradient = slot(Space::gradient, "unit.gradients", layout.rules.gradient_dtype);
    const SlotIndex shard = slot(Space::gradient_shard, "unit.shard", precision().gradient);
    models::Operator op = writer.streaming(models::OpKind::accumulate, gradient, shard);
    op.bytes_read += op.bytes_written;
    writer.op(op);
}

/// Adds the reduction of a unit's gradients. Shards accumulate over the micro-batches and are summed between the sets
/// of shards only once, after the last: earlier sums would be counted again by later ones (FSDP2's
/// set_requires_all_reduce).
void ListMaker::reduce_unit(ListBuilder& list, const LaidChunk& chunk, const Unit& unit, bool last_of_step) {
    BodyWriter writer(Phase::reduce);
    sum_over_tensor_ranks(writer, chunk, unit);
    writer.join();  // the reductions below access the same gradients through other slots
    Segment segment;
    segment.layer = chunk.layers[unit.layers.front()].index;
    segment.gradient_base.fill(unit.dense().gradient_offset);
    segment.shard_base.fill(unit.dense().shard_offset);
    for (const Unit::Part& part : unit.parts) {
        segment.gradient_base[part.range] = part.gradient_offset;
        segment.shard_base[part.range] = part.shard_offset;
        if (part.elements == 0) continue;
        if (!layout.rules.of(part.range).reduces) {  // this rank holds the only shard
            if (layout.rules.reduces_units) keep_unit(writer, part);
            continue;
        }
        for (BucketCut piece : part.pieces) {
            piece.reduction.replicates = piece.reduction.replicates && last_of_step;
            write_reduction(writer, part.range == ParameterRange::expert ? "edp.unit" : "dp.unit", piece);
        }
    }
    list.add(segment, writer.finish());
}

/// ZeRO-1 and 2: adds the gathers of updated parameters, in the order in which the forward needs them.
void ListMaker::gather_buckets(ListBuilder& list, ChunkIndex c) {
    for (std::size_t b = result.buckets.size(); b-- > 0;) {
        const Bucket& bucket = result.buckets[b];
        if (first_of(bucket).chunk == c && layout.rules.of(bucket.range).reduces) gather_bucket(list, bucket);
    }
}

/// Adds the copy of a layer's saved activations to the host (`out`) or back.
void ListMaker::add_offload(ListBuilder& list, const LaidLayer& layer, bool out) {
    const std::int64_t bytes = layer.lowered->saved_bytes;
    if (bytes == 0) return;
    const auto [known, fresh] = offload_bodies_.try_emplace({bytes, out});
    if (fresh) known->second = bodies.add(offload_body(bytes, out));
    Segment segment = layer.segment;
    segment.body = known->second;
    list.add(segment);
}

Body ListMaker::offload_body(std::int64_t bytes, bool out) {
    BodyWriter writer(Phase::offload);
    const auto slot = [&](Space space, const std::string& name) {
        return writer.slot(flat_slot(space, name, SlotRole::saved, DType::uint8, bytes));
    };
    const SlotIndex device = slot(Space::activation, "activations"), host = slot(Space::host, "activations.host");
    models::Operator op = out ? writer.streaming(models::OpKind::copy_to_host, device, host)
                              : writer.streaming(models::OpKind::copy_from_host, host, device);
    op.flops = 0;
    writer.op(op, out ? Stream::copy_out : Stream::copy_in, "", out ? Follows::computation : Follows::own);
    return writer.finish();
}

SegmentListId ListMaker::forward_list(const LaidChunk& chunk, bool first_of_step) {
    ListBuilder list = new_list();
    const ShardingRules& rules = layout.rules;
    const auto c = ChunkIndex::of(&chunk - layout.chunks.data());
    if (first_of_step && gathers_buckets_ahead()) gather_buckets(list, c);
    std::int64_t next_unit = 0;
    for (const LaidLayer& layer : chunk.layers) {
        if (rules.gathers_units && layer.unit >= 0) {
            const bool root = chunk.units[static_cast<std::size_t>(layer.unit)].root;
            const std::int64_t end = layer.unit + 1 + (root ? 0 : choices_.forward_prefetch);
            for (; next_unit < std::min(end, std::ssize(chunk.units)); ++next_unit) {
                gather_unit(list, chunk, chunk.units[static_cast<std::size_t>(next_unit)]);
            }
        }
        if (first_of_step || rules.gathers_units) list.prepare(layer);
        list.pass(layer, Phase::forward);
        if (layer.offloaded) add_offload(list, layer, true);
    }
    if (plan.implementation.host.waits_after_micro_batch && result.chunks[c].has_head) {
        BodyWriter writer(Phase::forward);
        writer.host_wait("host.micro_batch", Follows::computation);
        Segment segment;
        segment.layer = chunk.layers.back().index;
        list.add(segment, writer.finish());
    }
    return list.finish();
}

SegmentListId ListMaker::backward_list(const LaidChunk& chunk, Phase phase, bool last_of_step) {
    const ShardingRules& rules = layout.rules;
    const bool has_weights = phase != Phase::backward_input, has_input = phase != Phase::backward_weight;
    const bool gathers = rules.gathers_units && plan.parallelism.reshard_after_forward && has_input;
    // Gradients that stay whole over the micro-batches are reduced after the last one.
    const bool reduces = has_weights && (rules.reduces_units || (rules.gathers_units && last_of_step));
    const bool cuts = has_weights && !rules.reduces_units && rules.overlaps &&
                      (last_of_step || plan.parallelism.reduces_every_micro_batch) &&
                      std::any_of(chunk.layers.begin(), chunk.layers.end(),
                                  [](const LaidLayer& layer) { return !layer.cuts.empty(); });
    const auto root_count = static_cast<std::int64_t>(!chunk.units.empty() && chunk.units.front().root ? 1 : 0);
    auto next_unit = static_cast<std::int64_t>(chunk.units.size()) - 1;
    std::size_t reloaded = chunk.layers.size();  // the offloaded layers from here on are back on the device
    ListBuilder list = new_list();
    for (std::size_t l = chunk.layers.size(); l-- > 0;) {
        const LaidLayer& layer = chunk.layers[l];
        const Unit* unit = layer.unit >= 0 ? &chunk.units[static_cast<std::size_t>(layer.unit)] : nullptr;
        if (gathers && unit != nullptr && !unit->root) {
            const std::int64_t through = std::max(root_count, layer.unit - choices_.backward_prefetch);
            for (; next_unit >= through; --next_unit) {
                gather_unit(list, chunk, chunk.units[static_cast<std::size_t>(next_unit)]);
            }
        }
        // The place of the fp8 copies has been used by other layers since the forward pass.
        if (rules.gathers_units && has_input) list.prepare(layer);
        // An offloaded layer is reloaded at most one layer before its use.
        for (; reloaded > 0 && reloaded >= l; --reloaded) {
            const LaidLayer& back = chunk.layers[reloaded - 1];
            if (back.offloaded) add_offload(list, back, false);
        }
        std::vector<BucketCut> buckets;
        if (cuts) buckets = layer.cuts;
        for (BucketCut& bucket : buckets) bucket.reduction.again = !last_of_step;
        list.pass(layer, phase, buckets);
        const bool unit_ends = unit != nullptr && unit->layers.front() == l;
        if (reduces && unit_ends) reduce_unit(list, chunk, *unit, last_of_step);
    }
    // The buckets that are still in staging buffers after the last layer's reduction.
    if (cuts) list.copy_back(Phase::reduce, chunk.staged_last);
    return list.finish();
}

}  // namespace

void make_lists(const ListParts& parts, const ScheduleShape& shape, const std::vector<ComputeTask>& order) {
    ListMaker(parts, shape).run();
    if (parts.plan.parallelism.overlaps_experts) cut_lists(parts, order);
}

}  // namespace orrery::program
