#include "sim/program/rank_layout.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/units.h"

namespace orrery::program {
namespace {

using models::LayerKind;
using models::SlotDecl;
using models::SlotIndex;

constexpr std::size_t index_of(ParameterRange range) {
    return static_cast<std::size_t>(range);
}
constexpr std::array kRanges{ParameterRange::dense, ParameterRange::tensor_sum, ParameterRange::kv_sum,
                             ParameterRange::expert};

class Layouter {
  public:
    Layouter(const Plan& plan, const Mesh& mesh, const ScheduleShape& shape, StepKind step, FormLibrary& forms,
             RankClass& result)
        : plan_(plan), shape_(shape), step_(step), forms_(forms), result_(result) {
        layout_.rules = sharding_rules(plan, mesh, result.pp_index);
        layout_.gradient_dtype = gradient_dtype(plan, layout_.rules);
    }

    RankLayout run() {
        collect_chunks();
        if (layout_.rules.reduces_units || layout_.rules.gathers_units) {
            cut_units();
            place_units();
        } else {
            place_flat();
            cut_buckets();
            stage_buckets();
        }
        size_buffers();
        find_tied();
        place_copies();
        for (std::size_t c = 0; c < layout_.chunks.size(); ++c) place_activations(c);
        const Parallelism& p = plan_.parallelism;
        const std::int64_t hidden = plan_.training.sequence_length / p.cp * plan_.training.micro_batch_size *
                                    plan_.model.hidden / (p.sequence_parallel ? p.tp : 1);
        result_.boundary_bytes = align(hidden * size_of(plan_.training.precision.activation));
        // What sequence parallelism shards already is not cut again.
        if (plan_.implementation.pipeline.scatters_transfers && !p.sequence_parallel && hidden % p.tp == 0) {
            layout_.transfer_parts = p.tp;
        }
        return std::move(layout_);
    }

  private:
    void collect_chunks();
    void push_vocabulary(LaidChunk& chunk, VocabularyPart part, bool root);
    void place_flat();
    void cut_buckets();
    void close_bucket(std::size_t first, std::size_t last);
    void stage_buckets();
    void cut_units();
    void assign_window_slots();
    void lay_part(std::size_t chunk, const Unit& unit, bool expert, Unit::Part& part);
    void cut_part(std::size_t first, ParameterRange range, Unit::Part& part);
    [[nodiscard]] bool stand_apart(const Parameter& parameter, const Parameter& next) const {
        return forms_.padding().keeps_tied_apart && (parameter.name == kTiedWeight || next.name == kTiedWeight);
    }
    void place_units();
    static void set_bases(LaidChunk& chunk, const Unit& unit);
    void size_buffers();
    void find_tied();
    void place_copies();
    void place_activations(std::size_t chunk);
    void push_parameters(std::size_t chunk, LaidLayer& layer, ParameterRange range, std::int64_t base);
    [[nodiscard]] LaidLayer& layer_of(const Parameter& parameter);
    [[nodiscard]] std::int64_t bucket_cap(bool first) const;

