// Small plans built in memory.
#pragma once

#include <string>
#include <vector>

#include "models/implementation.h"
#include "models/model_spec.h"
#include "sim/program/program.h"

namespace orrery::program::samples {

struct Sample {
    std::string model = "tiny-gpt";
    std::int64_t dp = 1, tp = 1, pp = 1;
    bool sequence_parallel = false;
    Schedule schedule = Schedule::one_f_one_b;
    std::int64_t micro_batches = 4;
    std::vector<std::int64_t> stage_layers;  // empty: as even as possible
    bool tied = false;
    bool qk_norm = false;
    std::string implementation = "orrery";
    bool bf16 = false;
    std::int64_t cp = 1, ep = 1, etp = 1;
    std::int64_t chunks = 1;
    DataParallel data_parallel = DataParallel::ddp;
    ContextParallel context_parallel = ContextParallel::ring;
    std::int64_t sequence_length = 16, micro_batch_size = 2;
    double dropout = 0;
    void (*adjust)(models::ModelSpec&) = nullptr;  // changes the model
};

inline Plan make_plan(const Sample& sample) {
    Plan plan;
    plan.name = "sample";
    plan.model = models::load_model(sample.model);
    plan.model.tied_embeddings = sample.tied;
    plan.model.qk_norm = sample.qk_norm;
    if (sample.adjust != nullptr) sample.adjust(plan.model);
    plan.implementation = models::load_implementation(sample.implementation);
    plan.implementation.data_parallel.bucket_bytes = 100'000;  // several buckets, which span layers
    plan.implementation.data_parallel.first_bucket_bytes = 10'000;
    Parallelism& mesh = plan.parallelism;
    mesh = {.dp = sample.dp,
            .tp = sample.tp,
            .pp = sample.pp,
            .cp = sample.cp,
            .ep = sample.ep,
            .etp = sample.etp,
            .sequence_parallel = sample.sequence_parallel,
            .schedule = sample.schedule,
            .chunks = sample.chunks,
            .stage_layers = sample.stage_layers,
            .data_parallel = sample.data_parallel,
            .reduces_every_micro_batch = sample.data_parallel >= DataParallel::zero2};
    mesh.context_parallel = sample.context_parallel;
    if (mesh.stage_layers.empty()) mesh.stage_layers = even_stages(plan.model.layers, mesh.virtual_stages());
    plan.training.sequence_length = sample.sequence_length;
    plan.training.micro_batch_size = sample.micro_batch_size;
    plan.training.dropout = sample.dropout;
    plan.training.global_batch_size = sample.dp * plan.training.micro_batch_size * sample.micro_batches;
    if (sample.bf16) {
        plan.training.precision = {.parameter = DType::bf16,
                                   .activation = DType::bf16,
                                   .gradient = DType::fp32,
                                   .reduction = DType::fp32,
                                   .compute = DType::bf16,
                                   .master_weights = true};
    }
    return plan;
}

inline Program make_program(const Sample& sample) {
    return lower(make_plan(sample));
}

}  // namespace orrery::program::samples
