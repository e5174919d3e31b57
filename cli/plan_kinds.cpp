#include "cli/plan_kinds.h"

#include <algorithm>
#include <functional>

#include "core/error.h"
#include "sim/program/plan_names.h"
#include "topologies/cluster_spec.h"

namespace orrery::cli {
namespace {

using program::Parallelism;
using program::Plan;

models::ModelSpec model_with_experts() {
    models::ModelSpec model = narrow_model_like(models::load_model("mixtral-8x7b"));
    model.name = "narrow-mixtral";
    return model;
}

/// The kinds of one choice after the other.
class KindList {
  public:
    explicit KindList(std::vector<PlanKind>& kinds) : kinds_(kinds) {
        base_.model = models::load_model("tiny-gpt");
        base_.implementation = models::load_implementation("orrery");
        base_.training.sequence_length = 16;
        base_.training.global_batch_size = 8;
    }

    void choice(const char* name) { choice_ = name; }

    void add(const std::string& value, const std::function<void(Plan&)>& change) {
        Plan plan = base_;
        change(plan);
        finish(value, std::move(plan));
    }

    void add_with_experts(const std::string& value, const std::function<void(Plan&)>& change) {
        Plan plan = base_;
        plan.model = model_with_experts();
        change(plan);
        // Room for all tokens on one rank, since real routers are uneven.
        plan.training.expert_load.largest = static_cast<double>(plan.parallelism.ep);
        finish(value, std::move(plan));
    }

  private:
    void finish(const std::string& value, Plan plan) {
        plan.name = std::string(choice_) + ": " + value;
        Parallelism& parallelism = plan.parallelism;
        plan.cluster = topologies::load_cluster("dgx-b200", parallelism.world_size());
        parallelism.stage_layers = program::even_stages(plan.model.layers, parallelism.virtual_stages());
        program::check_plan(plan, plan.name);
        kinds_.push_back({choice_, value, std::move(plan)});
    }