    const Plan& plan_;
    const ScheduleShape& shape_;
    StepKind step_;
    FormLibrary& forms_;
    RankClass& result_;
    RankLayout layout_;
    std::int64_t staged_ = 0;  // buckets that went through staging buffers
};

void Layouter::collect_chunks() {
    const Parallelism& p = plan_.parallelism;
    const MemorySavings& memory = plan_.training.memory;
    const std::int64_t stages = virtual_stages(shape_);
    for (std::int64_t c = 0; c < shape_.chunks; ++c) {
        const ChunkPlace place = chunk_place(shape_, result_.pp_index, c);
        Chunk chunk{.virtual_stage = place.virtual_stage, .direction = place.direction, .up = place.up};
        for (std::int64_t i = 0; i < place.virtual_stage; ++i) {
            chunk.first_block += p.stage_layers[static_cast<std::size_t>(i)];
        }
        chunk.block_count = p.stage_layers[static_cast<std::size_t>(place.virtual_stage)];
        const bool spread = p.vocabulary_parallel != VocabularyParallel::none;
        chunk.has_embedding = place.virtual_stage == 0 && !spread;
        chunk.has_head = place.virtual_stage == stages - 1 && !spread;
        LaidChunk laid;
        const auto push = [&](LayerKind kind, std::int64_t index, bool recomputed, bool offloaded) {
            LaidLayer layer{.form = &forms_.form(kind, recomputed),
                            .index = static_cast<std::int32_t>(index),
                            .offloaded = offloaded};
            layer.segment.layer = layer.index;
            laid.layers.push_back(std::move(layer));
        };
        if (chunk.has_embedding) push(LayerKind::embedding, -1, false, false);
        for (std::int64_t i = 0; i < chunk.block_count; ++i) {
            const std::int64_t index = chunk.first_block + i;
            const bool recomputed = memory.recompute_layers < 0 || i < memory.recompute_layers;
            push(plan_.model.is_expert_layer(index) ? LayerKind::expert_block : LayerKind::block, index, recomputed,
                 i < memory.offload_layers);
        }
        if (chunk.has_head) push(LayerKind::head, plan_.model.layers, false, false);
        if (spread && place.virtual_stage == stages - 1) push_vocabulary(laid, VocabularyPart::final_norm, true);
        result_.chunks.push_back(chunk);
        layout_.chunks.push_back(std::move(laid));
    }
    if (p.vocabulary_parallel == VocabularyParallel::none) return;
    for (const VocabularyPart part : {VocabularyPart::output, VocabularyPart::input}) {
        const bool root = result_.pp_index == (part == VocabularyPart::output ? p.pp - 1 : 0);
        LaidChunk laid;
        push_vocabulary(laid, part, root);
        result_.chunks.push_back(
            {.part = part == VocabularyPart::output ? ChunkPart::vocabulary_output : ChunkPart::vocabulary_input,
             .virtual_stage = -1});
        layout_.chunks.push_back(std::move(laid));
    }
}

void Layouter::push_vocabulary(LaidChunk& chunk, VocabularyPart part, bool root) {
    LaidLayer layer{.form = &forms_.vocabulary_form(part, root),
                    .index = part == VocabularyPart::input ? -1 : static_cast<std::int32_t>(plan_.model.layers)};
    layer.segment.layer = layer.index;
    chunk.layers.push_back(std::move(layer));
}

void Layouter::push_parameters(std::size_t chunk, LaidLayer& layer, ParameterRange range, std::int64_t base) {
    for (std::size_t i = 0; i < layer.form->ready_order.size(); ++i) {
        const SlotIndex slot = layer.form->ready_order[i];
        const SlotPlace place = layer.form->places[static_cast<std::size_t>(slot)];
        if (place.range != range) continue;
        const SlotDecl& decl = layer.form->slot(slot);
        const bool block = layer.form->kind == LayerKind::block || layer.form->kind == LayerKind::expert_block;
        const std::string prefix = block ? "layers." + std::to_string(layer.index) + "." : "";
        result_.parameters.push_back({.name = prefix + decl.name,
                                      .range = range,
                                      .offset = base + place.offset,
                                      .elements = decl.elements(),
                                      .padding = layer.form->paddings[i],
                                      .decl = decl,
                                      .layer = layer.index,
                                      .chunk = static_cast<std::int32_t>(chunk)});
    }
}

/// Flat order: by range, the last chunk and layer first, since their gradients are ready first.
void Layouter::place_flat() {
    std::int64_t next = 0;
    for (const ParameterRange range : kRanges) {
        const std::size_t r = index_of(range);
        result_.range_begin[r] = next;
        for (std::size_t c = layout_.chunks.size(); c-- > 0;) {
            auto& layers = layout_.chunks[c].layers;
            for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
                layer->segment.parameter_base[r] = layer->segment.gradient_base[r] = next;
                push_parameters(c, *layer, range, next);
                next += layer->form->elements[r];
            }
        }
        result_.range_end[r] = next;
    }
    result_.parameter_elements = next;
}

LaidLayer& Layouter::layer_of(const Parameter& parameter) {
    for (LaidLayer& layer : layout_.chunks[parameter.chunk].layers) {
        if (layer.index == parameter.layer) return layer;
    }
    throw_bug(__FILE__, __LINE__, "layer_of", parameter.name + " is in no layer");
}

/// Elements at which a bucket closes.
std::int64_t Layouter::bucket_cap(bool first) const {
    const models::DataParallelChoices& choices = plan_.implementation.data_parallel;
    constexpr std::int64_t kWhole = std::int64_t{1} << 60;
    if (!layout_.rules.overlaps && plan_.implementation.data_parallel.overlaps_first_stage_only) return kWhole;
    if (step_ == StepKind::first && plan_.parallelism.data_parallel == DataParallel::ddp) return kWhole;
    const std::int64_t bytes = first ? choices.first_bucket_bytes : choices.bucket_bytes;
    return std::max(bytes / size_of(plan_.training.precision.gradient),
                    choices.bucket_elements_per_rank * layout_.rules.dense_ranks);
}

/// Buckets in gradient-ready order; none spans chunks or ranges, and all end where shards can be cut. Copies of a tied
/// embedding are buckets of their own, so that the stages that hold one cut it alike.
void Layouter::cut_buckets() {
    if (!layout_.rules.reduces_dense && !layout_.rules.reduces_expert && !layout_.rules.shards_states) return;
    const bool by_layer = plan_.implementation.data_parallel.buckets_by_layer;
    std::size_t first = 0;
    std::vector<bool> begun(layout_.chunks.size(), false);  // chunks that have their first bucket
    for (std::size_t i = 0; i < result_.parameters.size(); ++i) {
        const Parameter& parameter = result_.parameters[i];
        const std::int64_t end = parameter.offset + parameter.elements + parameter.padding;
        const bool last = i + 1 == result_.parameters.size();
        const Parameter* next = last ? nullptr : &result_.parameters[i + 1];
        const bool boundary = last || next->range != parameter.range || next->chunk != parameter.chunk ||
                              (by_layer && next->layer != parameter.layer) || stand_apart(parameter, *next);
        const std::int64_t held = end - result_.parameters[first].offset;
        const auto chunk = static_cast<std::size_t>(parameter.chunk);
        const bool cuts = end % forms_.padding().multiple(parameter.range) == 0;
        if (!boundary && (by_layer || !cuts || held < bucket_cap(!begun[chunk]))) continue;
        close_bucket(first, i);
        begun[chunk] = true;
        first = i + 1;
    }
}

void Layouter::close_bucket(std::size_t first, std::size_t last) {
    const Parameter& begin = result_.parameters[first];
    const Parameter& end = result_.parameters[last];
    const ShardingRules& rules = layout_.rules;
    Bucket bucket{.range = begin.range,
                  .offset = begin.offset,
                  .elements = end.offset + end.elements + end.padding - begin.offset,
                  .shard_offset = result_.shard_elements};
    const std::int64_t shards = rules.shards_states ? rules.shards(begin.range) : 1;
    bucket.shard_elements = bucket.elements / shards;
    ORRERY_CHECK(bucket.shard_elements * shards == bucket.elements, "a bucket ends where shards cannot be cut");
    if (rules.shards_states) result_.shard_elements += bucket.shard_elements;
    result_.buckets.push_back(bucket);
    if (!rules.reduces(begin.range)) return;

    LaidLayer& layer = layer_of(end);
    const std::size_t r = index_of(begin.range);
    BucketCut cut{.range = begin.range,
                  .elements = bucket.elements,
                  .shard_elements = bucket.shard_elements,
                  .form = rules.form(begin.range)};
    if (layer.cuts.empty()) layer.segment.shard_base[r] = bucket.shard_offset;
    cut.offset = bucket.offset - layer.segment.gradient_base[r];
    cut.shard_offset = bucket.shard_offset - layer.segment.shard_base[r];
    for (std::size_t slot = 0; slot < layer.form->slots.size(); ++slot) {
        const SlotDecl& decl = layer.form->slots[slot];
        if (decl.role == models::SlotRole::gradient && decl.name == end.decl.name + ".gradient") {
            cut.gradient_slot = static_cast<SlotIndex>(slot);
        }
    }
    ORRERY_CHECK(cut.gradient_slot != models::kNoSlot, end.name + " has no gradient");
    layer.cuts.push_back(cut);
}

/// Staging buffers in turn, in the order in which the last backward fills them: an all-reduced bucket is copied back
/// when its buffer is needed again, the last ones at the step's end. Where gradients cross after each micro-batch, each
/// pass leaves the buffers empty.
void Layouter::stage_buckets() {
    const bool every = plan_.parallelism.reduces_every_micro_batch;
    std::array<const BucketCut*, kStagingBuffers> held{};
    std::array<std::int64_t, kStagingBuffers> held_at{};
    for (std::size_t c = layout_.chunks.size(); c-- > 0;) {
        auto& layers = layout_.chunks[c].layers;
        std::vector<BucketCut>& last = every ? layout_.chunks[c].staged_last : layout_.staged_last;
        if (every) held = {};
        for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
            for (BucketCut& cut : layer->cuts) {
                if (!cut.form.staged) continue;
                const auto buffer = static_cast<std::size_t>(staged_++ % kStagingBuffers);
                cut.reduction_offset = static_cast<std::int64_t>(buffer);  // scaled once the size is known
                const std::int64_t base = layer->segment.gradient_base[index_of(cut.range)];
                layout_.staging_bytes = std::max(layout_.staging_bytes, align(cut.elements * size_of(cut.form.dtype)));
                if (cut.form.kind != CommKind::all_reduce) continue;
                if (held[buffer] != nullptr) {
                    cut.back_offset = held_at[buffer] - base;
                    cut.back_elements = held[buffer]->elements;
                }
                held[buffer] = &cut;
                held_at[buffer] = base + cut.offset;
                std::erase_if(last,
                              [&](const BucketCut& other) { return other.reduction_offset == cut.reduction_offset; });
                last.push_back(cut);
                last.back().offset = held_at[buffer];
            }
        }
    }
}

