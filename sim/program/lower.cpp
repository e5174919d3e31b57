// The lowering: plan -> Program. For each pipeline rank it lays out what the rank holds (rank_layout), writes the
// segment lists of its passes, transfers and step end (stage_lists, step_end_lists), and lists its actions in the order
// of the schedule (stage_actions). Bodies are written once per kind of layer.
#include <algorithm>

#include "core/error.h"
#include "core/units.h"
#include "sim/program/lowering.h"
#include "sim/program/rank_layout.h"
#include "sim/program/stage_actions.h"
#include "sim/program/stage_lists.h"

namespace orrery::program {
namespace {

using models::LayerKind;

double matrix_flops(const std::vector<models::Step>& steps) {
    double flops = 0;
    for (const models::Step& step : steps) {
        const auto* op = std::get_if<models::Operator>(&step);
        if (op == nullptr) continue;
        const bool product = op->is_matmul() || op->is_expert_matmul();
        if (product || op->is_attention() || op->is_attention_product()) flops += op->flops;
    }
    return flops;
}

/// Megatron's interleaved schedule sends and receives after each pair of a forward and a backward in one call: the pair
/// is a block. Where all forwards come first there is none, and the first backward may need what the last one sends.
void join_pairs(std::vector<ComputeTask>& order) {
    using Kind = ComputeTask::Kind;
    std::vector<std::size_t> second;  // of the pairs
    for (std::size_t t = 1; t < order.size(); ++t) {
        if (order[t - 1].kind == Kind::forward && order[t].kind == Kind::backward) second.push_back(t);
    }
    if (second.size() < 2) return;
    for (const std::size_t t : second) order[t].overlaps_previous = true;
}

class Lowering {
  public:
    Lowering(const Plan& plan, StepKind step) : plan_(plan), step_(step), bodies_(program_) {
        program_.plan = std::make_shared<const Plan>(plan);
        program_.mesh = std::make_shared<const Mesh>(plan);
        const ShardingRules rules = sharding_rules(plan, *program_.mesh, 0);
        forms_ = std::make_unique<FormLibrary>(plan, rules);
        shape_ = schedule_shape(plan);
        if (row_of(shape_.schedule).depends_on_times()) estimate_times();
    }

    Program run() {
        if (plan_.parallelism.data_parallel == DataParallel::dp) {
            lower_replicas(program_, shape_, *forms_, bodies_);
            return std::move(program_);
        }
        const VocabularyParallel vocabulary = plan_.parallelism.vocabulary_parallel;
        std::vector<std::vector<ComputeTask>> orders =
            vocabulary == VocabularyParallel::none ? compute_orders(shape_)
                                                   : vocabulary_orders(vocabulary, shape_.ranks, shape_.micro_batches);
        if (shape_.chunks > 1 && fuses_transfers(plan_)) {
            for (std::vector<ComputeTask>& order : orders) join_pairs(order);
        }
        const TransferRules rules{.posts_receives_ahead = !fuses_transfers(plan_),
                                  .gradient_from_forward = plan_.parallelism.vocabulary_gradient_from_forward()};
        const TaskTimeline timeline(shape_, orders, rules);
        for (std::int64_t rank = 0; rank < shape_.ranks; ++rank) {
            RankClass result;
            result.name = "stage " + std::to_string(rank);
            result.pp_index = rank;
            RankLayout layout = lay_out_rank(plan_, *program_.mesh, shape_, step_, *forms_, result);
            const StageLists lists = make_lists(program_, shape_, layout, bodies_, result);
            StageActions(orders[static_cast<std::size_t>(rank)], lists, shape_, timeline, rules, result).list();
            measure_memory(program_, layout, bodies_, result);
            program_.classes.push_back(std::move(result));
        }
        return std::move(program_);
    }

  private:
    /// The automatic schedulers plan with durations. Without profiled ones, those of the matrix products' arithmetic:
    /// the Program knows no clock.
    void estimate_times() {
        const ScheduleTimes& given = plan_.parallelism.schedule_times;
        shape_.transfer_time = given.transfer_ms;
        double kept = 0, all = 0;
        for (std::int64_t rank = 0; rank < shape_.ranks; ++rank) {
            StageTimes times{0, 0, 0};
            RankClass scratch;
            scratch.pp_index = rank;
            const RankLayout layout = lay_out_rank(plan_, *program_.mesh, shape_, step_, *forms_, scratch);
            for (const LaidChunk& chunk : layout.chunks) {
                for (const LaidLayer& layer : chunk.layers) {
                    times.forward += matrix_flops(layer.form->forward);
                    times.input += matrix_flops(layer.form->backward_input);
                    times.weight += matrix_flops(layer.form->backward_weight);
                    for (std::size_t slot = 0; slot < layer.form->slots.size(); ++slot) {
                        if (layer.form->places[slot].space != Space::activation) continue;
                        const auto bytes = static_cast<double>(layer.form->slots[slot].bytes());
                        if (layer.form->lives[slot].born == Phase::forward) all += bytes;
                        if (layer.form->lives[slot].dies == Phase::backward_weight) kept += bytes;
                    }
                }
            }
            if (given.forward_ms > 0) times = {given.forward_ms, given.input_ms, given.weight_ms};
            constexpr double kLeast = 1e-9;  // a stage of the embedding alone has no products
            shape_.times.push_back(
                {std::max(times.forward, kLeast), std::max(times.input, kLeast), std::max(times.weight, kLeast)});
        }
        shape_.activation_after_input = all > 0 ? std::min(1.0, kept / all) : 1.0;
    }

    const Plan& plan_;
    StepKind step_;
    ScheduleShape shape_;
    Program program_;
    std::unique_ptr<FormLibrary> forms_;
    BodyLibrary bodies_;
};

}  // namespace

bool fuses_transfers(const Plan& plan) {
    const ScheduleRow& row = row_of(plan.parallelism.schedule);
    if (row.splits_backward()) return false;
    const models::PipelineChoices& choices = plan.implementation.pipeline;
    return !(row.chunks == 1 ? choices.posts_receives_ahead : choices.posts_interleaved_receives_ahead);
}

Program lower(const Plan& plan, StepKind step) {
    return Lowering(plan, step).run();
}

}  // namespace orrery::program
