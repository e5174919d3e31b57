#include "reports/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/units.h"
#include "reports/class_means.h"
#include "reports/model_text.h"
#include "reports/span_place.h"
#include "reports/table.h"
#include "sim/program/rate_spread.h"

namespace orrery::reports {
namespace {

std::string stage_name(const program::Program& program, program::ClassIndex rank_class) {
    return program.classes.at(rank_class).name;
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

/// The degrees of all axes, and how data-parallel state is sharded.
std::string layout_text(const program::Plan& plan) {
    const program::Parallelism& parallelism = plan.parallelism;
    std::string text =
        fmt::format("  ranks        rank order {}; tp {}, cp {}, dp {}, pp {}; experts: etp {}, ep {}, edp {}\n",
                    program::mesh_order_text(parallelism), parallelism.tp, parallelism.cp, parallelism.dp,
                    parallelism.pp, parallelism.etp, parallelism.ep, parallelism.expert_dp());
    if (parallelism.overlaps_experts) {
        text += "  overlap      a forward and a backward pass in turns: one computes while the other's tokens travel\n";
    }
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
    if (plan.training.checks_gradients() && plan.training.optimizer.post_validation)
        text += "; updates validated later";
    text += "\n  memory       " + savings_of(plan.training.memory);
    const DType moments = plan.training.precision.moments;
    if (moments != DType::fp32) text += fmt::format("; moments in {}", orrery::name_of(moments));
    return text + "\n";
}

/// What the convention counts, followed by its name.
std::string words_of(models::FlopsConvention convention) {
    switch (convention) {
        case models::FlopsConvention::palm:
            return "a token 6 N + 12 L h s (palm)";
        case models::FlopsConvention::full_attention:
            return "of every product, attention as the full square (full_attention)";
        case models::FlopsConvention::causal_half:
            return "of every product, causal attention halved (causal_half)";
    }
    return models::name_of(convention);
}

/// All time without compute, and the parts of it that are exposed communication and pipeline bubble.
std::string idle_text(const program::Program& program, const program::RunRecord& record) {
    std::string text =
        fmt::format("  idle         {} of the ranks' time is not compute", format_percent(record.idle_fraction));
    if (program.plan->parallelism.pp > 1) {
        const double exposed = program::exposed_seconds(record) / record.step_time_s;
        text += fmt::format(": {} exposed communication within stages, {} pipeline bubble", format_percent(exposed),
                            format_percent(program::bubble_fraction(*program.plan, record.idle_fraction, exposed)));
    }
    return text + "\n";
}

std::string head_text(const program::Program& program, const program::RunRecord& record) {
    const program::Plan& plan = *program.plan;
    const double tokens_per_s = static_cast<double>(plan.training.global_batch_size) *
                                static_cast<double>(plan.training.sequence_length) / record.step_time_s;
    const program::Utilization utilization =
        program::utilization_of(plan, record.step_time_s, program::recomputed_flops(program));
    const std::string origin = program::is_emulated(record.environment) ? "on emulated GPUs" : name_of(record.maker);
    std::string text = fmt::format("{} ({})\n", plan.name, origin);
    text += fmt::format(
        "  model        {} ({}), sequence {}, global batch {} ({} micro-batches of {} a data-parallel rank)\n",
        plan.model.name, parameters_text(plan.model), format_integer(plan.training.sequence_length),
        format_integer(plan.training.global_batch_size), format_integer(plan.micro_batches()),
        format_integer(plan.training.micro_batch_size));
    text += left_out_text(plan.model, plan.training.sequence_length, 15);
    text += fmt::format("  strategy     {}\n", strategy_of(plan));
    text += layout_text(plan);
    text += fmt::format("  cluster      {}, {} ranks\n", size_text(plan.cluster),
                        format_integer(plan.parallelism.world_size()));
    if (program::is_emulated(record.environment)) return text + "  step time    none: the GPUs are emulated\n";
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
                        format_count(tokens_per_s),
                        format_count(tokens_per_s / static_cast<double>(plan.parallelism.world_size())),
                        format_count(utilization.model_flops_per_s_per_device));
    if (utilization.peak_flops_per_s > 0) {
        text += fmt::format("               MFU {}, HFU {}\n", format_percent(utilization.mfu),
                            format_percent(utilization.hfu));
    }
    text += "               " + utilization_words(plan, utilization) + "\n";
    text += idle_text(program, record);
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
        for (const program::Stream stream : program::kStreams) {
            if (means.busy_s[stream] == 0 && means.bytes_sent[stream] == 0) continue;
            const bool is_compute = stream == program::Stream::compute;
            const double sent = static_cast<double>(means.bytes_sent[stream]) / static_cast<double>(means.ranks);
            table.add_row(
                {stage_name(program, means.rank_class), std::string(program::name_of(stream)),
                 format_seconds(means.busy_s[stream]), format_percent(means.busy_s[stream] / record.step_time_s),
                 is_compute ? "" : format_seconds(means.exposed_s[stream]), is_compute ? "" : format_bytes(sent)});
        }
    }
    return table.to_text(2);
}

/// A row per stream: the stage where it is busiest, the mean over all ranks, the stage where it is least busy.
std::string stream_extremes_text(const program::Program& program, const std::vector<ClassMeans>& stages,
                                 double step_time_s) {
    Table table({{"stream", Align::left},
                 {"busy: most"},
                 {"at", Align::left},
                 {"mean"},
                 {"least"},
                 {"at", Align::left},
                 {"of step, mean"},
                 {"exposed: most"},
                 {"mean"},
                 {"sent a rank, mean"}});
    for (const program::Stream stream : program::kStreams) {
        const auto shorter = [stream](const ClassMeans& a, const ClassMeans& b) {
            return a.busy_s[stream] < b.busy_s[stream];
        };
        const auto [least, most] = std::minmax_element(stages.begin(), stages.end(), shorter);
        double ranks = 0, busy = 0, exposed = 0, most_exposed = 0, sent = 0;
        for (const ClassMeans& stage : stages) {
            const auto here = static_cast<double>(stage.ranks);
            ranks += here;
            busy += here * stage.busy_s[stream];
            exposed += here * stage.exposed_s[stream];
            most_exposed = std::max(most_exposed, stage.exposed_s[stream]);
            sent += static_cast<double>(stage.bytes_sent[stream]);
        }
        if (busy == 0 && sent == 0) continue;
        const bool is_compute = stream == program::Stream::compute;
        table.add_row({std::string(program::name_of(stream)), format_seconds(most->busy_s[stream]),
                       stage_name(program, most->rank_class), format_seconds(busy / ranks),
                       format_seconds(least->busy_s[stream]), stage_name(program, least->rank_class),
                       format_percent(busy / ranks / step_time_s), is_compute ? "" : format_seconds(most_exposed),
                       is_compute ? "" : format_seconds(exposed / ranks),
                       is_compute ? "" : format_bytes(sent / ranks)});
    }
    return table.to_text(2);
}

/// The stages with the highest and the lowest memory peak.
std::vector<ClassMeans> memory_extremes(const std::vector<ClassMeans>& stages) {
    const auto emptier = [](const ClassMeans& a, const ClassMeans& b) {
        return a.memory_peak_bytes < b.memory_peak_bytes;
    };
    const auto [least, most] = std::minmax_element(stages.begin(), stages.end(), emptier);
    return {*most, *least};
}

std::string memory_text(const program::Program& program, const program::RunRecord& record,
                        const std::vector<ClassMeans>& stages) {
    using Part = std::int64_t program::MemoryFootprint::*;
    struct Named {
        const char* name;
        Part part;
        bool always;  // false: the column is shown only if some stage has a value
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
    for (const ClassMeans& means : stages) {
        const program::RankClass& rank_class = program.classes.at(means.rank_class);
        const program::MemoryFootprint& memory = rank_class.memory;
        std::vector<std::string> row = {rank_class.name};
        for (const Part part : parts) row.push_back(format_memory(memory.*part));
        row.insert(row.end(), {format_memory(memory.arena), format_memory(memory.live_peak),
                               format_memory(means.memory_peak_bytes)});
        row.push_back(memory.peak_action < 0 ? "-" : label_of(rank_class.actions.at(memory.peak_action)));
        table.add_row(std::move(row));
    }
    return table.to_text(2);
}

/// Device memory, by the kinds that tools report; empty on CPU clusters and for measured runs.
std::string device_memory_text(const program::Program& program, const program::RunRecord& record,
                               const std::vector<ClassMeans>& stages) {
    Table table({{"stage", Align::left},
                 {"allocated"},
                 {"cached"},
                 {"reserved"},
                 {"context"},
                 {"NCCL"},
                 {"runtime"},
                 {"in use"},
                 {"90%"},
                 {"P(fits)"}});
    for (const ClassMeans& stage : stages) {
        const auto of_stage = [&](const program::RankRecord& rank) { return rank.rank_class == stage.rank_class; };
        const program::RankRecord& rank = *std::find_if(record.ranks.begin(), record.ranks.end(), of_stage);
        const program::DeviceMemory& memory = rank.device_memory;
        if (memory == program::DeviceMemory{}) continue;
        const program::MemoryOutlook outlook = program::memory_outlook(to_gib(Bytes(memory.in_use())), *program.plan);
        table.add_row({program.classes.at(rank.rank_class).name, format_memory(memory.allocated()),
                       format_memory(memory.cached), format_memory(memory.reserved()), format_memory(memory.context),
                       format_memory(memory.communicators), format_memory(memory.runtime),
                       format_memory(memory.in_use()),
                       "±" + format_percent(std::sqrt(outlook.high_gib / outlook.low_gib) - 1),
                       format_percent(outlook.fit_probability)});
    }
    if (table.row_count() == 0) return "";
    return "\nMemory of a device: reserved is allocated plus cached by the allocator; cuBLAS's workspaces count as "
           "allocated. P(fits): probability that the memory in use stays within the device's memory\n" +
           table.to_text(2);
}

}  // namespace

std::string utilization_words(const program::Plan& plan, const program::Utilization& utilization) {
    const std::string convention = "model FLOPs " + words_of(utilization.convention);
    const auto& peaks = plan.cluster.device.peaks;
    const auto peak = std::find_if(peaks.begin(), peaks.end(),
                                   [&](const auto& candidate) { return candidate.dtype == utilization.type; });
    if (peak == peaks.end()) {
        return fmt::format("MFU unknown: {} has no {} peak; {}", plan.cluster.device.name,
                           orrery::name_of(utilization.type), convention);
    }
    return fmt::format("MFU: {} over {:.4g} TFLOP/s (dense {}, {}); HFU: with recomputed products", convention,
                       peak->tflops.value, orrery::name_of(utilization.type), topologies::name_of(peak->tflops.kind));
}

std::string summary_text(const program::Program& program, const program::RunRecord& record, Stages stages) {
    constexpr std::size_t kFew = 2;
    const std::vector<ClassMeans> all = class_means(record);
    const bool each = stages == Stages::each || all.size() <= kFew;
    const std::vector<ClassMeans> shown = each ? all : memory_extremes(all);
    std::string text = head_text(program, record);
    if (!program::is_emulated(record.environment)) {
        text += each ? "\nTime by stream, mean over the ranks of a stage\n" + stream_text(program, record)
                     : fmt::format("\nTime by stream, of {} stages (--details: of each)\n", all.size()) +
                           stream_extremes_text(program, all, record.step_time_s);
    }
    text += std::string("\nMemory of a rank") + (each ? "" : ", fullest and emptiest stage") +
            ": arena is what is allocated, live peak what a perfect allocator would need\n" +
            memory_text(program, record, shown) + device_memory_text(program, record, shown);
    if (!record.notes.empty()) text += "\nNotes\n";
    for (const std::string& note : record.notes) text += "  - " + note + "\n";
    return text;
}

std::string size_text(const topologies::ClusterSpec& cluster) {
    const std::string devices = format_integer(cluster.device_count()) + " " + cluster.device.name;
    if (cluster.nodes == 1) return cluster.name + ", " + devices;
    return fmt::format("{}, {} nodes of {} ({})", cluster.name, format_integer(cluster.nodes),
                       format_integer(cluster.devices_per_node), devices);
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