/// Each block a unit, or as many as fill a bucket; embedding and head in one place of their own where they stay
/// gathered.
void Layouter::cut_units() {
    const models::DataParallelChoices& choices = plan_.implementation.data_parallel;
    const bool root = choices.keeps_root_gathered || plan_.model.tied_embeddings;
    const std::int64_t cap = choices.buckets_by_layer ? 0 : bucket_cap(false);
    for (LaidChunk& chunk : layout_.chunks) {
        const auto is_root = [&](const LaidLayer& layer) {
            return root && (layer.form->kind == LayerKind::embedding || layer.form->kind == LayerKind::head);
        };
        Unit outer{.root = true};
        std::vector<Unit> units;
        std::int64_t held = 0;
        for (std::size_t l = 0; l < chunk.layers.size(); ++l) {
            const LaidLayer& layer = chunk.layers[l];
            if (layer.form->parameter_elements() == 0) continue;
            if (is_root(layer)) {
                outer.layers.push_back(static_cast<std::int32_t>(l));
                continue;
            }
            const std::int64_t elements = layer.form->parameter_elements();
            if (units.empty() || held + elements > cap) {
                units.emplace_back();
                held = 0;
            }
            units.back().layers.push_back(static_cast<std::int32_t>(l));
            held += elements;
        }
        if (!outer.layers.empty()) chunk.units.push_back(std::move(outer));
        for (Unit& unit : units) chunk.units.push_back(std::move(unit));
        for (std::size_t u = 0; u < chunk.units.size(); ++u) {
            for (const std::int32_t l : chunk.units[u].layers) {
                chunk.layers[static_cast<std::size_t>(l)].unit = static_cast<std::int32_t>(u);
            }
        }
    }
}

