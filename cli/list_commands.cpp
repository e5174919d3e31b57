#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "core/error.h"
#include "models/model_spec.h"
#include "reports/table.h"
#include "topologies/cluster_spec.h"

namespace orrery::cli {
namespace {

using nlohmann::ordered_json;

struct ListOptions {
    std::string name;
    bool json = false;
};

int list_models(const ListOptions& options) {
    if (!options.name.empty()) {  // one model in full
        print(models::to_json_text(models::load_model(options.name)));
        return kExitDone;
    }
    ordered_json json{{"schema", "orrery.models/1"}, {"models", ordered_json::array()}};
    reports::Table table({{"model", reports::Align::left},
                          {"family", reports::Align::left},
                          {"layers"},
                          {"hidden"},
                          {"heads"},
                          {"kv heads"},
                          {"ffn"},
                          {"vocab"},
                          {"parameters (B)"}});
    for (const std::string& name : models::zoo_names()) {
        const models::ModelSpec model = models::load_model(name);
        const std::int64_t parameters = models::parameter_count(model);
        json["models"].push_back({{"name", name}, {"family", model.family}, {"parameters", parameters}});
        table.add_row({name, model.family, std::to_string(model.layers), std::to_string(model.hidden),
                       std::to_string(model.heads), std::to_string(model.kv_heads), std::to_string(model.ffn_hidden),
                       std::to_string(model.vocab), fmt::format("{:.3f}", static_cast<double>(parameters) / 1e9)});
    }
    print(options.json ? json.dump(2) + "\n" : table.to_text());
    return kExitDone;
}

int list_clusters(const ListOptions& options) {
    if (!options.name.empty()) {
        print(topologies::to_json_text(topologies::load_cluster(options.name, 1)));
        return kExitDone;
    }
    ordered_json json{{"schema", "orrery.clusters/1"}, {"clusters", ordered_json::array()}};
    reports::Table table({{"cluster", reports::Align::left},
                          {"device", reports::Align::left},
                          {"a node"},
                          {"memory (GiB)"},
                          {"inside a node (GB/s)"},
                          {"NIC (GB/s)"}});
    bool measured = true;
    for (const std::string& name : topologies::preset_names()) {
        std::error_code ignored;
        if (name == "local" && !std::filesystem::exists(topologies::local_profile_path(), ignored)) {
            measured = false;
            continue;
        }
        const topologies::ClusterSpec cluster = topologies::load_cluster(name, 1);
        json["clusters"].push_back(
            {{"name", name}, {"device", cluster.device.name}, {"devices_per_node", cluster.devices_per_node}});
        table.add_row({name, cluster.device.name, std::to_string(cluster.devices_per_node),
                       fmt::format("{:.1f}", cluster.device.memory_capacity_gib.value),
                       fmt::format("{:.0f}", cluster.intra_node.bandwidth_gb_per_s_per_direction.value),
                       fmt::format("{:.0f}", cluster.nic.bandwidth_gb_per_s_per_direction.value)});
    }
    if (options.json) {
        print(json.dump(2) + "\n");
        return kExitDone;
    }
    print(table.to_text());
    print(std::string("Any number of nodes; bandwidths are per direction and device. `local` is this machine") +
          (measured ? ".\n" : ", once `orrery calibrate` has measured it.\n"));
    return kExitDone;
}

void add_list(CLI::App& app, Action& chosen, const char* name, const char* what, const char* example,
              int (*list)(const ListOptions&)) {
    auto options = std::make_shared<ListOptions>();
    CLI::App* command = app.add_subcommand(name, what);
    command->add_option("name", options->name, "Show this one in full");
    command->add_flag("--json", options->json, "Print JSON");
    command->footer(std::string("Example: ") + example);
    command->callback([options, list, &chosen] { chosen = [options, list] { return list(*options); }; });
}

}  // namespace

void add_models(CLI::App& app, Action& chosen) {
    add_list(app, chosen, "models", "List the models that are known by name", "orrery models llama3-70b", list_models);
}

void add_clusters(CLI::App& app, Action& chosen) {
    add_list(app, chosen, "clusters", "List the clusters that are known by name", "orrery clusters dgx-h100",
             list_clusters);
}

}  // namespace orrery::cli