    std::vector<PlanKind>& kinds_;
    Plan base_;
    const char* choice_ = "";
};

void add_data_parallelism(KindList& kinds) {
    kinds.choice("data parallelism");
    for (const program::DataParallel kind : program::kDataParallelKinds) {
        kinds.add(name_of(kind), [&](Plan& plan) {
            plan.parallelism.dp = 2;
            plan.parallelism.data_parallel = kind;
        });
    }
    kinds.add("zero3 in sets (hsdp)", [](Plan& plan) {
        plan.parallelism.dp = 4;
        plan.parallelism.dp_shard = 2;
        plan.parallelism.data_parallel = program::DataParallel::zero3;
    });
    kinds.add("zero3, parameters stay gathered", [](Plan& plan) {
        plan.parallelism.dp = 2;
        plan.parallelism.data_parallel = program::DataParallel::zero3;
        plan.parallelism.reshard_after_forward = false;
    });
    kinds.add("reductions after each micro-batch", [](Plan& plan) {
        plan.parallelism.dp = 2;
        plan.parallelism.reduces_every_micro_batch = true;
    });
}

void add_tensor_parallelism(KindList& kinds) {
    kinds.choice("tensor parallelism");
    kinds.add("tp", [](Plan& plan) { plan.parallelism.tp = 2; });
    kinds.add("tp, sequence parallelism", [](Plan& plan) {
        plan.parallelism.tp = 2;
        plan.parallelism.sequence_parallel = true;
    });
}

void add_pipelines(KindList& kinds) {
    kinds.choice("schedule");
    for (const program::ScheduleRow& row : program::kScheduleRows) {
        kinds.add(std::string(row.name), [&](Plan& plan) {
            plan.parallelism.pp = 2;
            plan.parallelism.schedule = row.schedule;
            plan.parallelism.chunks = row.fewest_chunks();
        });
    }
    kinds.choice("vocabulary parallelism");
    for (const std::string& name : names_of<program::VocabularyParallel>()) {
        const auto kind = *value_named<program::VocabularyParallel>(name);
        if (kind == program::VocabularyParallel::none) continue;
        kinds.add(name, [&](Plan& plan) {
            plan.parallelism.pp = 2;
            plan.parallelism.vocabulary_parallel = kind;
        });
    }
}

void add_context_parallelism(KindList& kinds) {
    kinds.choice("context parallelism");
    for (const std::string& name : names_of<program::ContextParallel>()) {
        kinds.add(name, [&](Plan& plan) {
            plan.parallelism.cp = 2;
            plan.parallelism.context_parallel = *value_named<program::ContextParallel>(name);
        });
    }
}

void add_expert_parallelism(KindList& kinds) {
    kinds.choice("expert parallelism");
    kinds.add_with_experts("ep", [](Plan& plan) { plan.parallelism.dp = plan.parallelism.ep = 2; });
    kinds.add_with_experts("etp", [](Plan& plan) {
        plan.parallelism.tp = plan.parallelism.etp = 2;
        plan.parallelism.sequence_parallel = true;
    });
    kinds.add_with_experts("ep in a pipeline that overlaps its all-to-all", [](Plan& plan) {
        plan.parallelism.dp = plan.parallelism.ep = plan.parallelism.pp = 2;
        plan.parallelism.schedule = program::Schedule::dualpipe;
        plan.parallelism.chunks = 2;
        plan.parallelism.overlaps_experts = true;
    });
    kinds.add_with_experts("ep, experts with a capacity", [](Plan& plan) {
        plan.parallelism.dp = plan.parallelism.ep = 2;
        plan.training.expert_load.capacity_factor = 1.25;
    });
}

void add_memory_savings(KindList& kinds) {
    using program::Recompute;
    kinds.choice("recomputation");
    kinds.add("full", [](Plan& plan) { plan.training.memory.recompute = Recompute::full; });
    kinds.add("full, inputs of blocks sharded over tp", [](Plan& plan) {
        plan.parallelism.tp = 2;
        plan.training.memory.recompute = Recompute::full;
        plan.training.memory.shards_checkpoints = true;
    });
    for (const std::string& part : program::recomputable_parts()) {
        const bool of_experts = part == "router" || part == "experts" || part == "shared_expert";
        const auto change = [&](Plan& plan) {
            plan.training.memory.recompute = Recompute::selective;
            plan.training.memory.recompute_parts = {part};
            if (part == "shared_expert") plan.model.moe.shared_ffn_hidden = plan.model.moe.expert_ffn_hidden;
        };
        if (of_experts) {
            kinds.add_with_experts(part, change);
        } else {
            kinds.add(part, change);
        }
    }
    kinds.choice("on the host");
    kinds.add("activations", [](Plan& plan) { plan.training.memory.offload_layers = 2; });
    kinds.add("optimizer states", [](Plan& plan) { plan.training.memory.offload_optimizer = true; });
    kinds.add("parameters", [](Plan& plan) {
        plan.parallelism.dp = 2;
        plan.parallelism.data_parallel = program::DataParallel::zero3;
        plan.training.memory.offload_optimizer = plan.training.memory.offload_parameters = true;
    });
}

void add_training(KindList& kinds) {
    kinds.choice("precision");
    for (const std::string& name : program::precision_names()) {
        kinds.add(name,
                  [&](Plan& plan) { plan.training.precision = program::precision_named(name, plan.implementation); });
    }
    kinds.choice("optimizer");
    for (const std::string& name : names_of<program::OptimizerKind>()) {
        kinds.add(name, [&](Plan& plan) { plan.training.optimizer.kind = *value_named<program::OptimizerKind>(name); });
    }
    for (const std::string& name : program::moment_types()) {
        kinds.add("adamw with moments in " + name,
                  [&](Plan& plan) { plan.training.precision.moments = *dtype_named(name); });
    }
    kinds.add("gradients clipped", [](Plan& plan) {
        plan.parallelism.pp = 2;
        plan.training.optimizer.clip_norm = 1;
    });
    kinds.add("gradients clipped, post-validation", [](Plan& plan) {
        plan.parallelism.pp = 2;
        plan.training.optimizer.clip_norm = 1;
        plan.training.optimizer.post_validation = true;
    });
    kinds.choice("dropout");
    kinds.add("0.1", [](Plan& plan) { plan.training.dropout = 0.1; });
}

/// One for each architecture, named after the first model of the zoo that has it.
void add_models(KindList& kinds) {
    kinds.choice("model");
    std::vector<models::ModelSpec> seen;
    for (const std::string& name : models::zoo_names()) {
        models::ModelSpec model = narrow_model_like(models::load_model(name));
        model.name = model.family = "";
        if (std::find(seen.begin(), seen.end(), model) != seen.end()) continue;
        seen.push_back(model);
        kinds.add("like " + name, [&](Plan& plan) { plan.model = narrow_model_like(models::load_model(name)); });
    }
}

}  // namespace

models::ModelSpec narrow_model_like(models::ModelSpec model) {
    const bool all_have_keys = model.kv_heads == model.heads;
    model.layers = 4;
    model.hidden = 64;
    model.heads = 4;
    model.kv_heads = all_have_keys ? 4 : std::min<std::int64_t>(model.kv_heads, 2);
    model.head_dim = 16;
    model.ffn_hidden = 128;
    model.vocab = 128;
    model.max_positions = 128;
    model.norm_epsilon = 1e-5;
    model.rope_theta = 10000;
    model.left_out.clear();
    model.left_out_prediction_layers = 0;
    const auto at_most = [](std::int64_t most, auto&... sizes) { ((sizes = std::min(sizes, most)), ...); };
    models::MixtureOfExperts& moe = model.moe;
    at_most(8, moe.expert_count);
    at_most(2, moe.top_k, moe.layer_interval, moe.expert_groups);
    at_most(1, moe.first_dense_layers, moe.top_k_groups);
    at_most(32, moe.expert_ffn_hidden, moe.shared_ffn_hidden);
    models::LatentAttention& latent = model.latent;
    at_most(32, latent.q_lora_rank);
    at_most(16, latent.kv_lora_rank);
    at_most(8, latent.nope_head_dim, latent.rope_head_dim, latent.v_head_dim);
    at_most(64, model.rope_scaling.original_max_positions);
    return model;
}

std::vector<PlanKind> plan_kinds() {
    std::vector<PlanKind> list;
    KindList kinds(list);
    for (const auto add : {add_data_parallelism, add_tensor_parallelism, add_pipelines, add_context_parallelism,
                           add_expert_parallelism, add_memory_savings, add_training, add_models}) {
        add(kinds);
    }
    return list;
}

}  // namespace orrery::cli
