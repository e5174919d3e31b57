#include "reports/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/units.h"
#include "reports/class_means.h"
#include "reports/span_place.h"
#include "reports/table.h"
#include "sim/program/memory_spread.h"

namespace orrery::reports {
namespace {

constexpr double kTera = 1e12;

std::string stage_name(const program::Program& program, std::int32_t rank_class) {
    return program.classes.at(static_cast<std::size_t>(rank_class)).name;
}

std::string savings_of(const program::MemorySavings& savings) {
    std::string text = "recomputation " + program::name_of(savings.recompute);
    if (savings.recompute == program::Recompute::selective) {
        const std::vector<std::string> core = {"attention_core"};
        text += fmt::format(" ({})", fmt::join(savings.recompute_parts.empty() ? core : savings.recompute_parts, ", "));
    }
    const auto blocks = [](std::int64_t count) {
        return fmt::format("{} block{} a chunk", count, count == 1 ? "" : "s");
    };
    if (savings.recompute_layers >= 0) text += " of " + blocks(savings.recompute_layers);
    if (savings.offload_layers > 0) text += "; activations of " + blocks(savings.offload_layers) + " on the host";
    if (savings.offload_optimizer) text += "; optimizer states on the host";
    if (savings.offload_parameters) text += "; parameter shards on the host";
    return text;
}

/// The degrees of all axes, and what is done with the copies.
std::string layout_text(const program::Plan& plan) {
    const program::Parallelism& parallelism = plan.parallelism;
    std::string text =
        fmt::format("  ranks        rank order {}; tp {}, cp {}, dp {}, pp {}; experts: etp {}, ep {}, edp {}\n",
                    program::mesh_order_text(parallelism), parallelism.tp, parallelism.cp, parallelism.dp,
                    parallelism.pp, parallelism.etp, parallelism.ep, parallelism.expert_dp());
    text += fmt::format("  data         {}", program::name_of(parallelism.data_parallel));
    if (parallelism.shards_optimizer()) {
        text += fmt::format(": {} sharded over {} ranks",
                            parallelism.shards_parameters()  ? "parameters, gradients and optimizer states"
                            : parallelism.shards_gradients() ? "gradients and optimizer states"
                                                             : "optimizer states",
                            format_integer(parallelism.shard_ranks()));
    }
    text += "\n  pipeline     ";
    if (parallelism.pp > 1) {
        text += fmt::format("{}, {} chunk{} a rank", program::name_of(parallelism.schedule), parallelism.chunks,
                            parallelism.chunks == 1 ? "" : "s");
    } else {
        text += "none";
    }
    text += "\n  memory       " + savings_of(plan.training.memory) + "\n";
    return text;
}

std::string head_text(const program::Plan& plan, const program::RunRecord& record, models::FlopsConvention convention) {
    const Throughput rates = throughput_of(plan, record.step_time_s, convention);
    std::string text = fmt::format("{} ({})\n", plan.name, name_of(record.maker));
    text += fmt::format(
        "  model        {}, sequence {}, global batch {} ({} micro-batches of {} a data-parallel rank)\n",
        plan.model.name, format_integer(plan.training.sequence_length), format_integer(plan.training.global_batch_size),
        format_integer(plan.micro_batches()), format_integer(plan.training.micro_batch_size));
    text += fmt::format("  strategy     {}\n", strategy_of(plan));
    text += layout_text(plan);
    text += fmt::format("  cluster      {}, {} ranks, {}\n", plan.cluster.name,
                        format_integer(plan.parallelism.world_size()), plan.cluster.device.name);
    text += fmt::format("  step time    {}", format_seconds(record.step_time_s));
    if (record.step_time_high_s > 0) {
        text += fmt::format(" (90%: {} to {})", format_seconds(record.step_time_low_s),
                            format_seconds(record.step_time_high_s));
    }
    if (record.step_seconds.size() > 1) {
        const auto [low, high] = std::minmax_element(record.step_seconds.begin(), record.step_seconds.end());
        text += fmt::format(" (median of {}; {} to {})", record.step_seconds.size(), format_seconds(*low),
                            format_seconds(*high));
    } else if (record.maker == program::Maker::executed) {
        text += " (n=1)";
    }
    text += fmt::format("\n  throughput   {} tokens/s, {} tokens/s/device, {} model FLOP/s/device\n",
                        format_count(rates.tokens_per_s), format_count(rates.tokens_per_s_per_device),
                        format_count(rates.model_flops_per_s_per_device));
    text += fmt::format("               {}\n", rates.statement);
    text += fmt::format("  idle         {} of the ranks' time is not compute (bubble and exposed communication)\n",
                        format_percent(record.bubble_fraction));
    if (!record.checkpoint_seconds.empty()) {
        const auto& seconds = record.checkpoint_seconds;
        const double mean = std::accumulate(seconds.begin(), seconds.end(), 0.0) / static_cast<double>(seconds.size());
        const auto bytes = static_cast<double>(record.checkpoint_bytes);
        text += fmt::format("  checkpoints  {} of {}, {} each between steps (mean; {}/s)\n", seconds.size(),
                            format_bytes(bytes), format_seconds(mean), format_bytes(bytes / mean));
    }
    return text;
}

std::string stream_text(const program::Program& program, const program::RunRecord& record) {
    Table table({{"stage", Align::left}, {"stream", Align::left}, {"busy"}, {"of step"}, {"exposed"}, {"sent a rank"}});
    for (const ClassMeans& means : class_means(record)) {
        for (const program::Stream stream : all_streams()) {
            const auto i = static_cast<std::size_t>(stream);
            if (means.busy_s[i] == 0 && means.bytes_sent[i] == 0) continue;
            const bool is_compute = stream == program::Stream::compute;
            const double sent = static_cast<double>(means.bytes_sent[i]) / static_cast<double>(means.ranks);
            table.add_row({stage_name(program, means.rank_class), std::string(program::name_of(stream)),
                           format_seconds(means.busy_s[i]), format_percent(means.busy_s[i] / record.step_time_s),
                           is_compute ? "" : format_seconds(means.exposed_s[i]), is_compute ? "" : format_bytes(sent)});
        }
    }
    return table.to_text(2);
}

std::string memory_text(const program::Program& program, const program::RunRecord& record) {
    using Part = std::int64_t program::MemoryFootprint::*;
    struct Named {
        const char* name;
        Part part;
        bool always;  // else only where some stage has it
    };
    constexpr std::array<Named, 12> kParts = {{{"parameters", &program::MemoryFootprint::parameters, true},
                                               {"gathered", &program::MemoryFootprint::gathered, false},
                                               {"gradients", &program::MemoryFootprint::gradients, true},
                                               {"reductions", &program::MemoryFootprint::reductions, false},
                                               {"optimizer", &program::MemoryFootprint::optimizer_states, true},
                                               {"offload window", &program::MemoryFootprint::offload_window, false},
                                               {"framework", &program::MemoryFootprint::framework, false},
                                               {"activations", &program::MemoryFootprint::activations_arena, true},
                                               {"transients", &program::MemoryFootprint::transients_arena, true},
                                               {"boundaries", &program::MemoryFootprint::boundaries_arena, true},
                                               {"host memory", &program::MemoryFootprint::host, false},
                                               {"conversions", &program::MemoryFootprint::conversions, false}}};
    std::vector<Column> columns = {{"stage", Align::left}};
    std::vector<Part> parts;
    for (const Named& named : kParts) {
        const bool used = std::any_of(program.classes.begin(), program.classes.end(),
                                      [&](const auto& rank_class) { return rank_class.memory.*named.part != 0; });
        if (!named.always && !used) continue;
        columns.push_back({named.name});
        parts.push_back(named.part);
    }
    for (const std::string& name : {std::string("arena"), std::string("live peak"), name_of(record.maker) + " peak"}) {
        columns.push_back({name});
    }
    columns.push_back({"live peak at", Align::left});
    Table table(columns);
    for (const ClassMeans& means : class_means(record)) {
        const program::RankClass& rank_class = program.classes.at(static_cast<std::size_t>(means.rank_class));
        const program::MemoryFootprint& memory = rank_class.memory;
        std::vector<std::string> row = {rank_class.name};
        for (const Part part : parts) row.push_back(format_memory(memory.*part));
        row.insert(row.end(), {format_memory(memory.arena), format_memory(memory.live_peak),
                               format_memory(means.memory_peak_bytes)});
        row.push_back(memory.peak_action < 0
                          ? "-"
                          : label_of(rank_class.actions.at(static_cast<std::size_t>(memory.peak_action))));
        table.add_row(std::move(row));
    }
    return table.to_text(2);
}

/// What a device holds, by the kinds in which tools report it; nothing where the host computes or the run was real.
std::string device_memory_text(const program::Program& program, const program::RunRecord& record) {
    Table table({{"stage", Align::left},
                 {"allocated"},
                 {"cached beside"},
                 {"reserved"},
                 {"context"},
                 {"NCCL"},
                 {"runtime"},
                 {"in use"},
                 {"90%"},
                 {"P(fits)"}});
    std::set<std::int32_t> shown;
    for (const program::RankRecord& rank : record.ranks) {
        const program::DeviceMemory& memory = rank.device_memory;
        if (memory == program::DeviceMemory{} || !shown.insert(rank.rank_class).second) continue;
        const program::MemoryOutlook outlook = program::memory_outlook(to_gib(Bytes(memory.in_use())), *program.plan);
        table.add_row(
            {program.classes.at(static_cast<std::size_t>(rank.rank_class)).name, format_memory(memory.allocated()),
             format_memory(memory.cached), format_memory(memory.reserved()), format_memory(memory.context),
             format_memory(memory.communicators), format_memory(memory.runtime), format_memory(memory.in_use()),
             "±" + format_percent(std::sqrt(outlook.high_gib / outlook.low_gib) - 1),
             format_percent(outlook.fit_probability)});
    }
    if (table.row_count() == 0) return "";
    return "\nMemory of a device: reserved is allocated and what the allocator keeps beside it; cuBLAS's workspaces "
           "are "
           "allocated. P(fits): that what is in use stays within the device's memory\n" +
           table.to_text(2);
}

}  // namespace

Throughput throughput_of(const program::Plan& plan, double step_time_s, models::FlopsConvention convention) {
    ORRERY_CHECK(step_time_s > 0, "a step takes time");
    const auto devices = static_cast<double>(plan.parallelism.world_size());
    const auto sequences = static_cast<double>(plan.training.global_batch_size);
    const std::int64_t length = plan.training.sequence_length;
    Throughput rates;
    rates.convention = convention;
    rates.tokens_per_s = sequences * static_cast<double>(length) / step_time_s;
    rates.tokens_per_s_per_device = rates.tokens_per_s / devices;
    rates.model_flops_per_s_per_device =
        models::model_flops_per_sequence(plan.model, length, convention) * sequences / step_time_s / devices;

    const DType dtype = plan.training.precision.activation;
    const auto& peaks = plan.cluster.device.peaks;
    const auto peak =
        std::find_if(peaks.begin(), peaks.end(), [&](const auto& candidate) { return candidate.dtype == dtype; });
    if (peak == peaks.end() || !(peak->tflops.value > 0)) {
        rates.statement = fmt::format("MFU unknown: {} has no {} peak (convention {})", plan.cluster.device.name,
                                      orrery::name_of(dtype), models::name_of(convention));
        return rates;
    }
    rates.peak_flops_per_s = peak->tflops.value * kTera;
    rates.mfu = rates.model_flops_per_s_per_device / *rates.peak_flops_per_s;
    rates.statement = fmt::format("MFU {} (convention {}; peak {:.4g} TFLOP/s {} dense, {})",
                                  format_percent(*rates.mfu), models::name_of(convention), peak->tflops.value,
                                  orrery::name_of(dtype), topologies::name_of(peak->tflops.kind));
    return rates;
}

std::string summary_text(const program::Program& program, const program::RunRecord& record,
                         models::FlopsConvention convention) {
    std::string text = head_text(*program.plan, record, convention);
    text += "\nTime by stream, mean over the ranks of a stage\n" + stream_text(program, record);
    text += "\nMemory of a rank: arena is what is allocated, live peak what a perfect allocator would need\n" +
            memory_text(program, record) + device_memory_text(program, record);
    if (!record.notes.empty()) text += "\nNotes\n";
    for (const std::string& note : record.notes) text += "  - " + note + "\n";
    return text;
}

std::string name_of(program::Maker maker) {
    return maker == program::Maker::simulated ? "predicted" : "measured";
}

std::string strategy_of(const program::Plan& plan) {
    const program::Parallelism& parallelism = plan.parallelism;
    std::string text = fmt::format("dp {} x tp {}", parallelism.dp, parallelism.tp);
    if (parallelism.cp > 1) text += fmt::format(" x cp {}", parallelism.cp);
    text += fmt::format(" x pp {}", parallelism.pp);
    if (parallelism.ep > 1) text += fmt::format(", ep {}", parallelism.ep);
    if (parallelism.sequence_parallel) text += ", sequence parallel";
    if (parallelism.pp > 1) text += ", " + program::name_of(parallelism.schedule);
    if (parallelism.data_parallel != program::DataParallel::ddp) {
        text += ", " + program::name_of(parallelism.data_parallel);
    }
    return text;
}

}  // namespace orrery::reports