/// Which place of the window each unit takes: in turn, or one of its own where gathered parameters stay.
void Layouter::assign_window_slots() {
    const models::DataParallelChoices& choices = plan_.implementation.data_parallel;
    const bool keeps = layout_.rules.gathers_units && !plan_.parallelism.reshard_after_forward;
    const auto turns = static_cast<std::int32_t>(1 + std::max(choices.forward_prefetch, choices.backward_prefetch));
    layout_.window_slots = 0;
    layout_.gradient_slots = layout_.rules.dense.staged || layout_.rules.expert.staged ? 1 : 2;
    for (std::size_t c = layout_.chunks.size(); c-- > 0;) {
        std::int32_t turn = 0;
        for (Unit& unit : layout_.chunks[c].units) {
            if (!unit.root) unit.slot = keeps ? layout_.window_slots + turn++ : turn++ % turns;
        }
        layout_.window_slots =
            keeps ? layout_.window_slots + turn : std::max(layout_.window_slots, std::min(turn, turns));
    }
}

/// Appends one part of a unit to the flat order, its layers the last first. Bases count from the part's begin.
void Layouter::lay_part(std::size_t chunk, const Unit& unit, bool expert, Unit::Part& part) {
    const std::int64_t begin = result_.parameter_elements;
    const std::size_t first = result_.parameters.size();
    for (std::size_t i = unit.layers.size(); i-- > 0;) {
        LaidLayer& layer = layout_.chunks[chunk].layers[static_cast<std::size_t>(unit.layers[i])];
        for (const ParameterRange range : kRanges) {
            if ((range == ParameterRange::expert) != expert) continue;
            const std::size_t r = index_of(range);
            layer.segment.parameter_base[r] = layer.segment.gradient_base[r] = result_.parameter_elements - begin;
            push_parameters(chunk, layer, range, result_.parameter_elements);
            result_.parameter_elements += layer.form->elements[r];
        }
    }
    part.elements = result_.parameter_elements - begin;
    part.gradient_offset = begin;  // kept where gradients are whole
    part.shard_offset = result_.shard_elements;
    cut_part(first, expert ? ParameterRange::expert : ParameterRange::dense, part);
}

