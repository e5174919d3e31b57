#include "tests/fuzz/targets.h"

#include "core/error.h"
#include "exec/checkpoint/manifest.h"
#include "models/model_checks.h"
#include "models/model_spec.h"
#include "reports/model_text.h"
#include "reports/page/report.h"
#include "reports/summary.h"
#include "sim/engine/simulate.h"
#include "sim/planner/planner.h"
#include "sim/program/durations.h"
#include "sim/program/plan.h"
#include "sim/program/rates.h"
#include "sim/program/run_record.h"
#include "sim/published/plan_of.h"
#include "sim/published/published_collectives.h"
#include "sim/published/published_run.h"
#include "topologies/importers/hostlist.h"
#include "topologies/importers/ibnetdiscover.h"
#include "topologies/importers/import_file.h"
#include "topologies/importers/nccl_graph.h"
#include "topologies/importers/slurm_topology.h"

namespace orrery::fuzz {
namespace {

using namespace topologies;

const std::string kFile = "fuzz";

/// Makes a page of the result like `orrery report`.
void report(const std::string& text) {
    const reports::ReportPage page = reports::report_of(
        {reports::result_from_json_text(text, kFile)},
        {.title = "", .version = "", .date_after = [](const std::string& start, double) { return start; }});
    (void)reports::page_html(page);  // fails on NaN
    (void)reports::page_markdown(page);
    (void)reports::page_csv(page);
}

/// Imports the file like `orrery topo import`.
void import_any(const std::string& text) {
    const ForeignFile file = foreign_from_text(text, kFile);
    if (file.graphs) return;
    Notes notes;
    const ClusterSpec cluster = import_cluster({file}, file.fabric ? "dgx-h100" : "",
                                               {file.node ? "h100-sxm-80gb" : "", "", NvlinkChoice::by_file}, notes);
    ORRERY_CHECK(cluster_from_json_text(to_json_text(cluster), kFile) == cluster,
                 "an imported cluster changes when it is written and read again");
}

/// Predicts a step like the commands do, in seconds even for a step with many micro-batches.
void predict(const program::Plan& plan) {
    const Cluster cluster(plan.cluster);
    const auto shorter = sim::shorter_steps(plan);
    const program::Program program =
        program::lower(shorter ? sim::with_micro_batches(plan, shorter->more) : plan, program::StepKind::steady);
    program::validate(program);
    const sim::Evaluation evaluation = shorter ? sim::evaluate_from(*shorter, plan, cluster, {.derivatives = true})
                                               : sim::evaluate(program, cluster, {.derivatives = true});
    (void)to_json_text(evaluation.record, program);  // fails on NaN
    (void)reports::summary_text(program, evaluation.record, reports::Stages::extremes);
}

/// Reads and predicts a plan like `orrery simulate`.
void simulate(const std::string& text) {
    const program::Plan plan = program::plan_from_json_text(text, kFile);
    predict(plan);
    const program::Plan again = program::plan_from_json_text(to_json_text(plan), kFile);
    ORRERY_CHECK(to_json_text(again) == to_json_text(plan), "a plan changes when it is written and read again");
}

/// Eight ranks, parallel along every axis except sequences and experts.
program::Plan small_plan(const models::ModelSpec& model, const ClusterSpec& cluster) {
    program::Plan plan;
    plan.name = "small";
    plan.model = model;
    plan.implementation = models::load_implementation("orrery");
    plan.cluster = cluster;
    plan.parallelism = {.dp = 2, .tp = 2, .pp = 2, .sequence_parallel = true};
    plan.parallelism.stage_layers = program::even_stages(model.layers, 2);
    plan.training.sequence_length = 16;
    plan.training.global_batch_size = 8;
    program::check_plan(plan, kFile);
    return plan;
}

void predict_on_cluster(const std::string& text) {
    const ClusterSpec cluster = cluster_from_json_text(text, kFile);
    predict(small_plan(models::load_model("tiny-gpt"), cluster));
}

void predict_model(const std::string& text) {
    const models::ModelSpec model = models::hugging_face_from_text(text, "folder/fuzz.json");
    predict(small_plan(model, load_cluster("dgx-h100", 8)));
}

/// Reads a Hugging Face config like `orrery models` and `orrery plan`.
void describe(const std::string& text) {
    const models::ModelSpec model = models::hugging_face_from_text(text, "folder/fuzz.json");
    ORRERY_CHECK(models::model_from_json_text(to_json_text(model), kFile) == model,
                 "a model changes when it is written and read again");
    (void)reports::model_text(model);
}

/// Reads a record of the plan in tests/fuzz/seeds/one.plan.json.
void read_record(const std::string& text) {
    static const program::Program program = [] {
        program::Plan plan;
        plan.name = "one";
        plan.model = models::load_model("tiny-gpt");
        plan.implementation = models::load_implementation("orrery");
        plan.cluster = load_cluster("dgx-h100", 2);
        plan.parallelism = {.dp = 2};
        plan.parallelism.stage_layers = {plan.model.layers};
        plan.training.sequence_length = 16;
        plan.training.global_batch_size = 2;
        return program::lower(plan);
    }();
    const program::RunRecord record = program::run_record_from_json_text(text, kFile, program);
    (void)to_json_text(record, program);
    const program::Durations durations = program::durations_of(program, record, kFile, 1);
    (void)to_json_text(sim::replay(program, durations, {.record_spans = true}), program);
}

void read_collectives(const std::string& text) {
    for (const published::PublishedCollective& row : published::published_collectives_from_text(text, kFile)) {
        (void)published::setup_of(row);
    }
}

void read_published(const std::string& text) {
    for (const published::PublishedRow& row : published::published_rows_from_json_text(text, kFile)) {
        if (!row.refused.empty()) continue;
        const published::PlanOfRun translated = published::plan_of(row.run);
        if (translated.plan) program::check_plan(*translated.plan, kFile);
    }
}

}  // namespace

const std::vector<Target>& targets() {
    static const std::vector<Target> all{
        {"nccl_topology",
         [](const std::string& text) { (void)describe_node(nccl_topology_from_text(text, kFile), kFile); }},
        {"nccl_graph", [](const std::string& text) { (void)nccl_graphs_from_text(text, kFile); }},
        {"smi_topo", [](const std::string& text) { (void)describe_node(smi_topo_from_text(text, kFile), kFile); }},
        {"slurm_conf", [](const std::string& text) { (void)tiers_of(slurm_conf_from_text(text, kFile)); }},
        {"slurm_yaml", [](const std::string& text) { (void)slurm_yaml_from_text(text, kFile); }},
        {"topograph", [](const std::string& text) { (void)tiers_of(topograph_from_text(text, kFile)); }},
        {"ibnetdiscover",
         [](const std::string& text) { (void)tiers_of(fabric_of(ibnetdiscover_from_text(text, kFile))); }},
        {"hostlist", [](const std::string& text) { (void)expand_hostlist(text, kFile, 1 << 16); }},
        {"import", import_any},
        {"cluster", [](const std::string& text) { (void)cluster_from_json_text(text, kFile); }},
        {"plan", [](const std::string& text) { (void)program::plan_from_json_text(text, kFile); }},
        {"model", [](const std::string& text) { (void)models::model_from_json_text(text, kFile); }},
        {"published_runs", read_published},
        {"simulate", simulate, true},
        {"simulate_cluster", predict_on_cluster, true},
        {"simulate_model", predict_model, true},
        {"hugging_face", describe},
        {"run_record", read_record},
        {"rates", [](const std::string& text) { (void)program::rates_from_json_text(text, kFile); }},
        {"implementation", [](const std::string& text) { (void)models::implementation_from_json_text(text, kFile); }},
        {"collectives", read_collectives},
        {"report", report},
        {"stored_file", [](const std::string& text) { (void)exec::stored_file_from_json_text(text, kFile); }},
    };
    return all;
}

void read_canary(const std::string& text) {
    ORRERY_CHECK(text.substr(0, 3) != "can", "the canary was found");
}

bool run(const Target& target, const std::string& text) {
    try {
        target.read(text);
        return true;
    } catch (const InputError&) {
        return false;
    }
}

Target target_named(const std::string& name) {
    if (name == "canary") return {"canary", read_canary};
    for (const Target& one : targets()) {
        if (name == one.name) return one;
    }
    throw BugError("no fuzz target is called " + name);
}

}  // namespace orrery::fuzz
