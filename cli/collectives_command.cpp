#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <numeric>
#include <optional>
#include <set>

#include "cli/commands.h"
#include "core/error.h"
#include "reports/collective_table.h"
#include "sim/network/collectives.h"
#include "sim/network/given_channels.h"
#include "topologies/importers/import_file.h"

namespace orrery::cli {
namespace {

using program::CommKind;
using sim::NcclAlgorithm;
using sim::NcclProtocol;

struct TableOptions {
    std::string cluster, op = "all_reduce", first = "8", last = "8G", algorithm = "auto", protocol = "auto";
    std::int64_t ranks = 0, gpus = 0, factor = 2, channels = 0;
    std::vector<std::int64_t> devices;
    std::string graph;
    bool json = false;
};

constexpr std::array kOps{CommKind::all_reduce, CommKind::all_gather, CommKind::reduce_scatter,
                          CommKind::all_to_all, CommKind::broadcast,  CommKind::reduce,
                          CommKind::scatter,    CommKind::gather,     CommKind::send};
constexpr std::array kAlgorithms{NcclAlgorithm::ring, NcclAlgorithm::tree, NcclAlgorithm::nvls,
                                 NcclAlgorithm::nvls_tree, NcclAlgorithm::pat};
constexpr std::array kProtocols{NcclProtocol::ll, NcclProtocol::ll128, NcclProtocol::simple};

const CLI::Range kCounts{std::int64_t{1}, std::int64_t{1} << 20};

template <typename List>
std::vector<std::string> names_of(const List& list, bool with_auto) {
    std::vector<std::string> names;
    if (with_auto) names.emplace_back("auto");
    for (const auto& item : list) names.emplace_back(name_of(item));
    return names;
}
template <typename List>
std::optional<typename List::value_type> named(const List& list, const std::string& name) {
    const auto found = std::find_if(list.begin(), list.end(), [&](const auto& item) { return name_of(item) == name; });
    return found == list.end() ? std::nullopt : std::optional(*found);
}

/// "8", "32K", "1M", "8G": powers of 1024, as nccl-tests reads them.
std::int64_t size_of_text(const std::string& option, const std::string& text) {
    constexpr std::int64_t kMost = std::int64_t{1} << 44;
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const std::string unit(end, text.data() + text.size());
    const std::size_t place = std::string("KMGT").find(unit.empty() ? 'x' : unit.front());
    std::int64_t bytes = number;
    const bool has_unit = unit.size() == 1 && place != std::string::npos;
    for (std::size_t i = 0; has_unit && i <= place && bytes <= kMost; ++i) bytes *= 1024;
    if (error != std::errc{} || (!unit.empty() && !has_unit) || number < 1 || bytes > kMost) {
        throw InputError("command line", option, "'" + text + "'", "1 to 16T bytes, such as 8, 32K, 1M or 8G");
    }
    return bytes;
}

std::vector<std::int64_t> chosen_devices(const TableOptions& options, const topologies::ClusterSpec& spec) {
    if (options.devices.empty()) {
        std::vector<std::int64_t> devices(static_cast<std::size_t>(options.ranks));
        std::iota(devices.begin(), devices.end(), std::int64_t{0});
        return devices;
    }
    std::set<std::int64_t> seen;
    for (const std::int64_t device : options.devices) {
        if (device < 0 || device >= spec.device_count()) {
            throw InputError("command line", "--devices", std::to_string(device),
                             "0 to " + std::to_string(spec.device_count() - 1) + " on " + spec.name);
        }
        if (!seen.insert(device).second) {
            throw InputError("command line", "--devices", std::to_string(device) + " twice", "each device once");
        }
    }
    return options.devices;
}

double bus_factor(CommKind kind, std::int64_t ranks) {
    const double share = static_cast<double>(ranks - 1) / static_cast<double>(ranks);
    switch (kind) {
        case CommKind::all_reduce:
            return 2 * share;
        case CommKind::all_gather:
        case CommKind::reduce_scatter:
        case CommKind::all_to_all:
        case CommKind::scatter:
        case CommKind::gather:
            return share;
        case CommKind::broadcast:
        case CommKind::reduce:
        case CommKind::exchange:
        case CommKind::send:
        case CommKind::recv:
            return 1;
    }
    return 1;
}

int run_collectives(const TableOptions& options) {
    const std::int64_t first = size_of_text("--begin", options.first);
    const std::int64_t last = size_of_text("--end", options.last);
    if (last < first) throw InputError("command line", "--end", options.last, "at least --begin, " + options.first);
    TableOptions asked = options;
    const std::int64_t highest =
        asked.devices.empty()
            ? 0
            : std::max<std::int64_t>(0, *std::max_element(asked.devices.begin(), asked.devices.end())) + 1;
    if (asked.gpus == 0) asked.gpus = std::max(highest, asked.ranks);
    topologies::ClusterSpec spec = topologies::load_cluster(options.cluster, 1);
    if (asked.gpus == 0) asked.gpus = spec.devices_per_node;
    if (asked.gpus > spec.devices_per_node && options.gpus == 0) {  // whole nodes
        asked.gpus = (asked.gpus + spec.devices_per_node - 1) / spec.devices_per_node * spec.devices_per_node;
    }
    spec = topologies::sized_for(spec, asked.gpus);
    if (asked.ranks == 0) asked.ranks = spec.ranks_may_share_devices() ? 2 : std::min(asked.gpus, spec.device_count());
    if (asked.ranks > spec.device_count() && !spec.ranks_may_share_devices()) {
        throw InputError("command line", "--ranks", std::to_string(asked.ranks),
                         "1 to " + std::to_string(spec.device_count()) + ", the devices of " + spec.name);
    }
    const topologies::Cluster cluster(spec);
    std::vector<std::int64_t> devices = chosen_devices(asked, spec);
    for (std::int64_t& device : devices) device %= spec.device_count();  // where ranks share devices
    const CommKind kind = *named(kOps, options.op);
    if (kind == CommKind::send && devices.size() != 2) {
        throw InputError("command line", "--ranks", std::to_string(devices.size()), "2 for a send and its receive");
    }
    const sim::GroupPlacement placement = sim::place_group(cluster, devices);
    sim::CollectiveOptions how{.algorithm = named(kAlgorithms, options.algorithm),
                               .protocol = named(kProtocols, options.protocol),
                               .channels = options.channels};
    if (!options.graph.empty()) {
        const topologies::ForeignFile foreign = topologies::read_foreign(options.graph);
        if (!foreign.graphs) {
            throw InputError(options.graph, "format", name_of(foreign.format),
                             "an NCCL graph XML (NCCL_GRAPH_DUMP_FILE)");
        }
        how.given_channels = sim::given_channels(*foreign.graphs, options.graph, placement);
    }
    reports::CollectiveTable table{.cluster = spec.name,
                                   .op = options.op,
                                   .ranks = placement.ranks,
                                   .nodes = placement.nodes,
                                   .devices = devices,
                                   .bus_factor = bus_factor(kind, placement.ranks)};
    for (std::int64_t bytes = first; bytes <= last; bytes *= options.factor) {
        const sim::CollectiveCost cost = sim::collective_cost(kind, bytes, placement, spec, how);
        table.lines.push_back({bytes, cost.seconds, cost.algorithm, cost.detail, cost.channels});
    }
    print(options.json ? reports::collective_table_json(table) : reports::collective_table_text(table));
    return kExitDone;
}

}  // namespace

void add_collectives(CLI::App& app, Action& chosen) {
    auto options = std::make_shared<TableOptions>();
    CLI::App* command = app.add_subcommand(
        "collectives", "What a collective takes on a cluster by message size, and how NCCL would run it");
    command->add_option("cluster", options->cluster, "Preset or cluster file")->required();
    command->add_option("--op", options->op, "The collective")
        ->check(CLI::IsMember(names_of(kOps, false)))
        ->capture_default_str();
    CLI::Option* ranks =
        command->add_option("--ranks", options->ranks, "Its members, on the first devices; default all")
            ->check(kCounts);
    command->add_option("--devices", options->devices, "Its members' devices: 0,1,8,9")
        ->delimiter(',')
        ->excludes(ranks);
    command
        ->add_option("--gpus", options->gpus, "Size of the cluster; default a node, or as many nodes as members need")
        ->check(kCounts);
    command->add_option("-b,--begin", options->first, "First message size")->capture_default_str();
    command->add_option("-e,--end", options->last, "Last message size")->capture_default_str();
    command->add_option("-f,--factor", options->factor, "From size to size")
        ->check(CLI::Range(std::int64_t{2}, std::int64_t{1} << 20))
        ->capture_default_str();
    command->add_option("--algorithm", options->algorithm, "NCCL's algorithm; auto: its own choice")
        ->check(CLI::IsMember(names_of(kAlgorithms, true)))
        ->capture_default_str();
    command->add_option("--protocol", options->protocol, "NCCL's protocol; auto: its own choice")
        ->check(CLI::IsMember(names_of(kProtocols, true)))
        ->capture_default_str();
    CLI::Option* channels = command->add_option("--channels", options->channels, "Channels; default NCCL's");
    channels->check(CLI::Range(std::int64_t{1}, std::int64_t{64}));
    command
        ->add_option("--graph", options->graph,
                     "NCCL graph XML (NCCL_GRAPH_FILE): its channels and speeds instead of those that NCCL searches")
        ->excludes(channels);
    command->add_flag("--json", options->json, "Print orrery.collectives/1 JSON");
    command->footer("Example: orrery collectives dgx-h100 --op all_reduce --ranks 16 -b 1M -e 1G");
    command->callback([options, &chosen] { chosen = [options] { return run_collectives(*options); }; });
}

}  // namespace orrery::cli