/// The part's parameters are those from `first` on. A copy of a tied embedding is a piece of its own, so that the
/// stages that hold one cut it alike.
void Layouter::cut_part(std::size_t first, ParameterRange range, Unit::Part& part) {
    const std::int64_t shards = layout_.rules.shards(range);
    std::int64_t begin = part.gradient_offset;
    for (std::size_t i = first; i < result_.parameters.size(); ++i) {
        const Parameter& parameter = result_.parameters[i];
        const bool last = i + 1 == result_.parameters.size();
        if (!last && !stand_apart(parameter, result_.parameters[i + 1])) continue;
        const std::int64_t end = parameter.offset + parameter.elements + parameter.padding;
        const Bucket bucket{.range = range,
                            .offset = begin,
                            .elements = end - begin,
                            .shard_offset = result_.shard_elements,
                            .shard_elements = (end - begin) / shards};
        ORRERY_CHECK(bucket.shard_elements * shards == bucket.elements, "a unit ends where shards cannot be cut");
        part.pieces.push_back({.offset = begin - part.gradient_offset,
                               .elements = bucket.elements,
                               .shard_offset = bucket.shard_offset - part.shard_offset,
                               .shard_elements = bucket.shard_elements});
        result_.buckets.push_back(bucket);
        result_.shard_elements += bucket.shard_elements;
        begin = end;
    }
}

