// The lowering: plan -> Program. Parameters are laid out in gradient-ready order, so that a DDP bucket is a contiguous
// range; bodies are written once per kind of layer; actions follow the pipeline schedule, with each transfer on a
// stream of its own and receives posted one computation ahead.
#include <algorithm>
#include <map>
#include <utility>

#include "core/error.h"
#include "core/units.h"
#include "sim/program/body_builder.h"
#include "sim/program/program.h"
#include "sim/program/schedule.h"
#include "sim/program/stage_actions.h"

namespace orrery::program {
namespace {

using models::kNoSlot;
using models::Layer;
using models::LayerKind;
using models::SlotDecl;
using models::SlotIndex;
using models::SlotRole;

/// A kind of layer with its slots placed: what all layers of that kind share.
struct LayerForm {
    Layer layer;
    std::vector<SlotPlace> places;
    std::vector<SlotIndex> ready_order;  // own parameter slots by when their gradient is complete
    std::int64_t whole_elements = 0;     // parameters with complete gradients
    std::int64_t partial_elements = 0;   // parameters whose gradients are summed over tensor-parallel ranks
    std::int64_t saved_bytes = 0;        // frame bytes without the layer's input
    SlotIndex hidden_in = kNoSlot;
    std::int64_t hidden_in_bytes = 0;
};

/// Parameter slots by the backward operator that last writes their gradient.
std::vector<SlotIndex> gradient_ready_order(const Layer& layer) {
    std::vector<SlotIndex> order;
    for (const models::Step& step : layer.backward) {
        const auto* op = std::get_if<models::Operator>(&step);
        if (op == nullptr) continue;
        for (SlotIndex slot : op->out) {
            if (slot == kNoSlot) continue;
            const SlotDecl& decl = layer.slots[static_cast<std::size_t>(slot)];
            if (decl.role != SlotRole::gradient || decl.tied) continue;
            std::erase(order, decl.parameter_slot);
            order.push_back(decl.parameter_slot);
        }
    }
    return order;
}

LayerForm place_layer(Layer layer) {
    LayerForm form;
    form.ready_order = gradient_ready_order(layer);
    std::map<SlotIndex, SlotPlace> parameters;
    for (SlotIndex slot : form.ready_order) {
        const SlotDecl& decl = layer.slots[static_cast<std::size_t>(slot)];
        std::int64_t& total = decl.gradient_partial_over_tp ? form.partial_elements : form.whole_elements;
        parameters[slot] = {decl.gradient_partial_over_tp ? Space::partial_parameter : Space::parameter, total};
        total += decl.elements();
    }
    for (std::size_t i = 0; i < layer.slots.size(); ++i) {
        const SlotDecl& decl = layer.slots[i];
        SlotPlace place;
        switch (decl.role) {
            case SlotRole::hidden_in:
                place.space = Space::hidden_in;
                form.hidden_in = static_cast<SlotIndex>(i);
                form.hidden_in_bytes = decl.bytes();
                break;
            case SlotRole::hidden_out:
                place.space = Space::hidden_out;
                break;
            case SlotRole::hidden_gradient:
                place.space = Space::hidden_gradient;
                break;
            case SlotRole::transient:
                place.space = Space::transient;
                break;
            case SlotRole::loss:
                place.space = Space::scalars;
                break;
            case SlotRole::saved:
                place = {Space::activation, form.saved_bytes};
                form.saved_bytes = align(form.saved_bytes + decl.bytes());
                break;
            case SlotRole::parameter:
                place = decl.tied ? SlotPlace{Space::tied_parameter, 0} : parameters.at(static_cast<SlotIndex>(i));
                break;
            case SlotRole::gradient: {
                if (decl.tied) {
                    place = {Space::tied_gradient, 0};
                } else {
                    place = parameters.at(decl.parameter_slot);
                    place.space = place.space == Space::parameter ? Space::gradient : Space::partial_gradient;
                }
                break;
            }
        }
        form.places.push_back(place);
    }
    form.layer = std::move(layer);
    return form;
}

/// Everything of one stage that is decided before its actions are listed.
struct StageLayer {
    const LayerForm* form = nullptr;
    std::int32_t index = 0;  // Segment::layer
    Segment segment;         // bases; `body` is filled per pass
    std::vector<BucketCut> buckets;
};

class Lowering {
  public:
    explicit Lowering(const Plan& plan) : plan_(plan) {
        program_.plan = std::make_shared<const Plan>(plan);
        context_ = {.sequence = plan.training.sequence_length,
                    .micro_batch = plan.training.micro_batch_size,
                    .tp_degree = plan.parallelism.tp,
                    .sequence_parallel = plan.parallelism.sequence_parallel,
                    .padded_vocab =
                        models::padded_vocabulary(plan.model, plan.implementation.vocab_multiple, plan.parallelism.tp),
                    .parameter_dtype = plan.training.precision.parameter,
                    .activation_dtype = plan.training.precision.activation,
                    .gradient_dtype = plan.training.precision.gradient,
                    .dropout = plan.training.dropout,
                    .tied_to_embedding = plan.model.tied_embeddings && plan.parallelism.pp == 1,
                    .implementation = plan.implementation};
        for (LayerKind kind : {LayerKind::embedding, LayerKind::block, LayerKind::head}) {
            forms_.push_back(place_layer(models::build_layer(plan.model, kind, context_)));
        }
    }

