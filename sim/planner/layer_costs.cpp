#include "sim/planner/layer_costs.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/index.h"
#include "sim/planner/isolated_times.h"
#include "sim/program/body_builder.h"
#include "sim/program/peak_contents.h"
#include "sim/program/program.h"
#include "sim/program/schedule.h"

namespace orrery::sim {

namespace {

using program::Action;
using program::ActionKind;
using program::Plan;
using program::Program;
using program::RankClass;
using program::Segment;

constexpr std::int64_t kOneBucket = std::int64_t{1} << 50;

const Action& action_of(const RankClass& ranks, ActionKind kind) {
    const auto action =
        std::find_if(ranks.actions.begin(), ranks.actions.end(), [&](const Action& a) { return a.kind == kind; });
    ORRERY_CHECK(action != ranks.actions.end(), "a step without " + std::string(name_of(kind)));
    return *action;
}

/// Fills in what each layer (0: the embedding) keeps in the frame. Its kept input, if any, lies before the activations
/// that it saves.
void read_frame_parts(const Program& program, const RankClass& ranks, LayerCosts& costs) {
    LayerCost* previous = nullptr;
    std::int64_t begin = 0, saved = 0;
    const auto close = [&](std::int64_t end) {
        if (previous != nullptr) previous->saved_bytes = end - begin;
        begin = end;
    };
    for (const Segment& segment : ranks.segment_lists[action_of(ranks, ActionKind::forward).segments]) {
        if (program.bodies[segment.body].phase != program::Phase::forward) continue;
        const bool keeps_input = previous != nullptr && segment.hidden_in_offset >= saved;
        close(keeps_input ? segment.hidden_in_offset : segment.activation_base);
        saved = segment.activation_base;
        previous = &costs.of_kind[at(segment.layer + 1)];
        previous->input_bytes = saved - begin;
    }
    close(ranks.chunks.front().frame_bytes);
}

/// Transient bytes that are alive at once in a block's largest pass, minimum over blocks. In an arena they take at
/// least as much. How much follows from first fit, which does not scale with the micro-batch size.
std::int64_t block_transients(const Program& program, const RankClass& ranks) {
    std::map<std::int32_t, std::int64_t> of_block;
    std::map<program::BodyId, std::int64_t> of_body;
    for (const program::SegmentList& list : ranks.segment_lists) {
        for (const Segment& segment : list) {
            const program::Body& body = program.bodies[segment.body];
            if (!is_pass(body.phase) || !is_block(body.layer_kind)) continue;
            const auto [entry, fresh] = of_body.try_emplace(segment.body, 0);
            if (fresh) entry->second = walk_body(body, walk_slots(program.bodies, segment)).transient_peak;
            std::int64_t& most = of_block[segment.layer];
            most = std::max(most, entry->second);
        }
    }
    std::int64_t fewest = 0;
    for (const auto& [layer, bytes] : of_block) fewest = fewest == 0 ? bytes : std::min(fewest, bytes);
    return fewest;
}

/// Time of a backward body without weight gradients and without recomputed parts, which may belong to the
/// weight-gradient half.
double input_gradient_time_s(const program::Body& body, const Plan& plan, const RooflineCost& cost) {
    const std::vector<std::string>& parts = plan.training.memory.recompute_parts;
    double sum = 0;
    for (const models::Operator& op : body.operators) {
        const bool recomputed = std::find(parts.begin(), parts.end(), models::name_of(op.part)) != parts.end();
        if (!op.weight_gradient && !recomputed) sum += cost.operator_seconds(op);
    }
    return sum;
}

/// Time of a backward body before its first weight gradient.
double before_gradients_time_s(const program::Body& body, const RooflineCost& cost) {
    double sum = 0;
    for (const models::Operator& op : body.operators) {
        if (op.weight_gradient) break;
        sum += cost.operator_seconds(op);
    }
    return sum;
}

/// Fills in what layers save.
void read_frames(const Program& program, LayerCosts& costs) {
    const RankClass& ranks = program.classes.front();
    read_frame_parts(program, ranks, costs);
    if (program.plan->implementation.memory.lays_out_ahead)
        costs.block_transient_bytes = block_transients(program, ranks);
}

/// What each layer's part of the first list of a kind does to the memory.
void read_changes(const Program& program, ActionKind kind, program::BodyChanges& changes, LayerCosts& costs,
                  program::BodyChange LayerCost::*change) {
    const RankClass& ranks = program.classes.front();
    for (LayerCost& layer : costs.of_kind) layer.*change = {};
    for (const Segment& segment : ranks.segment_lists[action_of(ranks, kind).segments]) {
        if (segment.layer + 1 < 0 || std::cmp_greater_equal(segment.layer + 1, costs.of_kind.size())) continue;
        program::BodyChange& layer = costs.of_kind[at(segment.layer + 1)].*change;
        const program::BodyChange one = changes.of(program, segment);
        layer.peak_bytes = std::max(layer.peak_bytes, layer.net_bytes + one.peak_bytes);
        layer.net_bytes += one.net_bytes;
    }
}

bool narrows_gradients(const program::Precision& precision) {
    return size_of(precision.parameter) < size_of(precision.gradient);
}

/// One stage, two micro-batches, one bucket.
Plan plan_of_layers(const PlanRequest& request, const Choice& key, bool wide) {
    Plan plan = plan_of(request, key);
    plan.parallelism.overlaps_experts = false;  // layers are read one by one
    // Two micro-batches, of which the first is read: its backward reduces no gradients.
    plan.training.global_batch_size = 2 * key.dp * key.micro_batch;
    // One bucket, reduced after all backward passes; with more, the layers' last backward bodies would all differ.
    plan.implementation.data_parallel = {
        .bucket_bytes = kOneBucket, .first_bucket_bytes = kOneBucket, .overlaps_backward = false};
    // A whole backward whose gradients are reduced by unit writes them in the parameters' type.
    program::Precision& precision = plan.training.precision;
    if (!wide && narrows_gradients(precision)) precision.gradient = precision.parameter;
    return plan;
}

/// Costs with a split backward: `costs` are those with whole ones. Adds what layers save and how long the halves take.
void read_halves(const Program& split, const topologies::Cluster& cluster, const RooflineCost& cost,
                 program::BodyChanges& changes, LayerCosts& costs) {
    const RankClass& halves = split.classes.front();
    IsolatedTimes times(split, cluster, cost);
    const auto segments_of = [&](ActionKind kind) -> const program::SegmentList& {
        return halves.segment_lists[action_of(halves, kind).segments];
    };
    for (const Segment& segment : segments_of(ActionKind::backward_input)) {
        if (split.bodies[segment.body].phase != program::Phase::backward_input) continue;
        costs.of_kind[at(segment.layer + 1)].input_pass_s += times.body_s(0, segment.body);
    }
    // An arena's frame also keeps what the weight-gradient half reads from the other.
    const bool has_frames = split.plan->implementation.memory.lays_out_ahead;
    if (has_frames) read_frames(split, costs);
    if (!has_frames) read_changes(split, ActionKind::backward_input, changes, costs, &LayerCost::backward_change);
    for (const Segment& segment : segments_of(ActionKind::backward_weight)) {
        const program::Body& body = split.bodies[segment.body];
        if (body.phase != program::Phase::backward_weight) continue;
        LayerCost& layer = costs.of_kind[at(segment.layer + 1)];
        layer.weight_pass_s += times.body_s(0, segment.body);
        if (!has_frames) layer.kept_bytes -= changes.of(split, segment).net_bytes;
    }
}

/// Costs with whole backward passes: how much longer those of `wide` take.
void read_wide(const Program& wide, const topologies::Cluster& cluster, const RooflineCost& cost, bool hides_tokens,
               LayerCosts& costs) {
    const RankClass& ranks = wide.classes.front();
    IsolatedTimes times(wide, cluster, cost, hides_tokens);
    std::vector<double> seconds(costs.of_kind.size());
    for (const Segment& segment : ranks.segment_lists[action_of(ranks, ActionKind::backward).segments]) {
        if (wide.bodies[segment.body].phase != program::Phase::backward) continue;
        seconds[at(segment.layer + 1)] += times.body_s(0, segment.body);
    }
    for (std::size_t layer = 0; layer < seconds.size(); ++layer) {
        LayerCost& one = costs.of_kind[layer];
        one.wide_gradients_s = std::max(0.0, seconds[layer] - one.backward_s);
    }
    costs.has_wide_gradients = true;
}

/// Every layer a kind of its own.
std::shared_ptr<const LayerKinds> every_layer(const models::ModelSpec& model) {
    std::vector<std::size_t> kinds(at(model.layers + 2));
    std::iota(kinds.begin(), kinds.end(), 0);
    return std::make_shared<LayerKinds>(kinds, kinds.size());
}

/// Kinds of the block before, of the block and of the one after it. A block's costs depend on nothing else.
using Surroundings = std::array<int, 3>;
Surroundings surroundings(const models::ModelSpec& model, std::int64_t block) {
    constexpr int kEnd = -1;
    const auto kind_of = [&](std::int64_t i) {
        return i < 0 || i == model.layers ? kEnd : static_cast<int>(model.is_expert_layer(i));
    };
    return {kind_of(block - 1), kind_of(block), kind_of(block + 1)};
}

/// The layers of `few` that cost as much as those of `whole`. Null if not every block has one with its surroundings.
std::shared_ptr<const LayerKinds> layer_by_layer(const models::ModelSpec& whole, const models::ModelSpec& few) {
    std::map<Surroundings, std::int64_t> known;
    for (std::int64_t block = 0; block < few.layers; ++block) known.try_emplace(surroundings(few, block), block);
    std::vector<std::size_t> layers{0};
    for (std::int64_t block = 0; block < whole.layers; ++block) {
        const auto found = known.find(surroundings(whole, block));
        if (found == known.end()) return nullptr;
        layers.push_back(at(found->second + 1));
    }
    layers.push_back(at(few.layers + 1));
    return std::make_shared<LayerKinds>(std::move(layers), at(few.layers + 2));
}

/// Costs with whole backward passes. `hides_tokens`: without waits for tokens, during which another pass computes.
LayerCosts read_whole(const Program& program, const topologies::Cluster& cluster, const RooflineCost& cost,
                      bool hides_tokens, program::BodyChanges& changes) {
    const RankClass& ranks = program.classes.front();
    LayerCosts costs;
    costs.of_kind.resize(at(program.plan->model.layers + 2));
    const auto layer_of = [&](std::int32_t layer) -> LayerCost& { return costs.of_kind[at(layer + 1)]; };
    for (const program::Parameter& parameter : ranks.parameters) {
        LayerCost& layer = layer_of(parameter.layer);
        const bool expert = parameter.range == program::ParameterRange::expert;
        (expert ? layer.expert_parameters : layer.dense_parameters) += parameter.elements;
    }
    IsolatedTimes times(program, cluster, cost, hides_tokens);
    std::optional<IsolatedTimes> alone;
    if (hides_tokens) alone.emplace(program, cluster, cost);
    const auto segments_of = [&](ActionKind kind) -> const program::SegmentList& {
        return ranks.segment_lists[action_of(ranks, kind).segments];
    };
    const auto phase_of = [&](const Segment& segment) { return program.bodies[segment.body].phase; };
    std::map<program::BodyId, double> known;
    const auto input_gradient_s = [&](program::BodyId body) {
        const auto [entry, fresh] = known.try_emplace(body, 0.0);
        if (fresh) entry->second = input_gradient_time_s(program.bodies[body], *program.plan, cost);
        return entry->second;
    };
    for (const Segment& segment : segments_of(ActionKind::forward)) {
        if (phase_of(segment) != program::Phase::forward) continue;
        LayerCost& layer = layer_of(segment.layer);
        layer.forward_s += times.body_s(0, segment.body);
        layer.draws.add(times.draws(segment.body));
        if (!hides_tokens) continue;
        layer.forward_tokens.add(times.on_stream(0, segment.body, program::Stream::ep));
        layer.alone_forward_s += alone->body_s(0, segment.body);
    }
    read_frames(program, costs);
    if (!program.plan->implementation.memory.lays_out_ahead) {
        read_changes(program, ActionKind::forward, changes, costs, &LayerCost::forward_change);
        read_changes(program, ActionKind::backward, changes, costs, &LayerCost::backward_change);
    }
    for (const Segment& segment : segments_of(ActionKind::backward)) {
        if (phase_of(segment) != program::Phase::backward) continue;
        LayerCost& layer = layer_of(segment.layer);
        const bool is_first = layer.backward_s == 0;
        if (is_first) layer.before_gradients_s = before_gradients_time_s(program.bodies[segment.body], cost);
        layer.backward_s += times.body_s(0, segment.body);
        layer.draws.add(times.draws(segment.body));
        layer.input_gradient_s += input_gradient_s(segment.body);
        if (!hides_tokens) continue;
        layer.backward_tokens.add(times.on_stream(0, segment.body, program::Stream::ep));
        layer.alone_backward_s += alone->body_s(0, segment.body);
    }
    for (const Segment& segment : ranks.segment_lists[action_of(ranks, ActionKind::optimizer_step).segments]) {
        for (const models::Operator& op : program.bodies[segment.body].operators) {
            if (op.is_update()) costs.optimizer = op;
        }
    }
    costs.optimizer_elements = ranks.optimizer_elements;
    return costs;
}

}  // namespace

LayerKinds::LayerKinds(std::vector<std::size_t> kind_of_layer, std::size_t kinds)
    : kind_of_layer_(std::move(kind_of_layer)), kinds_(kinds), before_((kind_of_layer_.size() + 1) * kinds) {
    for (std::size_t layer = 0; layer < kind_of_layer_.size(); ++layer) {
        const auto here = before_.begin() + static_cast<std::ptrdiff_t>(layer * kinds_);
        const auto next = std::copy_n(here, kinds_, here + static_cast<std::ptrdiff_t>(kinds_));
        ++*(next - static_cast<std::ptrdiff_t>(kinds_ - kind_of_layer_[layer]));
    }
}

Choice with_whole_backward(Choice choice) {
    choice.schedule = program::Schedule::one_f_one_b;
    return choice;
}

Choice without_recomputation(Choice choice) {
    choice.recompute = program::Recompute::none;
    choice.recompute_parts = 0;
    choice.recompute_layers = -1;
    choice.offload_layers = 0;
    return choice;
}

Choice layer_costs_key(const Choice& choice) {
    const std::int64_t experts = choice.ep * choice.etp;
    return {.dp = experts / std::gcd(experts, choice.tp * choice.cp),
            .tp = choice.tp,
            .cp = choice.cp,
            .ep = choice.ep,
            .etp = choice.etp,
            .overlaps_experts = choice.overlaps_experts,
            .sequence_parallel = choice.sequence_parallel,
            .schedule =
                row_of(choice.schedule).splits_backward() ? program::Schedule::zb_h1 : program::Schedule::one_f_one_b,
            .recompute = choice.recompute,
            .recompute_parts = choice.recompute_parts,
            .micro_batch = choice.micro_batch};
}

LayerCosting::LayerCosting(const PlanRequest& request, const topologies::Cluster& cluster, const RooflineCost& cost)
    : cluster_(cluster), cost_(cost), excerpt_(excerpt_of(request.model)), few_(request) {
    few_.model = excerpt_.model;
    few_.stage_layers.clear();  // a given layout is one of all blocks
}

/// The model itself with fewer blocks: three of a dense model, six of DeepSeek-V3.
LayerCosting::Excerpt LayerCosting::excerpt_of(const models::ModelSpec& whole) {
    Excerpt excerpt{.model = whole};
    for (std::int64_t layers = 1; layers <= whole.layers; ++layers) {
        excerpt.model.layers = layers;
        const std::int64_t most = whole.has_experts() ? std::min(layers, whole.moe.first_dense_layers) : 0;
        for (std::int64_t dense = 0; dense <= most; ++dense) {
            if (whole.has_experts()) excerpt.model.moe.first_dense_layers = dense;
            excerpt.kinds = layer_by_layer(whole, excerpt.model);
            if (excerpt.kinds != nullptr) return excerpt;
        }
    }
    throw_bug(__FILE__, __LINE__, "excerpt_of", "a model that does not stand for itself");
}

LayerCosting::Lowering LayerCosting::lowering_of(const Choice& key, bool wide) {
    Choice any_size = key;
    any_size.micro_batch = 1;
    any_size.overlaps_experts = false;
    Cut& cut = cuts_[{any_size, wide}];
    const auto scaled = [&] { return Lowering{cut.scaled->at(key.micro_batch), cut.changes}; };
    if (cut.scaled && cut.scaled->is_scalable()) return scaled();
    if (cut.first && cut.first_size == key.micro_batch) return {*cut.first, cut.changes};
    ++lowerings_;
    Program program = program::lower_without_memory(plan_of_layers(few_, key, wide), layers_);
    if (cut.first) cut.scaled.emplace(std::move(*cut.first), cut.first_size, program, key.micro_batch);
    if (cut.scaled && cut.scaled->is_scalable()) {
        cut.first.reset();
        return scaled();
    }
    cut.first_size = key.micro_batch;
    cut.changes = {};
    return {cut.first.emplace(std::move(program)), cut.changes};
}

LayerCosts LayerCosting::costs(const Choice& choice) {
    const Choice key = layer_costs_key(choice);
    const auto [program, changes] = lowering_of(with_whole_backward(key), false);
    LayerCosts costs = read_whole(program, cluster_, cost_, key.overlaps_experts, changes);
    costs.kinds = excerpt_.kinds;
    if (!narrows_gradients(few_.training.precision)) costs.has_wide_gradients = true;  // no longer
    return costs;
}

void LayerCosting::add_wide_gradients(const Choice& choice, LayerCosts& costs) {
    if (costs.has_wide_gradients) return;
    const Choice key = layer_costs_key(choice);
    read_wide(lowering_of(with_whole_backward(key), true).program, cluster_, cost_, key.overlaps_experts, costs);
}

LayerCosts LayerCosting::costs_of_halves(const Choice& choice, const LayerCosts& whole) {
    LayerCosts costs = whole;
    const auto [program, changes] = lowering_of(layer_costs_key(choice), true);
    read_halves(program, cluster_, cost_, changes, costs);
    return costs;
}

LayerCosts LayerCosting::all_costs(const Choice& choice) {
    LayerCosts all = costs(choice);
    add_wide_gradients(choice, all);
    return row_of(choice.schedule).splits_backward() ? costs_of_halves(choice, all) : all;
}

LayerCosts layer_costs(const PlanRequest& request, const topologies::Cluster& cluster, const RooflineCost& cost,
                       const Choice& choice) {
    return LayerCosting(request, cluster, cost).all_costs(choice);
}

LayerCosts layer_costs_of_every_block(const PlanRequest& request, const topologies::Cluster& cluster,
                                      const RooflineCost& cost, const Choice& choice) {
    const Choice key = layer_costs_key(choice);
    const auto lowered = [&](const Choice& cut, bool wide) {
        return program::lower(plan_of_layers(request, cut, wide));
    };
    const Choice whole = with_whole_backward(key);
    program::BodyChanges changes, of_halves;
    LayerCosts costs = read_whole(lowered(whole, false), cluster, cost, key.overlaps_experts, changes);
    costs.kinds = every_layer(request.model);
    if (narrows_gradients(request.training.precision))
        read_wide(lowered(whole, true), cluster, cost, key.overlaps_experts, costs);
    if (row_of(key.schedule).splits_backward()) read_halves(lowered(key, true), cluster, cost, of_halves, costs);
    return costs;
}

}  // namespace orrery::sim
