#include "sim/program/rank_layout.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/reversed.h"

namespace orrery::program {
namespace {

using models::LayerKind;
using models::SlotDecl;
using models::SlotIndex;

class RankLayoutBuilder {
  public:
    RankLayoutBuilder(const Plan& plan, const Mesh& mesh, const ScheduleShape& shape, StepKind step,
                      LayerLibrary& layers, RankClass& result)
        : plan_(plan), shape_(shape), step_(step), layers_(layers), result_(result) {
        layout_.rules = sharding_rules(plan, mesh, result.pp_index);
        const bool fp32_shards = layout_.rules.gathers_units && plan.implementation.stores_fp32_shards;
        layout_.stored_dtype = fp32_shards ? DType::fp32 : plan.training.precision.parameter;
        layout_.keeps_master = plan.training.precision.master_weights && layout_.stored_dtype != DType::fp32;
    }

    RankLayout run() {
        collect_chunks();
        if (layout_.rules.has_units()) {
            cut_units();
            place_units();
        } else {
            place_flat();
            cut_buckets();
            stage_buckets();
        }
        const ShardingRules& rules = layout_.rules;
        result_.parameter_shards_alias = rules.gathers_buckets();
        result_.gradient_shards_alias = rules.shards_states && !rules.reduces_units;
        result_.optimizer_elements = rules.shards_states ? result_.shard_elements : result_.parameter_elements;
        find_tied();
        place_copies();
        for (const ChunkIndex c : layout_.chunks.indices()) place_activations(c);
        const Parallelism& p = plan_.parallelism;
        layout_.hidden_elements = plan_.training.sequence_length / p.cp * plan_.training.micro_batch_size *
                                  plan_.model.hidden / (p.sequence_parallel ? p.tp : 1);
        result_.boundary_bytes = align(layout_.hidden_elements * size_of(plan_.training.precision.activation));
        // With sequence parallelism the hidden state is sharded already.
        const bool scatters = plan_.implementation.pipeline.scatters_transfers && !p.sequence_parallel;
        if (scatters && layout_.hidden_elements % p.tp == 0) layout_.transfer_parts = p.tp;
        return std::move(layout_);
    }

  private:
    void collect_chunks();
    static void push(LaidChunk& chunk, const LoweredLayer& lowered, std::int64_t index, bool offloaded = false) {
        LaidLayer layer{.lowered = &lowered, .index = static_cast<std::int32_t>(index), .offloaded = offloaded};
        layer.segment.layer = layer.index;
        chunk.layers.push_back(std::move(layer));
    }
    const Bucket& add_bucket(ParameterRange range, std::int64_t begin, std::int64_t end);
    void place_flat();
    void cut_buckets();
    void close_bucket(std::size_t first, std::size_t last);
    void stage_buckets();
    void cut_units();
    void assign_window_slots();
    void lay_part(ChunkIndex chunk, const Unit& unit, Unit::Part& part);
    void cut_part(std::size_t first, Unit::Part& part);
    [[nodiscard]] bool stand_apart(const Parameter& parameter, const Parameter& next) const {
        return layers_.padding().keeps_tied_apart && (parameter.name == kTiedWeight || next.name == kTiedWeight);
    }
    void place_units();
    void set_bases(LaidChunk& chunk, Unit& unit);
    void find_tied();
    void place_copies();
    void place_activations(ChunkIndex chunk);
    void push_parameters(ChunkIndex chunk, LaidLayer& layer, ParameterRange range, std::int64_t base);
    [[nodiscard]] LaidLayer& layer_of(const Parameter& parameter);
    [[nodiscard]] std::int64_t bucket_cap(bool first) const;