    Program run() {
        for (std::int64_t stage = 0; stage < plan_.parallelism.pp; ++stage) lower_stage(stage);
        return std::move(program_);
    }

  private:
    [[nodiscard]] const LayerForm& form(LayerKind kind) const { return forms_[static_cast<std::size_t>(kind)]; }
    [[nodiscard]] bool first(std::int64_t stage) const { return stage == 0; }
    [[nodiscard]] bool last(std::int64_t stage) const { return stage == plan_.parallelism.pp - 1; }
    [[nodiscard]] std::int64_t hidden_elements() const {
        return plan_.training.sequence_length * plan_.training.micro_batch_size * plan_.model.hidden /
               (plan_.parallelism.sequence_parallel ? plan_.parallelism.tp : 1);
    }
    [[nodiscard]] std::int64_t hidden_bytes() const {
        return hidden_elements() * size_of(plan_.training.precision.activation);
    }

    void lower_stage(std::int64_t stage) {
        RankClass result;
        result.name = "stage " + std::to_string(stage);
        result.pp_index = stage;
        for (std::int64_t i = 0; i < stage; ++i) {
            result.first_block += plan_.parallelism.stage_layers[static_cast<std::size_t>(i)];
        }
        result.block_count = plan_.parallelism.stage_layers[static_cast<std::size_t>(stage)];
        std::vector<StageLayer> layers = stage_layers(result);
        place_parameters(layers, result);
        place_activations(layers, result);
        if (plan_.parallelism.dp > 1) cut_buckets(layers, result);
        const StageLists lists = make_segment_lists(layers, result);
        const std::vector<ComputeTask> order =
            compute_order(plan_.parallelism.schedule, plan_.parallelism.pp, stage, plan_.micro_batches());
        StageActions(order, lists, !result.buckets.empty(), result).list();
        measure_memory(lists, result);
        program_.classes.push_back(std::move(result));
    }

    [[nodiscard]] std::vector<StageLayer> stage_layers(const RankClass& stage) const {
        std::vector<StageLayer> layers;
        const auto push = [&](LayerKind kind, std::int64_t index) {
            StageLayer layer{.form = &form(kind), .index = static_cast<std::int32_t>(index)};
            layer.segment.layer = layer.index;
            layers.push_back(std::move(layer));
        };
        if (first(stage.pp_index)) push(LayerKind::embedding, -1);
        for (std::int64_t i = 0; i < stage.block_count; ++i) push(LayerKind::block, stage.first_block + i);
        if (last(stage.pp_index)) push(LayerKind::head, plan_.model.layers);
        return layers;
    }

