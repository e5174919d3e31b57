// orrery topo: shows the network of a cluster; orrery topo import: makes a cluster file from foreign files.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "cli/commands.h"
#include "core/error.h"
#include "core/file.h"
#include "reports/import_report.h"
#include "reports/topology_picture.h"
#include "reports/topology_report.h"
#include "topologies/cluster.h"
#include "topologies/importers/import_file.h"

namespace orrery::cli {
namespace {

using topologies::ClusterSpec;
using topologies::ForeignFile;
using topologies::NvlinkChoice;

struct TopoOptions {
    std::string cluster;             // of topo
    std::vector<std::string> files;  // of topo import
    std::string output;
    std::string node_of, nvlink = "file";
    topologies::ImportOptions importing;
    std::int64_t gpus = 0;
    std::vector<std::int64_t> paths;
    std::string dot, svg;
    bool json = false;
};

void add_import_options(CLI::App& command, TopoOptions& options) {
    command.add_option(
        "--device", options.importing.device,
        "Imported node: its GPU, if the file does not state it (a device name as in orrery clusters NAME)");
    command.add_option("--nic", options.importing.nic,
                       "Imported node: the link of its NICs, if the file does not state it");
    command
        .add_option("--nvlink", options.nvlink,
                    "Imported node: NVLinks as in the file, all GPUs on NVSwitches (switched), or none")
        ->check(CLI::IsMember({"file", "switched", "none"}))
        ->capture_default_str();
    command.add_option("--node", options.node_of,
                       "Imported fabric without a node file: the cluster whose node is used");
}

/// Throws InputError for the first option that does not apply to the kind of file.
void refuse_import_options(const TopoOptions& options, bool of_nodes, bool of_fabrics, const std::string& file) {
    const auto refuse = [&](const char* option, const std::string& value, const char* what) {
        throw InputError("command line", option, value,
                         std::string("only with ") + what + " to import, which " + file + " is not");
    };
    const topologies::ImportOptions& node = options.importing;
    if (!of_nodes && !node.device.empty()) refuse("--device", node.device, "a node's file");
    if (!of_nodes && !node.nic.empty()) refuse("--nic", node.nic, "a node's file");
    if (!of_nodes && options.nvlink != "file") refuse("--nvlink", options.nvlink, "a node's file");
    if (!of_fabrics && !options.node_of.empty()) refuse("--node", options.node_of, "a fabric's file");
}

void finish_import_options(TopoOptions& options) {
    options.importing.nvlink = options.nvlink == "switched" ? NvlinkChoice::switched
                               : options.nvlink == "none"   ? NvlinkChoice::none
                                                            : NvlinkChoice::by_file;
}

ClusterSpec import_files(const std::vector<ForeignFile>& files, const TopoOptions& options, topologies::Notes& notes) {
    ClusterSpec cluster = import_cluster(files, options.node_of, options.importing, notes);
    return options.gpus > 0 ? sized_for(std::move(cluster), options.gpus) : cluster;
}

/// Whether the options supply what the file leaves open, or the user requests output that needs a cluster.
bool makes_cluster(const ForeignFile& file, const TopoOptions& options) {
    if (options.json || !options.paths.empty() || !options.dot.empty() || !options.svg.empty()) return true;
    if (file.fabric) return !options.node_of.empty();
    return !options.importing.device.empty() || !device_of(*file.node).empty();
}

std::string hint(const ForeignFile& file) {
    return file.fabric ? "\nTo see it as a cluster, give the cluster whose node is used: --node (orrery clusters)\n"
                       : "\nTo see it as a cluster, give the GPU: --device\n";
}

/// An orrery.cluster/1 file with this text or, if the text is empty, a preset.
ClusterSpec named_cluster(const TopoOptions& options, const std::string& text) {
    if (text.empty()) return topologies::load_cluster(options.cluster, std::max<std::int64_t>(options.gpus, 1));
    ClusterSpec cluster = topologies::cluster_from_json_text(text, options.cluster);
    return options.gpus > 0 ? sized_for(std::move(cluster), options.gpus) : cluster;
}

int show_cluster(const TopoOptions& options, const ClusterSpec& spec, std::vector<std::string> notes) {
    const topologies::Cluster cluster(spec);
    std::optional<std::pair<std::int64_t, std::int64_t>> ranks;
    if (!options.paths.empty()) ranks = {options.paths[0], options.paths[1]};
    const reports::TopologyReport report = reports::report_topology(cluster, ranks, std::move(notes));
    if (!options.dot.empty()) write_file_atomically(options.dot, reports::topology_dot(cluster));
    if (!options.svg.empty()) write_file_atomically(options.svg, reports::topology_svg(cluster));
    print(options.json ? reports::topology_json(report) : reports::topology_text(report));
    return kExitDone;
}

int show_foreign(const TopoOptions& options, const ForeignFile& file) {
    refuse_import_options(options, file.node.has_value(), file.fabric.has_value(), options.cluster);
    if (file.graphs) {
        print(options.json ? reports::channels_json(*file.graphs, file.file) : reports::import_text(file));
        return kExitDone;
    }
    if (!makes_cluster(file, options)) {
        print(reports::import_text(file) + hint(file));
        return kExitDone;
    }
    topologies::Notes notes;
    const ClusterSpec cluster = import_files({file}, options, notes);
    if (!options.json) print(reports::import_text(file) + "\n");
    return show_cluster(options, cluster, notes.list());
}

int run_topo(TopoOptions& options) {
    finish_import_options(options);
    check_outputs({{"--dot", options.dot}, {"--svg", options.svg}}, {{"the cluster", options.cluster}});
    std::error_code ignored;
    std::string text;
    if (std::filesystem::exists(options.cluster, ignored)) text = topologies::read_foreign_file(options.cluster);
    if (!text.empty() && topologies::format_of(text)) {
        return show_foreign(options, topologies::foreign_from_text(text, options.cluster));
    }
    refuse_import_options(options, false, false, options.cluster);
    const ClusterSpec spec = named_cluster(options, text);
    return show_cluster(options, spec, spec.notes);
}

int run_import(TopoOptions& options) {
    finish_import_options(options);
    NamedPaths inputs;
    for (const std::string& path : options.files) inputs.emplace_back("an input", path);
    check_outputs({{"--output", options.output}}, inputs);
    std::vector<ForeignFile> files;
    for (const std::string& path : options.files) files.push_back(topologies::read_foreign(path));
    const auto is_node = [](const ForeignFile& file) { return file.node.has_value(); };
    const auto is_fabric = [](const ForeignFile& file) { return file.fabric.has_value(); };
    refuse_import_options(options, std::any_of(files.begin(), files.end(), is_node),
                          std::any_of(files.begin(), files.end(), is_fabric), options.files.front());
    topologies::Notes notes;
    const ClusterSpec spec = import_files(files, options, notes);
    const topologies::Cluster cluster(spec);  // throws if no graph can be built
    const std::string text = to_json_text(spec);
    (void)topologies::cluster_from_json_text(text, options.output);  // throws if the file could not be read back
    write_file_atomically(options.output, text);
    const reports::TopologyReport report = reports::report_topology(cluster, std::nullopt, notes.list());
    print(options.json ? reports::topology_json(report) : reports::topology_text(report));
    return kExitDone;
}

void add_import(CLI::App& topo, Action& chosen) {
    auto options = std::make_shared<TopoOptions>();
    CLI::App* command =
        topo.add_subcommand("import", "Make a cluster file from descriptions of a node, a fabric, or both");
    command
        ->add_option(
            "files", options->files,
            "NCCL topology XML, nvidia-smi topo -m, Slurm topology.conf or .yaml, topograph models, ibnetdiscover")
        ->required();
    command->add_option("-o,--output", options->output, "The orrery.cluster/1 file to write")->required();
    command->add_option("--gpus", options->gpus, "Number of GPUs of the cluster")->check(CLI::Range(1, 1 << 20));
    add_import_options(*command, *options);
    command->add_flag("--json", options->json, "Print orrery.topology/1 JSON of the result");
    command->footer(
        "Example: orrery topo import examples/topology/node.topo.xml examples/topology/topology.conf -o cluster.json");
    command->callback([options, &chosen] { chosen = [options] { return run_import(*options); }; });
}

}  // namespace

void add_topo(CLI::App& app, Action& chosen) {
    auto options = std::make_shared<TopoOptions>();
    CLI::App* command = app.add_subcommand("topo", "Show a cluster's network; import one from foreign files");
    CLI::Option* cluster = command->add_option(
        "cluster", options->cluster, "Preset (orrery clusters), orrery.cluster/1 file, or any file that import reads");
    command->add_option("--gpus", options->gpus, "Number of GPUs of the cluster; default as in its file, or one node")
        ->check(CLI::Range(1, 1 << 20));
    command->add_option("--paths", options->paths, "Show the paths between two ranks")
        ->expected(2)
        ->check(CLI::Range(0, 1 << 20));
    command->add_option("--dot", options->dot, "Write a picture for graphviz");
    command->add_option("--svg", options->svg, "Write a picture (SVG)");
    add_import_options(*command, *options);
    command->add_flag("--json", options->json,
                      "Print orrery.topology/1 JSON (for an NCCL graph file: orrery.channels/1)");
    command->footer("Example: orrery topo dgx-h100 --gpus 512 --paths 0 9");
    command->require_subcommand(0, 1);
    add_import(*command, chosen);
    command->callback([options, command, cluster, &chosen] {
        if (!command->get_subcommands().empty()) return;
        if (cluster->empty()) throw CLI::RequiredError("cluster");
        chosen = [options] { return run_topo(*options); };
    });
}

}  // namespace orrery::cli