    const Plan& plan_;
    const ScheduleShape& shape_;
    StepKind step_;
    LayerLibrary& layers_;
    RankClass& result_;
    RankLayout layout_;
};

void RankLayoutBuilder::collect_chunks() {
    const Parallelism& p = plan_.parallelism;
    const MemorySavings& memory = plan_.training.memory;
    const std::int64_t last = virtual_stages(shape_) - 1;
    const bool spread = p.spreads_vocabulary();
    for (std::int64_t c = 0; c < shape_.chunks; ++c) {
        const ChunkPlace place = chunk_place(shape_, result_.pp_index, ChunkIndex::of(c));
        const auto stage = p.stage_layers.begin() + place.virtual_stage;
        const Chunk chunk{.virtual_stage = place.virtual_stage,
                          .direction = place.direction,
                          .up = place.up,
                          .first_block = std::accumulate(p.stage_layers.begin(), stage, std::int64_t{0}),
                          .block_count = *stage,
                          .has_embedding = place.virtual_stage == 0 && !spread,
                          .has_head = place.virtual_stage == last && !spread};
        LaidChunk laid;
        if (chunk.has_embedding) push(laid, layers_.layer(LayerKind::embedding, false), -1);
        for (std::int64_t i = 0; i < chunk.block_count; ++i) {
            const std::int64_t index = chunk.first_block + i;
            const LayerKind kind = plan_.model.is_expert_layer(index) ? LayerKind::expert_block : LayerKind::block;
            const bool recomputed = memory.recompute_layers < 0 || i < memory.recompute_layers;
            push(laid, layers_.layer(kind, recomputed), index, i < memory.offload_layers);
        }
        if (chunk.has_head) push(laid, layers_.layer(LayerKind::head, false), plan_.model.layers);
        if (spread && place.virtual_stage == last) {
            push(laid, layers_.vocabulary(VocabularyPart::final_norm, true), plan_.model.layers);
        }
        result_.chunks.push_back(chunk);
        layout_.chunks.push_back(std::move(laid));
    }
    if (!spread) return;
    for (const VocabularyPart part : {VocabularyPart::output, VocabularyPart::input}) {
        const bool output = part == VocabularyPart::output;
        LaidChunk laid;
        push(laid, layers_.vocabulary(part, result_.pp_index == (output ? p.pp - 1 : 0)),
             output ? plan_.model.layers : -1);
        result_.chunks.push_back(
            {.part = output ? ChunkPart::vocabulary_output : ChunkPart::vocabulary_input, .virtual_stage = -1});
        layout_.chunks.push_back(std::move(laid));
    }
}

void RankLayoutBuilder::push_parameters(ChunkIndex chunk, LaidLayer& layer, ParameterRange range, std::int64_t base) {
    for (std::size_t i = 0; i < layer.lowered->ready_order.size(); ++i) {
        const SlotIndex slot = layer.lowered->ready_order[i];
        const Slot& place = layer.lowered->slots[slot];
        if (place.range != range) continue;
        const SlotDecl& decl = place.decl;
        const std::string prefix = is_block(layer.lowered->kind) ? "layers." + std::to_string(layer.index) + "." : "";
        result_.parameters.push_back({.name = prefix + decl.name,
                                      .range = range,
                                      .offset = base + place.offset,
                                      .elements = decl.elements(),
                                      .padding = layer.lowered->paddings[i],
                                      .decl = decl,
                                      .layer = layer.index,
                                      .chunk = chunk});
    }
}

/// Flat order without units: by range, then from the last chunk and layer to the first, in which order gradients become
/// complete.
void RankLayoutBuilder::place_flat() {
    std::int64_t next = 0;
    for (const ParameterRange range : kRanges) {
        result_.range_begin[range] = next;
        for (const ChunkIndex c : layout_.chunks.indices_backward()) {
            for (LaidLayer& layer : reversed(layout_.chunks[c].layers)) {
                layer.segment.parameter_base[range] = layer.segment.gradient_base[range] = next;
                push_parameters(c, layer, range, next);
                next += layer.lowered->elements[range];
            }
        }
        result_.range_end[range] = next;
    }
    result_.parameter_elements = result_.parameter_buffer_elements = result_.gradient_buffer_elements = next;
}

LaidLayer& RankLayoutBuilder::layer_of(const Parameter& parameter) {
    std::vector<LaidLayer>& layers = layout_.chunks[parameter.chunk].layers;
    const auto found = std::ranges::find(layers, parameter.layer, &LaidLayer::index);
    ORRERY_CHECK(found != layers.end(), parameter.name + " belongs to no layer");
    return *found;
}

/// The number of elements from which on a bucket is closed. `first`: the chunk's first bucket.
std::int64_t RankLayoutBuilder::bucket_cap(bool first) const {
    const models::DataParallelChoices& choices = plan_.implementation.data_parallel;
    constexpr std::int64_t kWhole = std::int64_t{1} << 60;
    if (!layout_.rules.overlaps && choices.overlaps_first_stage_only) return kWhole;
    if (step_ == StepKind::first && plan_.parallelism.data_parallel == DataParallel::ddp) return kWhole;
    const std::int64_t bytes = first ? choices.first_bucket_bytes : choices.bucket_bytes;
    return std::max(bytes / size_of(plan_.training.precision.gradient),
                    choices.bucket_elements_per_rank * layout_.rules.dense.ranks);
}

/// Cuts buckets in gradient-ready order. None spans chunks or ranges, and all end where shards can be cut. A copy of a
/// tied embedding is a bucket by itself, so that the stages that hold a copy shard it in the same way.
void RankLayoutBuilder::cut_buckets() {
    const ShardingRules& rules = layout_.rules;
    if (!rules.dense.reduces && !rules.expert.reduces && !rules.shards_states) return;
    const bool by_layer = plan_.implementation.data_parallel.buckets_by_layer;
    std::size_t first = 0;
    IndexedVector<ChunkIndex, bool> has_bucket(layout_.chunks.size(), false);
    for (std::size_t i = 0; i < result_.parameters.size(); ++i) {
        const Parameter& parameter = result_.parameters[i];
        const std::int64_t end = parameter.offset + parameter.elements + parameter.padding;
        const bool last = i + 1 == result_.parameters.size();
        const Parameter* next = last ? nullptr : &result_.parameters[i + 1];
        const bool boundary = last || next->range != parameter.range || next->chunk != parameter.chunk ||
                              (by_layer && next->layer != parameter.layer) || stand_apart(parameter, *next);
        const std::int64_t held = end - result_.parameters[first].offset;
        const bool cuts = end % layers_.padding().of(parameter.range).multiple == 0;
        if (!boundary && (by_layer || !cuts || held < bucket_cap(!has_bucket[parameter.chunk]))) continue;
        close_bucket(first, i);
        has_bucket[parameter.chunk] = true;
        first = i + 1;
    }
}

/// Adds the bucket [begin, end) of the flat order.
const Bucket& RankLayoutBuilder::add_bucket(ParameterRange range, std::int64_t begin, std::int64_t end) {
    const std::int64_t shards = layout_.rules.shards_states ? layout_.rules.of(range).shards : 1;
    const Bucket bucket{.range = range,
                        .offset = begin,
                        .elements = end - begin,
                        .shard_offset = result_.shard_elements,
                        .shard_elements = (end - begin) / shards};
    ORRERY_CHECK(bucket.shard_elements * shards == bucket.elements, "a bucket ends where shards cannot be cut");
    if (layout_.rules.shards_states) result_.shard_elements += bucket.shard_elements;
    return result_.buckets.emplace_back(bucket);
}

void RankLayoutBuilder::close_bucket(std::size_t first, std::size_t last) {
    const Parameter& end = result_.parameters[last];
    const ParameterRange range = end.range;
    const Bucket& bucket = add_bucket(range, result_.parameters[first].offset, end.offset + end.elements + end.padding);
    if (!layout_.rules.of(range).reduces) return;
    LaidLayer& layer = layer_of(end);
    if (layer.cuts.empty()) layer.segment.shard_base[range] = bucket.shard_offset;
    layer.cuts.push_back(layout_.cut_of(bucket, layer.segment.gradient_base[range], layer.segment.shard_base[range]));
    const Reduction& reduction = layer.cuts.back().reduction;
    const std::int64_t staged_bytes = reduction.staged ? align(bucket.elements * size_of(reduction.dtype)) : 0;
    layout_.staging_bytes = std::max(layout_.staging_bytes, staged_bytes);
}

/// Assigns staging buffers to buckets round-robin, in the order in which the backward pass fills them. An all-reduced
/// bucket is copied back when its buffer is needed again, the last ones at the end of the step. If gradients are
/// reduced after each micro-batch, the last ones are copied back at the end of each backward pass.
void RankLayoutBuilder::stage_buckets() {
    std::int64_t count = 0;
    for (const ChunkIndex c : layout_.chunks.indices_backward()) {
        const bool every = plan_.parallelism.reduces_every_micro_batch;
        std::vector<BucketCut>& last = every ? layout_.chunks[c].staged_last : layout_.staged_last;
        for (LaidLayer& layer : reversed(layout_.chunks[c].layers)) {
            for (BucketCut& cut : layer.cuts) {
                if (!cut.reduction.staged) continue;
                cut.reduction_offset = count++ % kStagingBuffers * layout_.staging_bytes;
                if (cut.reduction.kind == CommKind::reduce_scatter) continue;
                const std::int64_t base = layer.segment.gradient_base[cut.range];
                const auto before = std::ranges::find(last, cut.reduction_offset, &BucketCut::reduction_offset);
                if (before != last.end()) {
                    cut.back_offset = before->offset - base;
                    cut.back_elements = before->elements;
                    last.erase(before);
                }
                last.push_back(cut);
                last.back().offset += base;
            }
        }
    }
    result_.reduction_bytes = layout_.staging_bytes * std::min(count, kStagingBuffers);
}

/// Groups layers into units: one block each, or as many layers as fill a bucket. If the root stays gathered, embedding
/// and head form a root unit.
void RankLayoutBuilder::cut_units() {
    const models::DataParallelChoices& choices = plan_.implementation.data_parallel;
    const bool root = choices.keeps_root_gathered || plan_.model.tied_embeddings;
    const std::int64_t cap = choices.buckets_by_layer ? 0 : bucket_cap(false);
    for (LaidChunk& chunk : layout_.chunks) {
        std::vector<Unit>& units = chunk.units;
        const auto is_root = [&](const LaidLayer& layer) {
            const bool end = layer.lowered->kind == LayerKind::embedding || layer.lowered->kind == LayerKind::head;
            return root && end && layer.lowered->parameter_elements() > 0;
        };
        if (std::ranges::any_of(chunk.layers, is_root)) units.push_back({.root = true});
        std::int64_t held = 0;
        for (std::size_t l = 0; l < chunk.layers.size(); ++l) {
            LaidLayer& layer = chunk.layers[l];
            const std::int64_t elements = layer.lowered->parameter_elements();
            if (elements == 0) continue;
            if (!is_root(layer)) {
                if (units.empty() || units.back().root || held + elements > cap) {
                    units.emplace_back();
                    held = 0;
                }
                held += elements;
            }
            layer.unit = is_root(layer) ? 0 : static_cast<std::int32_t>(units.size()) - 1;
            units[static_cast<std::size_t>(layer.unit)].layers.push_back(l);
        }
    }
}

/// Assigns the units to slots of the window: round-robin, or a slot for each unit if parameters stay gathered after the
/// forward pass.
void RankLayoutBuilder::assign_window_slots() {
    const models::DataParallelChoices& choices = plan_.implementation.data_parallel;
    const bool keeps = layout_.rules.gathers_units && !plan_.parallelism.reshard_after_forward;
    const auto turns = static_cast<std::int32_t>(1 + std::max(choices.forward_prefetch, choices.backward_prefetch));
    layout_.gradient_slots = layout_.rules.is_staged() ? 1 : 2;
    for (const ChunkIndex c : layout_.chunks.indices_backward()) {
        std::int32_t turn = 0;
        for (Unit& unit : layout_.chunks[c].units) {
            if (!unit.root) unit.slot = keeps ? layout_.window_slots + turn++ : turn++ % turns;
        }
        layout_.window_slots =
            keeps ? layout_.window_slots + turn : std::max(layout_.window_slots, std::min(turn, turns));
    }
}

/// Appends one part of a unit to the flat order, from its last layer to its first. Bases are relative to the part.
void RankLayoutBuilder::lay_part(ChunkIndex chunk, const Unit& unit, Unit::Part& part) {
    const std::int64_t begin = result_.parameter_elements;
    const std::size_t first = result_.parameters.size();
    for (const std::size_t l : reversed(unit.layers)) {
        LaidLayer& layer = layout_.chunks[chunk].layers[l];
        for (const ParameterRange range : kRanges) {
            if (&unit.of(range) != &part) continue;
            layer.segment.parameter_base[range] = layer.segment.gradient_base[range] =
                result_.parameter_elements - begin;
            push_parameters(chunk, layer, range, result_.parameter_elements);
            result_.parameter_elements += layer.lowered->elements[range];
        }
    }
    part.elements = result_.parameter_elements - begin;
    part.gradient_offset = begin;  // place_units() replaces it if gradients lie in a window
    part.shard_offset = result_.shard_elements;
    cut_part(first, part);
}

/// Cuts a part, whose parameters begin at index `first`, into pieces. A copy of a tied embedding is a piece by itself,
/// so that the stages that hold a copy shard it in the same way.
void RankLayoutBuilder::cut_part(std::size_t first, Unit::Part& part) {
    std::int64_t begin = part.gradient_offset;
    for (std::size_t i = first; i < result_.parameters.size(); ++i) {
        const Parameter& parameter = result_.parameters[i];
        const bool last = i + 1 == result_.parameters.size();
        if (!last && !stand_apart(parameter, result_.parameters[i + 1])) continue;
        const std::int64_t end = parameter.offset + parameter.elements + parameter.padding;
        const Bucket& bucket = add_bucket(part.range, begin, end);
        part.pieces.push_back(layout_.cut_of(bucket, part.gradient_offset, part.shard_offset));
        begin = end;
    }
}

/// Flat order with units: from the last unit to the first. The windows begin with the root units; slots as large as the
/// largest other unit follow. In a window a unit's dense parameters precede its experts.
void RankLayoutBuilder::place_units() {
    const ShardingRules& rules = layout_.rules;
    assign_window_slots();
    std::int64_t roots = 0, slot = 0;  // padded elements of all root units, and of the largest other unit
    for (const ChunkIndex c : layout_.chunks.indices_backward()) {
        for (Unit& unit : reversed(layout_.chunks[c].units)) {
            for (Unit::Part& part : unit.parts) lay_part(c, unit, part);
            if (unit.root) roots += unit.elements();
            if (!unit.root) slot = std::max(slot, unit.elements());
        }
    }
    std::int64_t whole = 0;  // zero2: next offset among the parameters, which are whole and in flat order
    std::int64_t next_root = 0;
    for (const ChunkIndex c : layout_.chunks.indices_backward()) {
        LaidChunk& chunk = layout_.chunks[c];
        for (std::size_t u = chunk.units.size(); u-- > 0;) {
            Unit& unit = chunk.units[u];
            const auto turn = static_cast<std::int64_t>(u) % layout_.gradient_slots;
            std::int64_t window = unit.root ? next_root : roots + unit.slot * slot;
            std::int64_t gradient = unit.root ? next_root : roots + turn * slot;
            if (!rules.gathers_units) window = whole;
            for (Unit::Part& part : unit.parts) {
                part.window_offset = window;
                window += part.elements;
                if (!rules.reduces_units) continue;
                part.gradient_offset = gradient;
                gradient += part.elements;
            }
            if (unit.root) next_root += unit.elements();
            whole += unit.elements();
            set_bases(chunk, unit);
        }
    }
    result_.parameter_buffer_elements =
        rules.gathers_units ? roots + layout_.window_slots * slot : result_.parameter_elements;
    result_.gradient_buffer_elements =
        rules.reduces_units ? roots + layout_.gradient_slots * slot : result_.parameter_elements;
    if (rules.is_staged()) result_.reduction_bytes = layout_.staging_bytes;
}

/// Sets the bases of the unit's layers, and the places of its pieces in the staging buffer.
void RankLayoutBuilder::set_bases(LaidChunk& chunk, Unit& unit) {
    for (const std::size_t l : unit.layers) {
        Segment& segment = chunk.layers[l].segment;
        for (const ParameterRange range : kRanges) {
            const Unit::Part& part = unit.of(range);
            segment.parameter_base[range] += part.window_offset;
            segment.gradient_base[range] += part.gradient_offset;
            segment.shard_base[range] = part.shard_offset;
        }
    }
    std::int64_t all = 0, staged = 0;
    for (Unit::Part& part : unit.parts) {
        for (BucketCut& piece : part.pieces) {
            piece.reduction_offset = staged;
            const std::int64_t bytes = align(piece.elements * size_of(piece.reduction.dtype));
            if (layout_.rules.of(part.range).reduces) staged += bytes;
            all += bytes;
        }
    }
    layout_.staging_bytes = std::max(layout_.staging_bytes, all);
}

void RankLayoutBuilder::find_tied() {
    const auto has = [&](bool Chunk::*end) { return std::ranges::any_of(result_.chunks, end); };
    const bool holds_one_end = has(&Chunk::has_embedding) != has(&Chunk::has_head);
    layout_.holds_tied_copy = plan_.model.tied_embeddings && plan_.parallelism.pp > 1 && holds_one_end;
    const auto weight = std::ranges::find(result_.parameters, kTiedWeight, &Parameter::name);
    if (!layers_.ties_locally() || weight == result_.parameters.end()) return;
    const LaidLayer& embedding = layer_of(*weight);
    const auto is_weight = [](const Slot& slot) { return slot.decl.name == kTiedWeight; };
    const Slot& place = *std::ranges::find_if(embedding.lowered->slots, is_weight);
    result_.tied_parameter_base = embedding.segment.parameter_base[place.range] + place.offset;
    result_.tied_gradient_base = embedding.segment.gradient_base[place.range] + place.offset;
}

/// Places the fp8 copies of weights: one for each layer, or, if parameters are gathered by unit, a single place that
/// all layers share.
void RankLayoutBuilder::place_copies() {
    const bool shared = layout_.rules.gathers_units;
    std::int64_t& bytes = result_.weight_copy_bytes;
    for (LaidChunk& chunk : layout_.chunks) {
        for (LaidLayer& layer : chunk.layers) {
            const std::int64_t own = layer.lowered->weight_copy_bytes;
            if (own == 0) continue;
            layer.segment.weight_copy_base = shared ? 0 : bytes;
            bytes = shared ? std::max(bytes, own) : bytes + own;
        }
    }
}

/// Lays out a frame, which holds what a micro-batch saves for its backward. Inputs that need not be kept alternate
/// between two places at the begin of the frame. Activations that are offloaded lie in a window outside the frames, in
/// which layers alternate between two places.
void RankLayoutBuilder::place_activations(ChunkIndex c) {
    LaidChunk& chunk = layout_.chunks[c];
    Chunk& described = result_.chunks[c];
    std::int64_t handoff = 0, largest_offloaded = 0;
    for (std::size_t i = 0; i < chunk.layers.size(); ++i) {
        const LaidLayer& layer = chunk.layers[i];
        if (i > 0 && !layer.lowered->keeps_hidden_in)
            handoff = std::max(handoff, align(layer.lowered->hidden_in_bytes));
        if (layer.offloaded) largest_offloaded = std::max(largest_offloaded, layer.lowered->saved_bytes);
    }
    std::int64_t next = 2 * handoff, handed = 0, offloaded = 0, host = 0;
    for (std::size_t i = 0; i < chunk.layers.size(); ++i) {
        LaidLayer& layer = chunk.layers[i];
        if (i > 0) {  // the first layer's input lies in a boundary buffer; the embedding has none
            if (layer.lowered->keeps_hidden_in) {
                layer.segment.hidden_in_offset = next;
                next += align(layer.lowered->hidden_in_bytes);
            } else {
                layer.segment.hidden_in_offset = handed++ % 2 * handoff;
            }
            chunk.layers[i - 1].segment.hidden_out_offset = layer.segment.hidden_in_offset;
        }
        const bool last = i + 1 == chunk.layers.size();
        if (!last && layer.lowered->hidden_gradient_bytes > 0) {
            layer.segment.gradient_in_offset = next;
            next += align(layer.lowered->hidden_gradient_bytes);
            chunk.layers[i + 1].segment.gradient_out_offset = layer.segment.gradient_in_offset;
        }
        if (layer.offloaded) {
            layer.segment.in_offload_window = true;
            layer.segment.activation_base = offloaded++ % 2 * largest_offloaded;
            layer.segment.host_base = host;
            host += layer.lowered->saved_bytes;
        } else {
            layer.segment.activation_base = next;
            next += layer.lowered->saved_bytes;
        }
    }
    described.frame_bytes = next;
    described.host_frame_bytes = host;
    result_.offload_window_bytes =
        std::max(result_.offload_window_bytes, std::min<std::int64_t>(offloaded, 2) * largest_offloaded);
}

}  // namespace

RankLayout lay_out_rank(const Plan& plan, const Mesh& mesh, const ScheduleShape& shape, StepKind step,
                        LayerLibrary& layers, RankClass& result) {
    return RankLayoutBuilder(plan, mesh, shape, step, layers, result).run();
}

}  // namespace orrery::program