    /// Flat order: the last layer first, since its gradients are ready first; complete gradients before partial ones.
    void place_parameters(std::vector<StageLayer>& layers, RankClass& result) const {
        std::int64_t whole = 0;
        for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
            layer->segment.parameter_base = whole;
            whole += layer->form->whole_elements;
        }
        result.partial_begin = whole;
        std::int64_t partial = whole;
        for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
            layer->segment.partial_base = partial;
            partial += layer->form->partial_elements;
        }
        result.parameter_elements = partial;
        for (const bool partial_pass : {false, true}) {
            for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
                for (SlotIndex slot : layer->form->ready_order) {
                    const SlotDecl& decl = layer->form->layer.slots[static_cast<std::size_t>(slot)];
                    if (decl.gradient_partial_over_tp != partial_pass) continue;
                    const SlotPlace place = layer->form->places[static_cast<std::size_t>(slot)];
                    const std::string prefix = layer->form->layer.kind == LayerKind::block
                                                   ? "layers." + std::to_string(layer->index) + "."
                                                   : "";
                    result.parameters.push_back(
                        {.name = prefix + decl.name,
                         .offset = place.offset +
                                   (partial_pass ? layer->segment.partial_base : layer->segment.parameter_base),
                         .elements = decl.elements(),
                         .decl = decl,
                         .layer = layer->index});
                    if (context_.tied_to_embedding && decl.name == "embedding.weight") {
                        result.tied_parameter_base = result.parameters.back().offset;
                    }
                }
            }
        }
    }

    void place_activations(std::vector<StageLayer>& layers, RankClass& result) const {
        for (std::size_t i = 0; i < layers.size(); ++i) {
            StageLayer& layer = layers[i];
            if (i > 0) {  // the first layer's input is what was received, or nothing for the embedding
                layer.segment.hidden_in_offset = result.frame_bytes;
                result.frame_bytes += align(layer.form->hidden_in_bytes);
                layers[i - 1].segment.hidden_out_offset = layer.segment.hidden_in_offset;
            }
            layer.segment.activation_base = result.frame_bytes;
            result.frame_bytes += layer.form->saved_bytes;
        }
        result.boundary_bytes = align(hidden_bytes());
    }

    /// DDP buckets in gradient-ready order: a bucket closes once it holds its cap; the first has a smaller cap, so that
    /// communication starts early.
    void cut_buckets(std::vector<StageLayer>& layers, RankClass& result) const {
        const std::int64_t element_bytes = size_of(plan_.training.precision.gradient);
        std::int64_t begin = 0;
        for (std::size_t i = 0; i < result.parameters.size(); ++i) {
            const Parameter& parameter = result.parameters[i];
            const std::int64_t end = parameter.offset + parameter.elements;
            const std::int64_t cap = result.buckets.empty() ? plan_.implementation.ddp_first_bucket_bytes
                                                            : plan_.implementation.ddp_bucket_bytes;
            const bool last_whole = end == result.partial_begin;  // the partial range has buckets of its own
            if ((end - begin) * element_bytes < cap && !last_whole && i + 1 < result.parameters.size()) continue;
            result.buckets.push_back({begin, end - begin});
            StageLayer& layer = *std::find_if(layers.begin(), layers.end(),
                                              [&](const StageLayer& l) { return l.index == parameter.layer; });
            const bool partial = parameter.decl.gradient_partial_over_tp;
            layer.buckets.push_back(
                {.gradient_slot = gradient_slot(*layer.form, parameter.decl.name),
                 .space = partial ? Space::partial_gradient : Space::gradient,
                 .offset = begin - (partial ? layer.segment.partial_base : layer.segment.parameter_base),
                 .elements = end - begin});
            begin = end;
        }
    }

    [[nodiscard]] static SlotIndex gradient_slot(const LayerForm& form, const std::string& parameter_name) {
        for (std::size_t i = 0; i < form.layer.slots.size(); ++i) {
            const SlotDecl& decl = form.layer.slots[i];
            if (decl.role == SlotRole::gradient && decl.name == parameter_name + ".gradient") {
                return static_cast<SlotIndex>(i);
            }
        }
        throw_bug(__FILE__, __LINE__, "gradient_slot", parameter_name + " has no gradient");
    }

    /// Bodies are shared by all layers and stages that need the same one.
    BodyId body_of(const LayerForm& layer_form, Phase phase, const std::vector<BucketCut>& buckets) {
        for (const auto& known : known_bodies_) {
            if (known.form == &layer_form && known.phase == phase && known.buckets == buckets) return known.body;
        }
        program_.bodies.push_back(build_body(layer_form.layer, phase, layer_form.places, buckets));
        const auto id = static_cast<BodyId>(program_.bodies.size() - 1);
        known_bodies_.push_back({&layer_form, phase, buckets, id});
        return id;
    }

    SegmentListId add_list(RankClass& result, std::vector<Segment> segments) const {
        result.segment_lists.push_back(std::move(segments));
        return static_cast<SegmentListId>(result.segment_lists.size() - 1);
    }

    SegmentListId add_single(RankClass& result, Body body, Segment segment) {
        program_.bodies.push_back(std::move(body));
        segment.body = static_cast<BodyId>(program_.bodies.size() - 1);
        return add_list(result, {segment});
    }

    [[nodiscard]] Slot hidden_slot(const std::string& name, SlotRole role, Space space) const {
        SlotDecl decl{
            .name = name, .role = role, .dtype = plan_.training.precision.activation, .shape = {hidden_elements()}};
        const std::int64_t bytes = decl.bytes();
        return {std::move(decl), space, 0, bytes};
    }

    StageLists make_segment_lists(const std::vector<StageLayer>& layers, RankClass& result) {
        StageLists lists;
        std::vector<Segment> forward, backward, backward_last;
        bool buckets = false;
        for (const StageLayer& layer : layers) {
            forward.push_back(layer.segment);
            forward.back().body = body_of(*layer.form, Phase::forward, {});
        }
        for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
            backward.push_back(layer->segment);
            backward.back().body = body_of(*layer->form, Phase::backward, {});
            backward_last.push_back(layer->segment);
            backward_last.back().body = body_of(*layer->form, Phase::backward, layer->buckets);
            buckets = buckets || !layer->buckets.empty();
        }
        lists.forward = add_list(result, std::move(forward));
        lists.backward = add_list(result, std::move(backward));
        lists.backward_last = buckets ? add_list(result, std::move(backward_last)) : lists.backward;
        const std::int64_t stage = result.pp_index;
        const auto transfer = [&](const std::string& name, Stream stream, CommKind kind, GroupAxis axis, Slot slot) {
            return add_single(result, communication_body(Phase::transfer, name, stream, kind, axis, std::move(slot)),
                              Segment{});
        };
        if (!first(stage)) {
            lists.recv_forward =
                transfer("recv_forward", Stream::pp_recv_forward, CommKind::recv, GroupAxis::pp_forward,
                         hidden_slot("stage.in", SlotRole::hidden_in, Space::hidden_in));
            lists.send_backward =
                transfer("send_backward", Stream::pp_send_backward, CommKind::send, GroupAxis::pp_backward,
                         hidden_slot("stage.in.gradient", SlotRole::hidden_gradient, Space::hidden_gradient));
        }
        if (!last(stage)) {
            lists.send_forward =
                transfer("send_forward", Stream::pp_send_forward, CommKind::send, GroupAxis::pp_forward,
                         hidden_slot("stage.out", SlotRole::hidden_out, Space::hidden_out));
            lists.recv_backward =
                transfer("recv_backward", Stream::pp_recv_backward, CommKind::recv, GroupAxis::pp_backward,
                         hidden_slot("stage.out.gradient", SlotRole::hidden_gradient, Space::hidden_gradient));
        }
        make_sync_list(result, lists);
        lists.optimizer = add_single(result, optimizer_body(result), Segment{});
        return lists;
    }

    /// What is summed once a step after the buckets: partial gradients over tensor-parallel ranks, and the two copies
    /// of a tied embedding.
    void make_sync_list(RankClass& result, StageLists& lists) {
        std::vector<Segment> segments;
        const auto gradient_range = [&](const std::string& name, Space space, std::int64_t elements) {
            SlotDecl decl{.name = name,
                          .role = SlotRole::gradient,
                          .dtype = plan_.training.precision.gradient,
                          .shape = {elements}};
            const std::int64_t bytes = decl.bytes();
            return Slot{std::move(decl), space, 0, bytes};
        };
        const std::int64_t partial = result.parameter_elements - result.partial_begin;
        if (plan_.parallelism.tp > 1 && partial > 0) {
            Segment segment{.partial_base = result.partial_begin};
            program_.bodies.push_back(communication_body(
                Phase::gradient_sync, "tp.partial_gradients", Stream::tp, CommKind::all_reduce, GroupAxis::tp,
                gradient_range("partial.gradients", Space::partial_gradient, partial)));
            segment.body = static_cast<BodyId>(program_.bodies.size() - 1);
            segments.push_back(segment);
        }
        const bool holds_tied = plan_.model.tied_embeddings && plan_.parallelism.pp > 1 &&
                                (first(result.pp_index) || last(result.pp_index));
        if (holds_tied) {
            const auto weight = std::find_if(result.parameters.begin(), result.parameters.end(),
                                             [](const Parameter& p) { return p.name == "embedding.weight"; });
            ORRERY_CHECK(weight != result.parameters.end(), "a tied embedding without its weight");
            Segment segment{.parameter_base = weight->offset};
            program_.bodies.push_back(communication_body(
                Phase::gradient_sync, "embedding.gradient", Stream::dp, CommKind::all_reduce, GroupAxis::embedding,
                gradient_range("embedding.weight.gradient", Space::gradient, weight->elements)));
            segment.body = static_cast<BodyId>(program_.bodies.size() - 1);
            segments.push_back(segment);
        }
        for (const Segment& segment : segments) {
            const Body& body = program_.bodies[static_cast<std::size_t>(segment.body)];
            lists.sync_streams.push_back(body.instructions.front().stream);
        }
        if (!segments.empty()) lists.sync = add_list(result, std::move(segments));
    }

    [[nodiscard]] Body optimizer_body(const RankClass& result) const {
        const Precision& precision = plan_.training.precision;
        Body body{.phase = Phase::optimizer, .layer_kind = LayerKind::block};
        const std::int64_t n = result.parameter_elements;
        const auto add = [&](const std::string& name, SlotRole role, DType dtype, Space space, std::int64_t offset) {
            SlotDecl decl{.name = name, .role = role, .dtype = dtype, .shape = {n}};
            const std::int64_t bytes = decl.bytes();
            body.slots.push_back({std::move(decl), space, offset, bytes});
            return static_cast<SlotIndex>(body.slots.size() - 1);
        };
        const SlotIndex parameters = add("parameters", SlotRole::parameter, precision.parameter, Space::parameter, 0);
        const SlotIndex gradients = add("gradients", SlotRole::gradient, precision.gradient, Space::gradient, 0);
        const SlotIndex m = add("optimizer.m", SlotRole::saved, DType::fp32, Space::optimizer, 0);
        const SlotIndex v = add("optimizer.v", SlotRole::saved, DType::fp32, Space::optimizer, checked_product(4, n));
        const SlotIndex master = precision.master_weights ? add("optimizer.master", SlotRole::saved, DType::fp32,
                                                                Space::optimizer, checked_product(8, n))
                                                          : kNoSlot;
        models::Operator op{.kind = models::OpKind::adamw,
                            .elements = n,
                            .in = {gradients},
                            .out = {parameters, m, v, gradients, master}};
        for (const Slot& slot : body.slots) {
            op.bytes_read += static_cast<double>(slot.bytes);
            op.bytes_written += static_cast<double>(slot.bytes);
        }
        constexpr double kAdamFlops = 16;
        op.flops = kAdamFlops * static_cast<double>(n);
        body.operators.push_back(op);
        body.instructions.push_back(
            {.name = "adamw", .stream = Stream::compute, .first_operator = 0, .operator_count = 1});
        body.stream_counts[static_cast<std::size_t>(Stream::compute)] = 1;
        return body;
    }

    void measure_memory(const StageLists& lists, RankClass& result) const;

    struct KnownBody {
        const LayerForm* form = nullptr;
        Phase phase{};
        std::vector<BucketCut> buckets;
        BodyId body = 0;
    };

    const Plan& plan_;
    models::LayerContext context_;
    std::vector<LayerForm> forms_;
    std::vector<KnownBody> known_bodies_;
    Program program_;
};

