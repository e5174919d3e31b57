// Lowers a plan into a Program. For each pipeline rank it lays out the rank's memory (rank_layout), builds the segment
// lists of its passes, transfers and step end (stage_lists, step_end_lists), and lists its actions in the order of the
// schedule (stage_actions).
#include <algorithm>

#include "sim/program/layer_cache.h"
#include "sim/program/lowering.h"
#include "sim/program/rank_layout.h"
#include "sim/program/stage_actions.h"
#include "sim/program/stage_lists.h"
#include "sim/program/step_slots.h"
#include "sim/program/transfer_rules.h"

namespace orrery::program {
namespace {

using models::LayerKind;

double matrix_flops(const std::vector<models::Step>& steps) {
    double flops = 0;
    for (const models::Step& step : steps) {
        const auto* op = std::get_if<models::Operator>(&step);
        if (op != nullptr && uses_matrix_units(*op)) flops += op->flops;
    }
    return flops;
}

/// Megatron's interleaved schedule sends and receives in one call after each pair of a forward and a backward, so each
/// pair is made an overlapped block. With fewer than two pairs (all forwards come first) nothing is paired, because the
/// first backward may need what the last forward sends.
void join_pairs(std::vector<ComputeTask>& order) {
    using Kind = ComputeTask::Kind;
    std::vector<std::size_t> second;  // index of the second task of each pair
    for (std::size_t t = 1; t < order.size(); ++t) {
        if (order[t - 1].kind == Kind::forward && order[t].kind == Kind::backward) second.push_back(t);
    }
    if (second.size() < 2) return;
    for (const std::size_t t : second) order[t].overlaps_previous = true;
}

/// Sets the durations for the automatic schedulers. If the plan gives none, the FLOPs of GEMMs and attention serve as
/// durations, since the lowering has no cost model.
void estimate_times(const Plan& plan, const Mesh& mesh, StepKind step, LayerLibrary& layers, ScheduleShape& shape) {
    const ScheduleTimes& given = plan.parallelism.schedule_times;
    shape.transfer_time = given.transfer_ms;
    double kept = 0, all = 0;
    for (std::int64_t rank = 0; rank < shape.ranks; ++rank) {
        StageTimes times{0, 0, 0};
        RankClass scratch;
        scratch.pp_index = rank;
        const RankLayout layout = lay_out_rank(plan, mesh, shape, step, layers, scratch);
        for (const LaidChunk& chunk : layout.chunks) {
            for (const LaidLayer& layer : chunk.layers) {
                times.forward += matrix_flops(layer.lowered->forward);
                times.input += matrix_flops(layer.lowered->backward_input);
                times.weight += matrix_flops(layer.lowered->backward_weight);
                for (const Slot& slot : layer.lowered->slots) {
                    if (slot.space != Space::activation) continue;
                    if (slot.born == Phase::forward) all += static_cast<double>(slot.bytes);
                    if (slot.dies == Phase::backward_weight) kept += static_cast<double>(slot.bytes);
                }
            }
        }
        if (given.forward_ms > 0) times = {given.forward_ms, given.input_ms, given.weight_ms};
        constexpr double kLeast = 1e-9;  // a stage with only the embedding has no GEMMs
        shape.times.push_back(
            {std::max(times.forward, kLeast), std::max(times.input, kLeast), std::max(times.weight, kLeast)});
    }
    shape.activation_after_input = all > 0 ? std::min(1.0, kept / all) : 1.0;
}

/// The cache may be null. With one, memory is not measured.
Program lower_with(const Plan& plan, StepKind step, LayerCache* cache) {
    Program program{.plan = std::make_shared<const Plan>(plan), .mesh = std::make_shared<const Mesh>(plan)};
    const Mesh& mesh = *program.mesh;
    LayerLibrary layers(plan, sharding_rules(plan, mesh, 0), cache);
    BodyLibrary bodies(program, cache);
    ScheduleShape shape = schedule_shape(plan);
    if (plan.parallelism.data_parallel == DataParallel::dp) {
        lower_replicas(program, shape, layers, bodies);
        return program;
    }
    if (row_of(shape.schedule).depends_on_times()) estimate_times(plan, mesh, step, layers, shape);
    const VocabularyParallel vocabulary = plan.parallelism.vocabulary_parallel;
    std::vector<std::vector<ComputeTask>> orders =
        vocabulary == VocabularyParallel::none ? compute_orders(shape)
                                               : vocabulary_orders(vocabulary, shape.ranks, shape.micro_batches);
    const bool fuses = fuses_transfers(plan.parallelism.schedule, plan.implementation);
    if (shape.chunks > 1 && fuses && !plan.parallelism.overlaps_experts) {
        for (std::vector<ComputeTask>& order : orders) join_pairs(order);
    }
    const TransferRules rules{.posts_receives_ahead = !fuses,
                              .gradient_from_forward = plan.parallelism.vocabulary_gradient_from_forward()};
    const TaskTimeline timeline(shape, orders, rules);
    for (std::int64_t rank = 0; rank < shape.ranks; ++rank) {
        RankClass result;
        result.name = "stage " + std::to_string(rank);
        result.pp_index = rank;
        const RankLayout layout = lay_out_rank(plan, mesh, shape, step, layers, result);
        StageLists lists;
        const std::vector<ComputeTask>& order = orders[static_cast<std::size_t>(rank)];
        make_lists({program, layout, bodies, result, lists}, shape, order);
        StageActions(order, lists, shape, timeline, rules, result).list();
        if (cache == nullptr) measure_memory(program, layout, bodies, result);
        program.classes.push_back(std::move(result));
    }
    return program;
}

}  // namespace

Program lower(const Plan& plan, StepKind step) {
    return lower_with(plan, step, nullptr);
}

Program lower_without_memory(const Plan& plan, LayerCache& cache) {
    return lower_with(plan, StepKind::steady, &cache);
}

}  // namespace orrery::program
