#include "tests/fuzz/targets.h"

#include "core/error.h"
#include "models/model_spec.h"
#include "sim/program/plan.h"
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

/// What `orrery topo import` does between reading and writing.
void import_any(const std::string& text) {
    const ForeignFile file = foreign_from_text(text, kFile);
    if (file.graphs) return;
    Notes notes;
    const ClusterSpec cluster = import_cluster({file}, file.fabric ? "dgx-h100" : "",
                                               {file.node ? "h100-sxm-80gb" : "", "", NvlinkChoice::by_file}, notes);
    ORRERY_CHECK(cluster_from_json_text(to_json_text(cluster), kFile) == cluster,
                 "an import is not read back as it was");
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
        {"published_runs",
         [](const std::string& text) { (void)published::published_rows_from_json_text(text, kFile); }},
    };
    return all;
}

void read_canary(const std::string& text) {
    ORRERY_CHECK(text.substr(0, 3) != "can", "the canary is found");
}

void run(const Target& target, const std::string& text) {
    try {
        target.read(text);
    } catch (const InputError&) {
        return;  // an answer
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