void Lowering::measure_memory(const StageLists& lists, RankClass& result) const {
    const Precision& precision = plan_.training.precision;
    MemoryFootprint& memory = result.memory;
    memory.parameters = checked_product(result.parameter_elements, size_of(precision.parameter));
    memory.gradients = checked_product(result.parameter_elements, size_of(precision.gradient));
    memory.optimizer_states = checked_product(result.parameter_elements, precision.master_weights ? 12 : 8);
    memory.activations_arena = checked_product(result.frame_bytes, result.frame_count);
    memory.boundaries_arena =
        checked_product(result.boundary_bytes,
                        result.input_boundary_count + result.forward_boundary_count + result.backward_boundary_count);

    const auto walk_list = [&](SegmentListId list) {  // one pass over the chunk, relative to its start
        BodyMemory total;
        for (const Segment& segment : result.segment_lists[static_cast<std::size_t>(list)]) {
            const Body& body = program_.bodies[static_cast<std::size_t>(segment.body)];
            result.transient_bytes = std::max(result.transient_bytes, body.transient_bytes);
            const BodyMemory one = walk_body(body, segment.hidden_in_offset >= 0, segment.hidden_out_offset >= 0);
            total.activation_peak = std::max(total.activation_peak, total.activation_net + one.activation_peak);
            total.joint_peak = std::max(total.joint_peak, total.activation_net + one.joint_peak);
            total.transient_peak = std::max(total.transient_peak, one.transient_peak);
            total.activation_net += one.activation_net;
        }
        return total;
    };
    const BodyMemory forward = walk_list(lists.forward);
    const BodyMemory backward = walk_list(lists.backward);
    const BodyMemory backward_last = lists.backward_last == lists.backward ? backward : walk_list(lists.backward_last);
    memory.transients_arena = result.transient_bytes;

    const std::int64_t fixed = memory.parameters + memory.gradients + memory.optimizer_states + memory.boundaries_arena;
    std::int64_t activations = 0;
    for (const Action& action : result.actions) {
        if (action.kind != ActionKind::forward && action.kind != ActionKind::backward) continue;
        const BodyMemory& one = action.kind == ActionKind::forward  ? forward
                                : action.segments == lists.backward ? backward
                                                                    : backward_last;
        memory.activations_live_peak = std::max(memory.activations_live_peak, activations + one.activation_peak);
        memory.transients_live_peak = std::max(memory.transients_live_peak, one.transient_peak);
        if (fixed + activations + one.joint_peak > memory.live_peak) {
            memory.live_peak = fixed + activations + one.joint_peak;
            memory.peak_at =
                std::string(name_of(action.kind)) + " of micro-batch " + std::to_string(action.micro_batch);
        }
        activations += one.activation_net;
    }
    ORRERY_CHECK(activations == 0, "activations are left over at the end of the step");
    memory.arena = memory.parameters + memory.gradients + memory.optimizer_states + memory.activations_arena +
                   memory.transients_arena + memory.boundaries_arena;
}

}  // namespace

Program lower(const Plan& plan) {
    return Lowering(plan).run();
}

}  // namespace orrery::program
