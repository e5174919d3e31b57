// The plan that a choice stands for.
#include <algorithm>
#include <string>
#include <utility>

#include "sim/planner/candidates.h"
#include "sim/program/mesh.h"
#include "sim/program/schedule.h"

namespace orrery::sim {

using program::DataParallel;
using program::EndWeights;
using program::Parallelism;
using program::Plan;
using program::Recompute;
using program::Schedule;

namespace {

std::string name_of_plan(const Plan& plan, const Choice& choice) {
    const EndWeights ends = choice.ends;
    const Parallelism& p = plan.parallelism;
    const program::MemorySavings& memory = plan.training.memory;
    std::string name =
        plan.model.name + "-dp" + std::to_string(p.dp) + "-tp" + std::to_string(p.tp) + "-pp" + std::to_string(p.pp);
    if (p.cp > 1) name += "-cp" + std::to_string(p.cp);
    if (p.ep > 1) name += "-ep" + std::to_string(p.ep);
    if (p.etp > 1) name += "-etp" + std::to_string(p.etp);
    if (p.overlaps_experts) name += "-overlap";
    if (p.sequence_parallel) name += "-sp";
    if (p.data_parallel != DataParallel::ddp) name += "-" + name_of(p.data_parallel);
    if (p.dp_shard > 0) name += "-shard" + std::to_string(p.dp_shard);
    if (!p.reshard_after_forward) name += "-keep";
    if (p.order == kStagesBeforeReplicas) name += "-ppdp";
    if (p.pp > 1) name += "-" + name_of(p.schedule);
    if (row_of(p.schedule).chunks == program::ScheduleRow::kAnyChunks) name += "-v" + std::to_string(p.chunks);
    if (p.spreads_vocabulary()) name += "-" + name_of(p.vocabulary_parallel);
    if (ends != EndWeights()) name += "-e" + std::to_string(ends.embedding) + "h" + std::to_string(ends.head);
    if (memory.recompute != Recompute::none) name += "-" + name_of(memory.recompute);
    if (choice.recompute_parts != 0) {
        for (const std::string& part : memory.recompute_parts) name += "-" + part;
    }
    if (memory.recompute_layers > 0) name += std::to_string(memory.recompute_layers);
    if (memory.offload_layers > 0) name += "-offload" + std::to_string(memory.offload_layers);
    if (choice.sharding.offload != Offload::none) name += "-host-" + std::string(name_of(choice.sharding.offload));
    return name + "-mb" + std::to_string(plan.training.micro_batch_size);
}

}  // namespace

std::vector<std::string> selective_parts(const PlanRequest& request) {
    if (!request.training.memory.recompute_parts.empty()) return request.training.memory.recompute_parts;
    std::vector<std::string> parts{"norm", "activation"};
    if (!request.implementation.kernels.fused_attention) parts.emplace_back("attention_core");
    const models::Support& supports = request.implementation.supports;
    if (supports.source.empty()) return parts;
    const std::vector<std::string>& had = supports.recompute_parts;
    std::erase_if(parts, [&](const std::string& part) { return !models::Support::lists(had, part); });
    return parts.empty() ? had : parts;
}

program::ContextParallel context_parallel_of(const PlanRequest& request) {
    if (!request.implementation.kernels.fused_attention) return program::ContextParallel::ulysses;
    const models::ModelSpec& model = request.model;
    const bool windowed = model.sliding_window > 0 && model.sliding_window < request.training.sequence_length;
    return windowed ? program::ContextParallel::all_gather : program::ContextParallel::ring;
}

std::vector<std::string> parts_of(PartSet set) {
    std::vector<std::string> parts;
    for (int part = 0; part < models::kBlockParts; ++part) {
        if ((set >> part & 1) != 0) parts.emplace_back(models::name_of(static_cast<models::BlockPart>(part)));
    }
    return parts;
}

std::vector<std::int64_t> stage_layers_of(const PlanRequest& request, const Choice& choice) {
    const program::ScheduleShape shape{.schedule = choice.schedule, .ranks = choice.pp, .chunks = choice.chunks};
    const std::int64_t layers = request.model.layers, stages = program::virtual_stages(shape);
    if (std::ssize(request.stage_layers) == stages) return request.stage_layers;
    if (choice.ends != EndWeights()) return program::balanced_stages(layers, shape, choice.ends);
    return stages > layers ? std::vector<std::int64_t>() : program::even_stages(layers, stages);
}

std::int64_t micro_batches_of(const PlanRequest& request, const Choice& choice) {
    return request.training.global_batch_size / (choice.dp * choice.micro_batch);
}

std::int64_t copies_of(const Choice& choice) {
    return choice.pp > 1 ? row_of(choice.schedule).model_copies() : 1;
}

bool reduces_each_micro_batch(DataParallel kind, Schedule schedule) {
    return row_of(kind).shards_gradients && !row_of(schedule).splits_backward();
}

Parallelism mesh_of(const PlanRequest& request, const Choice& choice) {
    Parallelism p;
    p.dp = choice.dp;
    p.tp = choice.tp;
    p.pp = choice.pp;
    p.cp = choice.cp;
    p.ep = choice.ep;
    p.etp = choice.etp;
    p.overlaps_experts = choice.overlaps_experts;
    p.sequence_parallel = choice.sequence_parallel;
    if (choice.cp > 1) p.context_parallel = context_parallel_of(request);
    p.schedule = choice.schedule;
    p.chunks = choice.chunks;
    p.vocabulary_parallel = choice.vocabulary;
    p.data_parallel = choice.sharding.data_parallel;
    p.dp_shard = choice.sharding.dp_shard;
    p.reshard_after_forward = choice.sharding.reshards;
    if (choice.sharding.pp_before_dp) p.order = kStagesBeforeReplicas;
    p.reduces_every_micro_batch = reduces_each_micro_batch(p.data_parallel, p.schedule);
    return p;
}

Parallelism parallelism_of(const PlanRequest& request, const Choice& choice) {
    Parallelism p = mesh_of(request, choice);
    p.stage_layers = stage_layers_of(request, choice);
    return p;
}

program::Plan plan_of(const PlanRequest& request, const Choice& choice) {
    Plan plan{.model = request.model,
              .cluster = request.cluster,
              .implementation = request.implementation,
              .parallelism = parallelism_of(request, choice),
              .training = request.training,
              .rates = request.rates,
              .origins = request.origins};
    const Parallelism& p = plan.parallelism;
    if (p.overlaps_experts) plan.origins.emplace("/parallelism/overlaps_experts", "planner");
    plan.training.micro_batch_size = choice.micro_batch;
    program::MemorySavings& memory = plan.training.memory;
    memory.recompute = choice.recompute;
    memory.recompute_layers = -1;
    memory.recompute_parts.clear();
    if (choice.recompute == Recompute::selective) {
        memory.recompute_parts =
            choice.recompute_parts == 0 ? selective_parts(request) : parts_of(choice.recompute_parts);
    }
    const std::int64_t largest_chunk =
        p.stage_layers.empty() ? 0 : *std::max_element(p.stage_layers.begin(), p.stage_layers.end());
    if (choice.recompute == Recompute::full && choice.recompute_layers < largest_chunk) {
        memory.recompute_layers = choice.recompute_layers;
    }
    memory.offload_layers = choice.offload_layers < 0 ? largest_chunk : std::min(choice.offload_layers, largest_chunk);
    memory.offload_parameters = choice.sharding.offload == Offload::parameters;
    memory.offload_optimizer = memory.offload_parameters || choice.sharding.offload == Offload::optimizer;
    plan.name = name_of_plan(plan, choice);
    return plan;
}

}  // namespace orrery::sim
