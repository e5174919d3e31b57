#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "core/error.h"
#include "models/implementation.h"
#include "models/model_spec.h"
#include "reports/kernel_rates.h"
#include "reports/model_text.h"
#include "reports/table.h"
#include "sim/program/validated.h"
#include "topologies/cluster_spec.h"

namespace orrery::cli {
namespace {

using nlohmann::ordered_json;

struct ListOptions {
    std::string name;
    bool json = false;
    bool kernels = false;  // of a cluster's device
    models::ModelParts parts = models::ModelParts::whole;
};

int list_models(const ListOptions& options) {
    if (!options.name.empty()) {  // one model in full
        const models::ModelSpec model = models::load_model(options.name, options.parts);
        print(options.json ? models::to_json_text(model) : reports::model_text(model));
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

int show_cluster(const ListOptions& options) {
    const topologies::ClusterSpec cluster = topologies::load_cluster(options.name, 1);
    if (options.kernels) {
        print(options.json ? reports::kernel_rates_json(cluster.device) : reports::kernel_rates_text(cluster.device));
    } else {
        print(topologies::to_json_text(cluster));
    }
    return kExitDone;
}

int list_clusters(const ListOptions& options) {
    if (!options.name.empty()) return show_cluster(options);
    if (options.kernels) throw InputError("command line", "--kernels", "no cluster", "a cluster's name or file");
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

std::string joined(const std::vector<std::string>& names) {
    return names.empty() ? "-" : fmt::format("{}", fmt::join(names, " "));
}

int list_implementations(const ListOptions& options) {
    if (!options.name.empty()) {
        print(models::to_json_text(models::load_implementation(options.name)));
        return kExitDone;
    }
    using reports::Align;
    ordered_json json{{"schema", "orrery.implementations/1"}, {"implementations", ordered_json::array()}};
    const ordered_json errors =
        ordered_json::parse(program::to_json_text(program::validated_stacks())).at("implementations");
    reports::Table parallel({{"implementation", Align::left},
                             {"version", Align::left},
                             {"besides dp", Align::left},
                             {"data parallelism", Align::left},
                             {"with pp", Align::left},
                             {"schedules", Align::left},
                             {"runs"},
                             {"median"},
                             {"mean"},
                             {"bias"}});
    reports::Table rest({{"implementation", Align::left},
                         {"activations", Align::left},
                         {"8 and 4 bits", Align::left},
                         {"moments", Align::left},
                         {"recomputation", Align::left},
                         {"on the host", Align::left},
                         {"context parallelism", Align::left},
                         {"most nodes"}});
    for (const std::string& name : models::implementation_names()) {
        const models::Implementation one = models::load_implementation(name);
        const models::Support& supports = one.supports;
        std::vector<std::string> axes = supports.axes, kinds = supports.data_parallel;
        if (supports.sequence_parallel) axes.emplace_back("sp");
        if (supports.shard_groups && !models::Support::states_all(kinds)) kinds.emplace_back("hsdp");
        const auto found = program::validated_stacks().find(name);
        const bool validated = found != program::validated_stacks().end();
        const auto error = [&](double program::ValidatedStack::*which) {
            return validated ? reports::format_percent(found->second.*which) : std::string("-");
        };
        parallel.add_row({name, one.version, joined(axes), joined(kinds), joined(supports.data_parallel_of_pipelines),
                          joined(supports.schedules), validated ? reports::format_integer(found->second.runs) : "-",
                          error(&program::ValidatedStack::median), error(&program::ValidatedStack::mean),
                          error(&program::ValidatedStack::bias)});
        rest.add_row({name, joined(supports.precisions), joined(supports.narrow_products), joined(supports.moments),
                      joined(supports.recompute), joined(supports.offload), joined(supports.context_parallel),
                      supports.most_nodes == 0 ? "any" : std::to_string(supports.most_nodes)});
        ordered_json& item = json["implementations"].emplace_back();
        item["implementation"] = ordered_json::parse(models::to_json_text(one));
        if (validated) item["validated"] = errors.at(name);
    }
    if (options.json) {
        print(json.dump(2) + "\n");
        return kExitDone;
    }
    print(parallel.to_text() +
          "Runs: published runs; errors of their step times, predicted with rates fitted without them "
          "(docs/accuracy.md). Sources: orrery implementations NAME\n\n" +
          rest.to_text());
    return kExitDone;
}

std::shared_ptr<ListOptions> add_list(CLI::App& app, Action& chosen, const char* name, const char* what,
                                      const char* example, int (*list)(const ListOptions&)) {
    auto options = std::make_shared<ListOptions>();
    CLI::App* command = app.add_subcommand(name, what);
    command->add_option("name", options->name, "Show this one in full");
    command->add_flag("--json", options->json, "Print JSON");
    command->footer(std::string("Example: ") + example);
    command->callback([options, list, &chosen] { chosen = [options, list] { return list(*options); }; });
    return options;
}

}  // namespace

void add_models(CLI::App& app, Action& chosen) {
    const auto options = add_list(app, chosen, "models", "List the models of the zoo, or describe one",
                                  "orrery models llama3-70b", list_models);
    CLI::App* command = app.get_subcommand("models");
    command->get_option("name")->description("Describe this one: a name, or the path of a Hugging Face config.json");
    add_text_only_option(*command, options->parts);
}

void add_clusters(CLI::App& app, Action& chosen) {
    const auto options = add_list(app, chosen, "clusters", "List the cluster presets, or show one",
                                  "orrery clusters dgx-h100", list_clusters);
    CLI::App* command = app.get_subcommand("clusters");
    command->get_option("name")->description("Show this one in full: a preset, local, or the path of a file");
    command->add_flag("--kernels", options->kernels,
                      "Show what the timed operators of its device achieve of what its memory and arithmetic allow");
}

void add_implementations(CLI::App& app, Action& chosen) {
    (void)add_list(app, chosen, "implementations", "List the known training frameworks and what each supports",
                   "orrery implementations megatron-core", list_implementations);
}

}  // namespace orrery::cli