/// Flat order: by unit, the last first. In the windows a unit's dense parameters come first, its experts after them,
/// and the root units stand before the slots, of which each holds the largest unit.
void Layouter::place_units() {
    const ShardingRules& rules = layout_.rules;
    assign_window_slots();
    std::int64_t roots = 0, slot = 0;  // padded elements: of root units together, of the largest other unit
    for (std::size_t c = layout_.chunks.size(); c-- > 0;) {
        std::vector<Unit>& units = layout_.chunks[c].units;
        for (auto unit = units.rbegin(); unit != units.rend(); ++unit) {
            lay_part(c, *unit, false, unit->dense);
            lay_part(c, *unit, true, unit->expert);
            const std::int64_t padded = unit->dense.elements + unit->expert.elements;
            if (unit->root) {
                unit->dense.window_offset = roots;
                if (rules.reduces_units) unit->dense.gradient_offset = roots;
                roots += padded;
            } else {
                slot = std::max(slot, padded);
            }
        }
    }
    std::int64_t whole = 0;  // zero2: parameters are whole, in flat order
    for (std::size_t c = layout_.chunks.size(); c-- > 0;) {
        LaidChunk& chunk = layout_.chunks[c];
        for (std::size_t u = chunk.units.size(); u-- > 0;) {
            Unit& unit = chunk.units[u];
            if (!unit.root) {
                unit.dense.window_offset = roots + unit.slot * slot;
                const auto turn = static_cast<std::int64_t>(u) % layout_.gradient_slots;
                if (rules.reduces_units) unit.dense.gradient_offset = roots + turn * slot;
            }
            if (!rules.gathers_units) {
                unit.dense.window_offset = whole;
                whole += unit.dense.elements;
                unit.expert.window_offset = whole;
                whole += unit.expert.elements;
            } else {
                unit.expert.window_offset = unit.dense.window_offset + unit.dense.elements;
            }
            if (rules.reduces_units) {
                unit.expert.gradient_offset = unit.dense.gradient_offset + unit.dense.elements;
            }
            set_bases(chunk, unit);
            std::int64_t staged = 0;
            for (const Unit::Part* part : {&unit.dense, &unit.expert}) {
                for (const Unit::Piece& piece : part->pieces)
                    staged += align(piece.elements * size_of(rules.dense.dtype));
            }
            layout_.staging_bytes = std::max(layout_.staging_bytes, staged);
        }
    }
    result_.parameter_buffer_elements =
        rules.gathers_units ? roots + layout_.window_slots * slot : result_.parameter_elements;
    result_.gradient_buffer_elements =
        rules.reduces_units ? roots + layout_.gradient_slots * slot : result_.parameter_elements;
}

/// Where the unit's layers find their parameters, gradients and shards, now that the unit's offsets are known.
void Layouter::set_bases(LaidChunk& chunk, const Unit& unit) {
    for (const std::int32_t l : unit.layers) {
        Segment& segment = chunk.layers[static_cast<std::size_t>(l)].segment;
        for (const ParameterRange range : kRanges) {
            const Unit::Part& part = range == ParameterRange::expert ? unit.expert : unit.dense;
            segment.parameter_base[index_of(range)] += part.window_offset;
            segment.gradient_base[index_of(range)] += part.gradient_offset;
            segment.shard_base[index_of(range)] = part.shard_offset;
        }
    }
}

void Layouter::size_buffers() {
    const ShardingRules& rules = layout_.rules;
    const bool units = rules.gathers_units || rules.reduces_units;
    if (!units) {
        result_.parameter_buffer_elements = result_.gradient_buffer_elements = result_.parameter_elements;
        for (LaidChunk& chunk : layout_.chunks) {
            for (LaidLayer& layer : chunk.layers) {
                for (BucketCut& cut : layer.cuts) cut.reduction_offset *= layout_.staging_bytes;
            }
            for (BucketCut& cut : chunk.staged_last) cut.reduction_offset *= layout_.staging_bytes;
        }
        for (BucketCut& cut : layout_.staged_last) cut.reduction_offset *= layout_.staging_bytes;
        result_.reduction_bytes = layout_.staging_bytes * std::min(staged_, kStagingBuffers);
    } else {
        const bool staged = rules.dense.staged || rules.expert.staged;
        if (!staged) layout_.staging_bytes = 0;
        result_.reduction_bytes = layout_.staging_bytes;
    }
    if (!rules.shards_states) result_.shard_elements = 0;
    result_.parameter_shards_alias = rules.shards_states && !rules.gathers_units;
    result_.gradient_shards_alias = rules.shards_states && !rules.reduces_units;
    result_.optimizer_elements = rules.shards_states ? result_.shard_elements : result_.parameter_elements;
}

