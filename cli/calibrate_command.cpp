#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <ctime>
#include <filesystem>
#include <memory>
#include <thread>

#include "cli/calibrate_collectives.h"
#include "cli/calibrate_from.h"
#include "cli/calibrate_rows.h"
#include "cli/child.h"
#include "cli/commands.h"
#include "core/error.h"
#include "core/file.h"
#include "exec/calibrate.h"
#include "exec/calibrate_gpu.h"
#include "exec/launch.h"
#include "exec/transport/mpi_version.h"
#include "exec/transport/transport.h"
#include "reports/table.h"

namespace orrery::cli {
namespace {

struct CalibrateOptions {
    std::string output, worker_output, gpu;
    RefineOptions refine;
    FitOptions fit;
    CalibrateRowsOptions rows;
    bool worker = false, compute = false, quick = false, json = false, check = false;
    int ranks = 1;
};

// Timeout of one measurement, in which ranks may compute for a long time without a message.
constexpr double kMeasurementTimeout_s = 120;

std::string today() {
    const std::time_t now = std::time(nullptr);
    std::tm utc{};
    gmtime_r(&now, &utc);
    char date[16] = {};
    std::strftime(date, sizeof(date), "%Y-%m-%d", &utc);
    return date;
}

int run_worker(const CalibrateOptions& options) {
    if (!exec::under_launcher() && options.ranks > 1) {
        if (exec::mpi_version().empty()) {
            throw InputError(
                "calibrate: this orrery was built without MPI, over which CPU ranks communicate; allowed: "
                "--gpu, or a build with MPI");
        }
        std::vector<std::string> arguments{"calibrate",       "--worker",
                                           "--worker-ranks",  std::to_string(options.ranks),
                                           "--worker-output", options.worker_output};
        if (options.compute) arguments.emplace_back("--worker-compute");
        if (options.quick) arguments.emplace_back("--quick");
        return exec::launch_ranks({.ranks = options.ranks, .arguments = arguments, .timeout_s = kMeasurementTimeout_s});
    }
    exec::Transport transport;
    try {
        using enum exec::TimedOperators;
        const exec::Measurements measurements = exec::measure(transport, !options.compute ? none
                                                                         : options.quick  ? of_smallest
                                                                                          : of_all);
        if (transport.rank() == 0) write_file_atomically(options.worker_output, exec::to_json_text(measurements));
    } catch (const std::exception& error) {
        transport.abort(kExitJobFailed, fmt::format("rank {}: {}", transport.rank(), error.what()));
    }
    return kExitDone;
}

/// In each type that was measured; cores compute bf16 as fp32.
std::string best_products(const topologies::DeviceProfile& device) {
    if (device.host_runs_compute) {
        return fmt::format("{:.1f} GFLOP/s (best matrix product)", device.peak_flops_per_s(DType::fp32) / 1e9);
    }
    std::string text;
    for (const topologies::PeakRate& peak : device.peaks) {
        text += fmt::format("{}{:.1f} GFLOP/s in {}", text.empty() ? "" : ", ", peak.tflops.value * 1e3,
                            name_of(peak.dtype));
    }
    return text + " (best matrix products)";
}

std::string summary(const topologies::ClusterSpec& cluster, const std::string& path) {
    const topologies::DeviceProfile& device = cluster.device;
    const std::string devices = device.host_runs_compute ? fmt::format("{} cores", device.cores_per_node) : device.name;
    std::string text = fmt::format(
        "{}, each: {}, {:.1f} GB/s (copy), {:.2f} GiB in use beside the tensors\n{} matrix products, {} other "
        "operators, {} transfers timed\n",
        devices, best_products(device), device.memory_bandwidth_gb_per_s.value, device.context_gib.value,
        device.matmul_samples.size(), device.operator_samples.size(), cluster.transport_samples.size());
    reports::Table table({{"all-reduce", reports::Align::left}, {"ranks"}, {"time"}, {"algbw (GB/s)"}});
    for (const topologies::TransportSample& sample : cluster.transport_samples) {
        if (sample.op != "all_reduce") continue;
        table.add_row({reports::format_bytes(static_cast<double>(sample.bytes)), std::to_string(sample.ranks),
                       reports::format_seconds(sample.seconds),
                       reports::format_fixed(static_cast<double>(sample.bytes) / sample.seconds / 1e9, 2)});
    }
    const bool measured_transfers = !cluster.transport_samples.empty();
    return text + (measured_transfers ? table.to_text() : "") + "profile written to " + path + "\n";
}

int write_profile(const CalibrateOptions& options, const topologies::ClusterSpec& cluster, const std::string& path,
                  const std::string& text_of_refining = "") {
    const std::filesystem::path parent = std::filesystem::path(path).parent_path();
    if (!parent.empty()) {
        std::error_code failed;
        std::filesystem::create_directories(parent, failed);
        if (failed) throw JobError("cannot make the folder " + parent.string() + ": " + failed.message());
    }
    const std::string text = topologies::to_json_text(cluster);
    write_file_atomically(path, text);
    if (options.json) {
        print(text);
    } else {
        print(text_of_refining.empty() ? summary(cluster, path)
                                       : text_of_refining + "profile written to " + path + "\n");
    }
    return kExitDone;
}

int calibrate_gpu(const CalibrateOptions& options) {
    if (options.output.empty()) throw InputError("command line", "--output", "none", "a file, beside --gpu");
    const topologies::ClusterSpec base = topologies::load_cluster(options.gpu, 1);
    exec::check_gpu_calibration(base);
    exec::Transport transport;
    try {
        return write_profile(options, exec::measure_gpu_cluster(base, transport, today()), options.output);
    } catch (const std::exception& error) {
        transport.abort(kExitJobFailed, error.what());
    }
}

int calibrate_from(const CalibrateOptions& options) {
    if (options.output.empty() && options.refine.cluster != "local") {
        throw InputError("command line", "--output", "none", "a file, beside --cluster");
    }
    const RefinedProfile refined = refined_profile(options.refine);
    const std::string path = options.output.empty() ? topologies::local_profile_path() : options.output;
    return write_profile(options, refined.cluster, path, refined.text);
}

int run_calibrate(const CalibrateOptions& options) {
    if (options.worker) return run_worker(options);
    if (options.check) return run_check_rates();
    if (!options.fit.files.empty()) return run_calibrate_collectives(options.fit, options.json);
    if (!options.rows.files.empty()) return run_calibrate_rows(options.rows, options.output);
    if (!options.gpu.empty()) return calibrate_gpu(options);
    if (!options.refine.results.empty()) return calibrate_from(options);
    const std::string path = options.output.empty() ? topologies::local_profile_path() : options.output;
    const auto cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    const TemporaryFolder folder;
    std::vector<exec::Measurements> jobs;
    std::vector<int> sizes{cores};
    for (int ranks : {2, 4, 8}) {  // common sizes of small plans; ranks beyond `cores` take turns
        if (ranks != cores) sizes.push_back(ranks);
    }
    for (int ranks : sizes) {
        if (isatty(STDERR_FILENO) != 0) say(fmt::format("measuring with {} rank(s) ...\n", ranks));
        const std::string result = folder.file("ranks-" + std::to_string(ranks) + ".json");
        std::vector<std::string> arguments{"calibrate",           "--worker",        "--worker-ranks",
                                           std::to_string(ranks), "--worker-output", result};
        if (ranks == cores) arguments.emplace_back("--worker-compute");
        if (options.quick) arguments.emplace_back("--quick");
        run_self(arguments, "measuring with " + std::to_string(ranks) + " ranks");
        jobs.push_back(exec::measurements_from_json_text(read_text_file(result), result));
    }
    return write_profile(options, exec::make_local_cluster(jobs, today()), path);
}

/// Adds the options of the fit to published runs; returns --rows.
CLI::Option* add_rows(CLI::App& command, CalibrateRowsOptions& fit) {
    CLI::Option* rows = command.add_option(
        "--rows", fit.files,
        "Measure nothing: fit rates to the published runs in these files or folders (in the formats "
        "of validate --rows), and print rates and errors; --output: the folder for fitted.json, "
        "spread.json and predictions.json (with left-out runs: the rates in a folder for each part)");
    CLI::Option* cross_validate =
        command
            .add_flag("--cross-validate", fit.cross_validate,
                      "Print the errors of each fifth of the runs, predicted with rates fitted to the others")
            ->needs(rows);
    command
        .add_flag("--leave-sources-out", fit.leave_sources_out,
                  "Print the errors of each team's runs, predicted with rates fitted to all the others")
        ->needs(rows)
        ->excludes(cross_validate);
    return rows;
}

/// Hidden options with which the command starts its own measuring jobs.
void add_worker(CLI::App& command, CalibrateOptions& options) {
    command.add_flag("--worker", options.worker)->group("");
    command.add_flag("--worker-compute", options.compute)->group("");
    command.add_option("--worker-ranks", options.ranks)->group("");
    command.add_option("--worker-output", options.worker_output)->group("");
}

}  // namespace

void add_calibrate(CLI::App& app, Action& chosen) {
    auto options = std::make_shared<CalibrateOptions>();
    CLI::App* command =
        app.add_subcommand("calibrate", "Measure this machine for the cluster `local`; a minute or two");
    CLI::Option* output = command->add_option(
        "--output", options->output, "Where to write the profile (default: where `--cluster local` looks for it)");
    CLI::Option* gpu =
        command->add_option("--gpu", options->gpu,
                            "Measure this machine's GPU and write it in place of the device of this GPU cluster (a "
                            "preset or a file); needs --output");
    CLI::Option* from =
        command
            ->add_option("--from", options->refine.results,
                         "Measure nothing: refine the timings of a profile with the runs in this folder, each "
                         "NAME.plan.json with NAME.record.json, as validate --records writes them")
            ->excludes(gpu);
    command->add_option("--cluster", options->refine.cluster, "The profile that --from refines: a preset or a file")
        ->needs(from)
        ->capture_default_str();
    CLI::Option* collectives =
        command
            ->add_option("--collectives", options->fit.files,
                         "Measure nothing: fit a profile's NCCL figures to the measured collectives in these files "
                         "(in the formats of validate --collectives), and print figures and errors")
            ->excludes(gpu)
            ->excludes(from)
            ->excludes(output);
    command->add_option("--profile", options->fit.profile, "The profile to fit: a device or a link of the catalogue")
        ->needs(collectives);
    CLI::Option* rows = add_rows(*command, options->rows)->excludes(gpu)->excludes(from)->excludes(collectives);
    CLI::Option* check =
        command
            ->add_flag(
                "--check", options->check,
                "Measure nothing: list the built-in fitted rates, and fail if there are too many or if one has no "
                "prior, too little information from runs, or no runs that it was fitted to")
            ->excludes(gpu)
            ->excludes(from)
            ->excludes(collectives)
            ->excludes(rows)
            ->excludes(output);
    command
        ->add_flag("--leave-devices-out", options->fit.leave_devices_out,
                   "Fit nothing: predict each device's collectives with figures derived from the other devices")
        ->needs(collectives);
    command
        ->add_flag("--quick", options->quick,
                   "Time the operators of the smallest models alone: a rougher profile in a few seconds")
        ->excludes(gpu)
        ->excludes(from)
        ->excludes(collectives)
        ->excludes(rows)
        ->excludes(check);
    command->add_flag("--json", options->json, "Print JSON: orrery.cluster/1, with --collectives orrery.nccl_fit/1")
        ->excludes(rows);
    add_worker(*command, *options);
    command->footer(
        "Example: orrery calibrate --quick --output local.cluster.json\n"
        "A GPU: orrery calibrate --gpu dgx-h100 --output gpu.cluster.json\n"
        "Refine: orrery calibrate --from results --output refined.cluster.json\n"
        "Rates: orrery calibrate --rows published.json --output rates\n"
        "NCCL's figures: orrery calibrate --collectives measured.csv --profile h100-sxm-80gb");
    command->callback([options, &chosen] { chosen = [options] { return run_calibrate(*options); }; });
}

}  // namespace orrery::cli
