// The plans that must all train the same model to the same losses.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "sim/program/plan.h"

namespace orrery::parity {

/// The settings in which plans differ; model and training settings are in make_plan().
struct Shape {
    std::string name;
    std::int64_t dp = 1, tp = 1, pp = 1;
    bool sequence_parallel = false;
    program::Schedule schedule = program::Schedule::one_f_one_b;
    std::int64_t micro_batch_size = 1;
    std::vector<std::int64_t> stage_layers;  // empty: even
    std::string order;                       // of the mesh; empty: tp fastest
    std::int64_t chunks = 1;                 // of each pipeline rank
    program::MemorySavings memory;
    program::DataParallel data_parallel = program::DataParallel::ddp;
    std::int64_t dp_shard = 0;
    bool reshard_after_forward = true;
    std::int64_t cp = 1;
    program::ContextParallel context_parallel = program::ContextParallel::ring;
    std::int64_t ep = 1, etp = 1;  // models with experts
    bool accumulates = false;      // zero2, zero3: reduce gradients after the last micro-batch only
    void (*adjust)(models::Implementation&) = nullptr;  // changes the implementation `orrery`
    const char* precision = "fp32";
    bool reduces_always = false;  // reduce gradients after every micro-batch, also with ddp, zero1 and `accumulates`
    program::VocabularyParallel vocabulary_parallel = program::VocabularyParallel::none;
    bool overlaps_experts = false;
};

struct Case {
    std::string model;  // a name that model_named() accepts
    Shape shape;
    friend std::ostream& operator<<(std::ostream& out, const Case& one) {
        return out << one.model << " " << one.shape.name;
    }
};

/// tiny-gpt, tiny-llama, and variants named after their difference or, for experts, after the model whose routing they
/// have. "-clipped" models are trained with gradient clipping, "-adam" and "-sgd" with these optimizers instead of
/// AdamW, "-moments" with AdamW's moments in bf16, "-dropout" models with dropout. AdamW is invariant under a constant
/// factor on gradients, so a wrong norm only shows in "-clipped-sgd".
[[nodiscard]] const std::vector<const char*>& model_names();
[[nodiscard]] models::ModelSpec model_named(const std::string& name);

[[nodiscard]] program::Plan make_plan(const Case& one);
/// The same model and training on one rank, in micro-batches of one sequence.
[[nodiscard]] program::Plan reference_plan(const std::string& model);

/// In attention_plans.cpp: models with other kinds of attention, and their plans. take_attention_of() changes `model`
/// and returns true if `name` is one of them.
[[nodiscard]] std::vector<const char*> attention_models();
[[nodiscard]] bool take_attention_of(const std::string& name, models::ModelSpec& model);
[[nodiscard]] std::vector<Case> attention_cases();

[[nodiscard]] const std::vector<Case>& all_cases();
/// The cases of data_parallel_plans.cpp: placement and reduction of gradients and parameters.
[[nodiscard]] const std::vector<Case>& data_parallel_cases();
/// The cases whose vocabulary is sharded over the stages.
[[nodiscard]] std::vector<Case> vocabulary_cases();
/// The cases whose experts are sharded over other ranks than the rest of the model.
[[nodiscard]] std::vector<Case> expert_mesh_cases();
/// Cases that are run twice and must give bitwise equal results.
[[nodiscard]] const std::vector<Case>& repeated_cases();
/// In dropout_plans.cpp: models trained with dropout, and their plans.
[[nodiscard]] std::vector<const char*> dropout_models();
[[nodiscard]] inline bool trains_with_dropout(const std::string& model) {
    return model.ends_with("-dropout");
}
[[nodiscard]] std::vector<Case> dropout_cases();

}  // namespace orrery::parity