void Layouter::find_tied() {
    if (!plan_.model.tied_embeddings) return;
    bool embedding = false, head = false;
    for (const LaidChunk& chunk : layout_.chunks) {
        for (const LaidLayer& layer : chunk.layers) {
            if (layer.form->kind == LayerKind::embedding) {
                embedding = true;
                for (const SlotIndex slot : layer.form->ready_order) {
                    if (layer.form->slot(slot).name != kTiedWeight) continue;
                    const SlotPlace place = layer.form->places[static_cast<std::size_t>(slot)];
                    const std::size_t r = index_of(place.range);
                    result_.tied_parameter_base = layer.segment.parameter_base[r] + place.offset;
                    result_.tied_gradient_base = layer.segment.gradient_base[r] + place.offset;
                }
            }
            head = head || layer.form->kind == LayerKind::head;
        }
    }
    layout_.holds_tied_copy = embedding != head && plan_.parallelism.pp > 1;
    if (!forms_.ties_locally()) result_.tied_parameter_base = result_.tied_gradient_base = -1;
}

/// fp8 copies of weights: for all layers, or, where parameters are gathered by unit, for those that are.
void Layouter::place_copies() {
    const bool windowed = layout_.rules.gathers_units;
    std::int64_t next = 0, largest = 0;
    for (LaidChunk& chunk : layout_.chunks) {
        for (const LaidLayer& layer : chunk.layers) largest = std::max(largest, layer.form->weight_copy_bytes);
    }
    for (LaidChunk& chunk : layout_.chunks) {
        std::int64_t turn = 0;
        for (LaidLayer& layer : chunk.layers) {
            if (layer.form->weight_copy_bytes == 0) continue;
            layer.segment.weight_copy_base = windowed ? 0 : next;
            next += layer.form->weight_copy_bytes;
            ++turn;
        }
    }
    result_.weight_copy_bytes = windowed ? largest : next;
}

/// A frame holds what a micro-batch leaves for its backward. Inputs that need not stay alternate between two places at
/// its start; activations that go to the host lie in a window beside the frames.
void Layouter::place_activations(std::size_t c) {
    LaidChunk& chunk = layout_.chunks[c];
    Chunk& described = result_.chunks[c];
    std::int64_t next = 0, handoff = 0, host = 0, largest_offloaded = 0;
    for (std::size_t i = 1; i < chunk.layers.size(); ++i) {
        if (!chunk.layers[i].form->keeps_hidden_in) {
            handoff = std::max(handoff, align(chunk.layers[i].form->hidden_in_bytes));
        }
    }
    next = 2 * handoff;
    std::int64_t handed = 0, offloaded = 0;
    for (const LaidLayer& layer : chunk.layers) {
        if (layer.offloaded) largest_offloaded = std::max(largest_offloaded, layer.form->saved_bytes);
    }
    for (std::size_t i = 0; i < chunk.layers.size(); ++i) {
        LaidLayer& layer = chunk.layers[i];
        if (i > 0) {  // the first layer's input is what was received, or nothing for the embedding
            if (layer.form->keeps_hidden_in) {
                layer.segment.hidden_in_offset = next;
                next += align(layer.form->hidden_in_bytes);
            } else {
                layer.segment.hidden_in_offset = handed++ % 2 * handoff;
            }
            chunk.layers[i - 1].segment.hidden_out_offset = layer.segment.hidden_in_offset;
        }
        const bool last = i + 1 == chunk.layers.size();
        if (!last && layer.form->hidden_gradient_bytes > 0) {
            layer.segment.gradient_in_offset = next;
            next += align(layer.form->hidden_gradient_bytes);
            chunk.layers[i + 1].segment.gradient_out_offset = layer.segment.gradient_in_offset;
        }
        if (layer.offloaded) {
            layer.segment.in_offload_window = true;
            layer.segment.activation_base = offloaded++ % 2 * largest_offloaded;
            layer.segment.host_base = host;
            host += layer.form->saved_bytes;
        } else {
            layer.segment.activation_base = next;
            next += layer.form->saved_bytes;
        }
    }
    described.frame_bytes = next;
    described.host_frame_bytes = host;
    result_.offload_window_bytes =
        std::max(result_.offload_window_bytes, std::min<std::int64_t>(offloaded, 2) * largest_offloaded);
}

}  // namespace

RankLayout lay_out_rank(const Plan& plan, const Mesh& mesh, const ScheduleShape& shape, StepKind step,
                        FormLibrary& forms, RankClass& result) {
    return Layouter(plan, mesh, shape, step, forms, result).run();
}

}  // namespace orrery::program
