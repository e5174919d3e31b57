#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>

#include "cli/collective_places.h"
#include "cli/commands.h"
#include "core/error.h"
#include "reports/collective_table.h"
#include "sim/network/algorithms/algorithm_times.h"
#include "sim/network/algorithms/library_choice.h"
#include "sim/network/collectives.h"
#include "sim/network/fabric_loads.h"
#include "sim/network/given_channels.h"
#include "sim/network/nccl_model.h"
#include "topologies/importers/import_file.h"

namespace orrery::cli {
namespace {

using program::CommKind;
using sim::NcclProtocol;
using sim::algorithms::Algorithm;
using topologies::CollectiveLibrary;

struct TableOptions {
    std::string cluster, op = "all_reduce", first = "8", last = "8G", increment, dtype = "fp32";
    std::string algorithm = "auto", protocol = "auto", version, library;
    std::int64_t ranks = 0, gpus = 0, factor = 2, channels = 0;
    std::vector<std::int64_t> devices;
    std::string graph;
    bool no_nvls = false, sharp = false, json = false;
};

constexpr std::array kOps{CommKind::all_reduce, CommKind::all_gather, CommKind::reduce_scatter,
                          CommKind::all_to_all, CommKind::broadcast,  CommKind::reduce,
                          CommKind::scatter,    CommKind::gather,     CommKind::send};
constexpr std::array kProtocols{NcclProtocol::ll, NcclProtocol::ll128, NcclProtocol::simple};

constexpr std::array kDTypes{DType::fp64, DType::fp32,  DType::bf16,  DType::fp16,
                             DType::fp8,  DType::int64, DType::int32, DType::uint8};
constexpr std::array kLibraries{CollectiveLibrary::openmpi, CollectiveLibrary::gloo, CollectiveLibrary::orrery};

constexpr std::int64_t kMostSizes = 10'000;
const CLI::Range kCounts{std::int64_t{1}, std::int64_t{1} << 20};

template <typename List>
std::vector<std::string> names_of(const List& list, bool with_auto) {
    std::vector<std::string> names;
    if (with_auto) names.emplace_back("auto");
    for (const auto& item : list) names.emplace_back(name_of(item));
    return names;
}
/// "auto", the algorithms of NCCL, and all others.
std::vector<std::string> algorithm_names() {
    std::vector<std::string> names{"auto"};
    for (const sim::algorithms::Row& row : sim::algorithms::kTable) {
        if (!row.nccl.name.empty()) names.emplace_back(row.nccl.name);
    }
    for (const sim::algorithms::Row& row : sim::algorithms::kTable) {
        if (row.nccl.name != row.name) names.emplace_back(row.name);
    }
    return names;
}
template <typename List>
std::optional<typename List::value_type> named(const List& list, const std::string& name) {
    const auto found = std::find_if(list.begin(), list.end(), [&](const auto& item) { return name_of(item) == name; });
    return found == list.end() ? std::nullopt : std::optional(*found);
}

/// A CLI11 check: returns "" or the error.
std::string is_nccl_version(const std::string& text) {
    const std::optional<std::int64_t> version = nccl_version_of(text);
    constexpr std::int64_t kFirst = 20'000, kLast = 29'999;  // NCCL 2
    return version && *version >= kFirst && *version <= kLast ? "" : "a version of NCCL 2, such as 2.27.7";
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

/// The message sizes, each a whole number of elements.
std::vector<std::int64_t> sizes_of(const TableOptions& options) {
    const std::int64_t first = size_of_text("--begin", options.first);
    const std::int64_t last = size_of_text("--end", options.last);
    if (last < first) throw InputError("command line", "--end", options.last, "at least --begin, " + options.first);
    const std::int64_t step = options.increment.empty() ? 0 : size_of_text("--increment", options.increment);
    if (step > 0 && (last - first) / step >= kMostSizes) {
        throw InputError("command line", "--increment", options.increment,
                         "at most " + std::to_string(kMostSizes) + " sizes from --begin to --end");
    }
    const std::int64_t element = size_of(*named(kDTypes, options.dtype));
    std::vector<std::int64_t> sizes;
    for (std::int64_t bytes = first; bytes <= last; bytes = step > 0 ? bytes + step : bytes * options.factor) {
        const std::int64_t whole = std::max(bytes / element, std::int64_t{1}) * element;
        if (sizes.empty() || whole > sizes.back()) sizes.push_back(whole);
    }
    return sizes;
}

/// The cluster with --gpus devices, or with as many whole nodes as the members need.
topologies::ClusterSpec chosen_cluster(TableOptions& options) {
    const std::int64_t highest =
        options.devices.empty()
            ? 0
            : std::max<std::int64_t>(0, *std::max_element(options.devices.begin(), options.devices.end())) + 1;
    topologies::ClusterSpec spec = topologies::load_cluster(options.cluster, 1);
    std::int64_t gpus = options.gpus;
    if (gpus == 0) gpus = std::max(highest, options.ranks);
    if (gpus == 0) gpus = spec.devices_per_node;
    if (gpus > spec.devices_per_node && options.gpus == 0) {
        gpus = (gpus + spec.devices_per_node - 1) / spec.devices_per_node * spec.devices_per_node;
    }
    spec = topologies::sized_for(spec, gpus);
    if (options.ranks == 0) options.ranks = spec.ranks_may_share_devices() ? 2 : std::min(gpus, spec.device_count());
    if (options.ranks > spec.device_count() && !spec.ranks_may_share_devices()) {
        throw InputError("command line", "--ranks", std::to_string(options.ranks),
                         "1 to " + std::to_string(spec.device_count()) + ", the devices of " + spec.name);
    }
    if (options.library.empty()) return spec;
    if (!spec.ranks_may_share_devices()) {
        throw InputError("command line", "--collective-library", options.library,
                         "none on " + spec.name + ": NCCL moves messages between GPUs");
    }
    spec.collective_library = *named(kLibraries, options.library);
    return spec;
}

sim::CollectiveOptions how_of(const TableOptions& options, const sim::GroupPlacement& placement) {
    sim::CollectiveOptions how{
        .algorithm = sim::algorithms::nccl_algorithm_named(options.algorithm),
        .protocol = named(kProtocols, options.protocol),
        .channels = options.channels,
        .dtype = named(kDTypes, options.dtype),
        .nvls = !options.no_nvls,
        .sharp = options.sharp,
        .nccl_version = nccl_version_of(options.version).value_or(sim::CollectiveOptions{}.nccl_version)};
    if (options.graph.empty()) return how;
    const topologies::ForeignFile foreign = topologies::read_foreign(options.graph);
    if (!foreign.graphs) {
        throw InputError(options.graph, "format", name_of(foreign.format), "an NCCL graph XML (NCCL_GRAPH_DUMP_FILE)");
    }
    how.given_channels = sim::given_channels(*foreign.graphs, options.graph, placement);
    return how;
}

/// The collective as the cluster's library runs it.
std::vector<reports::CollectiveLine> library_lines(CommKind kind, const std::vector<std::int64_t>& sizes,
                                                   const std::vector<std::int64_t>& devices,
                                                   const topologies::Cluster& cluster,
                                                   const sim::GroupPlacement& placement,
                                                   const sim::CollectiveOptions& how) {
    std::map<std::string_view, double> busiest;  // by algorithm
    const auto busiest_link = [&](const sim::CollectiveCost& cost) {
        const auto [known, is_new] = busiest.try_emplace(cost.algorithm_name(), 0.0);
        if (is_new) known->second = sim::fabric_seconds_per_byte(cost, kind, devices, cluster);
        return known->second;
    };
    std::vector<reports::CollectiveLine> lines;
    for (const std::int64_t bytes : sizes) {
        const sim::CollectiveCost cost = sim::collective_cost(kind, bytes, placement, cluster.spec(), how);
        const double seconds = std::max(cost.seconds, static_cast<double>(bytes) * busiest_link(cost));
        lines.push_back({bytes, seconds, std::string(cost.algorithm_name()), cost.detail, cost.channels});
    }
    return lines;
}

/// The algorithm of --algorithm if the cluster's library does not provide it: on GPUs, one that NCCL lacks.
std::optional<Algorithm> own_algorithm(const TableOptions& options, const topologies::ClusterSpec& spec) {
    if (options.algorithm == "auto") return std::nullopt;
    const bool is_nccls = sim::algorithms::nccl_algorithm_named(options.algorithm).has_value();
    if (is_nccls && !spec.ranks_may_share_devices()) return std::nullopt;
    const std::optional<Algorithm> algorithm = sim::algorithms::algorithm_named(options.algorithm);
    const auto refuse = [&](const std::string& allowed) {
        throw InputError("command line", "--algorithm", options.algorithm, allowed);
    };
    if (!algorithm) refuse("on " + spec.name + " an algorithm of CPU ranks");
    if (spec.nodes == 1 && spec.ranks_may_share_devices()) refuse("auto on one node of CPUs, where times are measured");
    const bool has_nccls_options = options.protocol != "auto" || options.channels > 0 || !options.graph.empty() ||
                                   options.no_nvls || options.sharp || !options.version.empty();
    if (has_nccls_options)
        refuse("one of NCCL's own together with its protocol, channels, graph, version, NVLS or SHARP");
    return algorithm;
}

/// The algorithm on idle links, with the step time of the cluster's library.
std::vector<reports::CollectiveLine> lines_of(Algorithm algorithm, CommKind kind,
                                              const std::vector<std::int64_t>& sizes, std::vector<std::int64_t> devices,
                                              const topologies::Cluster& cluster,
                                              const sim::GroupPlacement& placement) {
    if (kind != CommKind::send) devices = sim::algorithms::visiting_order(cluster, std::move(devices));
    const auto group =
        kind == CommKind::send ? sim::algorithms::Group::flat(2) : sim::algorithms::Group::of(cluster, devices);
    const std::string name(name_of(algorithm));
    const std::string reason = sim::algorithms::why_not(algorithm, kind, group);
    if (!reason.empty()) throw InputError("command line", "--algorithm", name, "another: " + reason);
    const topologies::ClusterSpec& spec = cluster.spec();
    const double step = spec.ranks_may_share_devices() ? sim::algorithms::step_seconds(spec.collective_library)
                                                       : sim::nccl_step_seconds(placement);
    sim::algorithms::AlgorithmTimes times(cluster, algorithm, kind, std::move(devices), step);
    std::vector<reports::CollectiveLine> lines;
    for (const std::int64_t bytes : sizes) {
        const auto time = times.of(bytes);
        const std::string chunks = time.chunks > 1 ? std::to_string(time.chunks) + " chunks" : "";
        lines.push_back({bytes, time.seconds, name, chunks, 0});
    }
    return lines;
}

int run_collectives(TableOptions options) {
    const std::vector<std::int64_t> sizes = sizes_of(options);
    const topologies::ClusterSpec spec = chosen_cluster(options);
    const topologies::Cluster cluster(spec);
    std::vector<std::int64_t> devices = chosen_devices(options, spec);
    for (std::int64_t& device : devices) device %= spec.device_count();  // ranks may share devices
    const CommKind kind = *named(kOps, options.op);
    if (kind == CommKind::send && devices.size() != 2) {
        throw InputError("command line", "--ranks", std::to_string(devices.size()), "2 for a send and its receive");
    }
    const sim::GroupPlacement placement = sim::place_group(cluster, devices);
    reports::CollectiveTable table{.cluster = spec.name,
                                   .op = options.op,
                                   .dtype = options.dtype,
                                   .element_bytes = size_of(*named(kDTypes, options.dtype)),
                                   .ranks = placement.ranks,
                                   .nodes = placement.nodes,
                                   .devices = devices,
                                   .bus_factor = bus_factor(kind, placement.ranks)};
    if (const std::optional<Algorithm> algorithm = own_algorithm(options, spec)) {
        table.lines = lines_of(*algorithm, kind, sizes, devices, cluster, placement);
    } else {
        table.lines = library_lines(kind, sizes, devices, cluster, placement, how_of(options, placement));
    }
    print(options.json ? reports::collective_table_json(table) : reports::collective_table_text(table));
    return kExitDone;
}

void add_group_options(CLI::App& command, TableOptions& options) {
    command.add_option("cluster", options.cluster, "Preset or cluster file")->required();
    command.add_option("--op", options.op, "The collective")
        ->check(CLI::IsMember(names_of(kOps, false)))
        ->capture_default_str();
    CLI::Option* ranks =
        command.add_option("--ranks", options.ranks, "Number of ranks, on the first devices; default all")
            ->check(kCounts);
    command.add_option("--devices", options.devices, "The devices of the ranks: 0,1,8,9")
        ->delimiter(',')
        ->check(CLI::Range(0, 1 << 20))
        ->excludes(ranks);
    command.add_option("--gpus", options.gpus, "Size of the cluster; default one node, or as many as the ranks need")
        ->check(kCounts);
}

void add_size_options(CLI::App& command, TableOptions& options) {
    command.add_option("-b,--begin", options.first, "First message size")->capture_default_str();
    command.add_option("-e,--end", options.last, "Last message size")->capture_default_str();
    CLI::Option* factor = command.add_option("-f,--factor", options.factor, "Factor between sizes")
                              ->check(CLI::Range(std::int64_t{2}, std::int64_t{1} << 20))
                              ->capture_default_str();
    command.add_option("-i,--increment", options.increment, "Bytes between sizes, instead of a factor")
        ->excludes(factor);
    command.add_option("-d,--dtype", options.dtype, "Type of the elements; switches do not reduce 8-bit integers")
        ->check(CLI::IsMember(names_of(kDTypes, false)))
        ->capture_default_str();
}

void add_library_options(CLI::App& command, TableOptions& options) {
    command
        .add_option("--algorithm", options.algorithm,
                    "auto: the library's own choice. Algorithms that it lacks are priced on idle links")
        ->check(CLI::IsMember(algorithm_names()))
        ->capture_default_str();
    command.add_option("--protocol", options.protocol, "NCCL's protocol; auto: its own choice")
        ->check(CLI::IsMember(names_of(kProtocols, true)))
        ->capture_default_str();
    CLI::Option* channels = command.add_option("--channels", options.channels, "Channels; default NCCL's");
    channels->check(CLI::Range(std::int64_t{1}, std::int64_t{64}));
    command
        .add_option("--graph", options.graph,
                    "NCCL graph XML (NCCL_GRAPH_FILE): use its channels and speeds instead of NCCL's search")
        ->excludes(channels);
    command.add_flag("--no-nvls", options.no_nvls, "Node switches do not reduce (NCCL_NVLS_ENABLE=0)");
    command.add_flag("--sharp", options.sharp, "Fabric switches reduce too");
    command.add_option("--nccl-version", options.version, "NCCL version of the tuner, such as 2.27.7; default 2.29.2")
        ->check(is_nccl_version);
    command
        .add_option("--collective-library", options.library,
                    "Library for messages between CPU nodes; default the cluster's own")
        ->check(CLI::IsMember(names_of(kLibraries, false)));
}

}  // namespace

void add_collectives(CLI::App& app, Action& chosen) {
    auto options = std::make_shared<TableOptions>();
    CLI::App* command = app.add_subcommand(
        "collectives", "Predict a collective's time on a cluster by message size, and how NCCL would run it");
    add_group_options(*command, *options);
    add_size_options(*command, *options);
    add_library_options(*command, *options);
    command->add_flag("--json", options->json, "Print orrery.collectives/1 JSON");
    command->footer("Example: orrery collectives dgx-h100 --op all_reduce --ranks 16 -b 1M -e 1G");
    command->callback([options, &chosen] { chosen = [options] { return run_collectives(*options); }; });
}

}  // namespace orrery::cli
