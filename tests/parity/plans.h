// The plans that must all train the same model to the same losses.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "sim/program/plan.h"

namespace orrery::parity {

/// A plan's shape, beside a model and the training settings that all share.
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
    std::int64_t ep = 1, etp = 1;                       // models with experts
    bool accumulates = false;                           // zero2, zero3: gradients cross with the last micro-batch only
    void (*adjust)(models::Implementation&) = nullptr;  // of orrery's
    const char* precision = "fp32";
    bool reduces_always = false;  // ddp, zero1, and what accumulates: gradients cross after every micro-batch
    program::VocabularyParallel vocabulary_parallel = program::VocabularyParallel::none;
};

struct Case {
    std::string model;  // a name that model_named knows
    Shape shape;
    friend std::ostream& operator<<(std::ostream& out, const Case& one) {
        return out << one.model << " " << one.shape.name;
    }
};

/// tiny-gpt, tiny-llama, and variants of them that are named after their difference, or, with experts, after the model
/// whose routing they have. Of those called "-clipped",
/// training clips gradients; "-adam" and "-sgd" have other optimizers than AdamW. AdamW forgets a constant factor, by
/// which a wrong norm scales: "-clipped-sgd". Those called "-dropout" are trained with it.
[[nodiscard]] const std::vector<const char*>& model_names();
[[nodiscard]] models::ModelSpec model_named(const std::string& name);

[[nodiscard]] program::Plan make_plan(const Case& one);
/// The same model and training on one rank, in micro-batches of one sequence.
[[nodiscard]] program::Plan reference_plan(const std::string& model);

/// In attention_plans.cpp: what these models' attention is made of, and the plans for it.
[[nodiscard]] std::vector<const char*> attention_models();
[[nodiscard]] bool take_attention_of(const std::string& name, models::ModelSpec& model);
[[nodiscard]] std::vector<Case> attention_cases();

[[nodiscard]] const std::vector<Case>& all_cases();
/// Of these, what concerns only how gradients and parameters lie and cross ranks.
[[nodiscard]] const std::vector<Case>& data_parallel_cases();
/// Of them, those whose vocabulary is cut over the stages.
[[nodiscard]] std::vector<Case> vocabulary_cases();
/// Of them, those whose experts lie otherwise than the rest of the model: spread and cut, or cut over other ranks.
[[nodiscard]] std::vector<Case> expert_mesh_cases();
/// Those which are run twice and must give the same bits.
[[nodiscard]] const std::vector<Case>& repeated_cases();
/// In dropout_plans.cpp: models that are trained with dropout, and their plans.
[[nodiscard]] std::vector<const char*> dropout_models();
[[nodiscard]] inline bool trains_with_dropout(const std::string& model) {
    return model.ends_with("-dropout");
}
[[nodiscard]] std::vector<Case> dropout_cases();

}  // namespace orrery::parity
