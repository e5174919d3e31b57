#include "sim/engine/simulate.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/error.h"
#include "sim/cost/table_cost.h"
#include "sim/engine/compiled_program.h"
#include "sim/engine/shared_work.h"
#include "sim/engine/simulation.h"
#include "sim/engine/symmetry.h"

namespace orrery::sim {

namespace {

std::size_t at(std::int64_t index) {
    return static_cast<std::size_t>(index);
}

/// Units of a resource that moving `bytes` in `duration` takes at full speed; at most the whole of one.
std::int64_t share_of_link(std::int64_t bytes, Picoseconds duration, const topologies::LinkProfile& link) {
    const double bytes_per_s =
        link.bandwidth_gb_per_s_per_direction.value * kGigabyte * std::min(1.0, link.efficiency.value);
    if (bytes <= 0 || duration.value() <= 0 || bytes_per_s <= 0) return 0;
    const double share = static_cast<double>(bytes) / bytes_per_s / to_seconds(duration);
    return static_cast<std::int64_t>(std::min(1.0, share) * static_cast<double>(kUnit));
}

/// Units of its node's cores that each member keeps busy: a core, unless the members on a node are more than its cores.
/// Then the operation's time already holds their taking turns, and alone they take just the whole node.
std::int64_t core_share(const Quotient::Placement& placement, const topologies::ClusterSpec& cluster) {
    std::map<std::int64_t, std::int64_t> members;  // by node
    for (const std::int64_t device : placement.devices) ++members[device / cluster.devices_per_node];
    std::int64_t most = 1;
    for (const auto& [node, count] : members) most = std::max(most, count);
    return std::min(kUnit, std::max<std::int64_t>(1, cluster.device.cores_per_node * kUnit / most));
}

std::vector<std::vector<OperationLoad>> operation_loads(const CompiledProgram& compiled, const Quotient& quotient,
                                                        const topologies::ClusterSpec& cluster,
                                                        const CommunicationCost& communication) {
    std::vector<std::vector<OperationLoad>> loads;
    loads.reserve(quotient.placements.size());
    for (const Quotient::Placement& placement : quotient.placements) {
        const std::vector<Operation>& operations = compiled.operations[static_cast<std::size_t>(placement.axis)];
        std::vector<OperationLoad>& here = loads.emplace_back(operations.size());
        if (placement.devices.size() < 2) continue;  // a group of one has nobody to talk to
        const std::vector<OperationCost> costs = communication.costs(placement.axis, operations, placement.devices);
        ORRERY_CHECK(costs.size() == operations.size(), "a communication cost is missing");
        const std::int64_t cores = core_share(placement, cluster);
        for (std::size_t i = 0; i < costs.size(); ++i) {
            const std::int64_t port = share_of_link(costs[i].port_bytes, costs[i].duration, cluster.intra_node);
            const std::int64_t nic = share_of_link(costs[i].nic_bytes, costs[i].duration, cluster.nic);
            ORRERY_CHECK(costs[i].duration.value() >= 0, "a communication takes negative time");
            here[i] = {costs[i].duration.value(), {cores, port, port, nic, nic, 0, 0}};
        }
    }
    return loads;
}

program::RankRecord rank_record(const Simulation& simulation, const SimulationInput& input, std::size_t rank,
                                const topologies::DeviceProfile& device) {
    const program::Program& program = *input.program;
    program::RankRecord record;
    record.rank = input.quotient.ranks[rank];
    record.multiplicity = input.quotient.multiplicity[rank];
    record.rank_class = program.class_of(record.rank);
    record.streams = simulation.stream_times(rank);
    const program::MemoryFootprint& memory = program.classes[at(record.rank_class)].memory;
    const auto context = static_cast<std::int64_t>(std::llround(device.context_gib.value * kGibibyte));
    record.memory = program::memory_parts(memory);
    record.memory.push_back({program::kRuntimeMemory, context});
    record.memory_peak_bytes = context + memory.allocated(device.host_runs_compute);
    record.memory_live_peak_bytes = context + memory.most_alive(device.host_runs_compute);
    if (input.record_spans) record.spans = simulation.spans(rank);
    return record;
}

/// Every step's time but the first's, of those that ended by `until_ps`; that of the first when it is the only one.
std::vector<double> step_seconds(const std::vector<std::int64_t>& ends, std::int64_t until_ps) {
    std::vector<double> seconds;
    if (ends.size() == 1 || ends[1] > until_ps) return {to_seconds(Picoseconds(ends.front()))};
    for (std::size_t step = 1; step < ends.size() && ends[step] <= until_ps; ++step) {
        seconds.push_back(to_seconds(Picoseconds(ends[step] - ends[step - 1])));
    }
    return seconds;
}

program::RunRecord record_of(const Simulation& simulation, const SimulationInput& input,
                             const topologies::DeviceProfile& device) {
    const program::Program& program = *input.program;
    program::RunRecord record;
    record.maker = program::Maker::simulated;
    record.plan_name = program.plan->name;
    std::vector<std::vector<program::StreamVolume>> volumes;
    for (std::size_t c = 0; c < program.classes.size(); ++c) {
        volumes.push_back(program::volumes(program, static_cast<std::int32_t>(c)));
    }
    Wide compute_ps = 0;
    for (std::size_t rank = 0; rank < input.quotient.ranks.size(); ++rank) {
        program::RankRecord& added = record.ranks.emplace_back(rank_record(simulation, input, rank, device));
        for (const program::StreamVolume& volume : volumes[at(added.rank_class)]) {
            added.bytes_sent[static_cast<std::size_t>(volume.stream)] += volume.wire_bytes;
            if (volume.wire_bytes > 0) added.collectives.push_back({volume.stream, volume.kind, volume.wire_bytes});
        }
        compute_ps += static_cast<Wide>(added.streams[0].busy_ps) * added.multiplicity;
    }
    const std::vector<std::int64_t>& ends = simulation.step_ends();
    const std::int64_t period = ends[at(input.steps) - 1] - (input.steps > 1 ? ends[at(input.steps) - 2] : 0);
    const Wide rank_ps = static_cast<Wide>(period) * program.world_size();
    const double busy_share = rank_ps > 0 ? static_cast<double>(compute_ps) / static_cast<double>(rank_ps) : 1.0;
    record.bubble_fraction = std::max(0.0, 1.0 - busy_share);
    return record;
}

/// To the end of all jobs.
void run(SharedWork& work, std::vector<Simulation>& jobs) {
    std::int32_t slots = 0;
    for (const Simulation& job : jobs) slots += job.own_slots();
    work.seal(slots);
    std::int32_t first_slot = work.activity_count();
    for (Simulation& job : jobs) {
        job.begin(first_slot);
        first_slot += job.own_slots();
    }
    EventQueue& queue = work.queue();
    Simulation* const only = jobs.size() == 1 ? &jobs.front() : nullptr;
    while (!queue.empty()) {
        if (work.needs_settling() && queue.next_time() > queue.now()) work.settle();
        const std::int32_t slot = queue.pop().slot;
        const bool is_activity = slot < work.activity_count();
        Simulation* job = only;
        if (job == nullptr) {
            job = &*std::find_if(jobs.begin(), jobs.end(), [&](const Simulation& one) {
                return is_activity ? one.has_activity(slot) : one.has_own_slot(slot);
            });
        }
        if (is_activity) {
            job->finish_activity(slot);
        } else {
            job->wake(slot);
        }
    }
    for (const Simulation& job : jobs) job.check_finished();
}

void set_options(SimulationInput& input, const topologies::DeviceProfile& device, const SimulateOptions& options) {
    ORRERY_CHECK(options.steps >= 1, "at least one step has to be simulated");
    input.launch_ps = program::launch_time(device, input.program->plan->implementation.host).value();
    input.steps = options.steps;
    input.record_spans = options.record_spans;
}

/// One record for each input.
std::vector<program::RunRecord> run(std::span<const SimulationInput> inputs,
                                    const std::vector<std::int64_t>& capacity_units,
                                    const topologies::DeviceProfile& device) {
    SharedWork work;
    for (const std::int64_t capacity : capacity_units) (void)work.add_resource(capacity);
    Company company;
    std::vector<Simulation> jobs;
    jobs.reserve(inputs.size());
    for (const SimulationInput& input : inputs) jobs.emplace_back(input, work, company);
    run(work, jobs);

    std::int64_t all_done_ps = 0;  // when the last job came to the end of its steps
    for (std::size_t j = 0; j < jobs.size(); ++j) {
        all_done_ps = std::max(all_done_ps, jobs[j].step_ends()[at(inputs[j].steps) - 1]);
    }
    std::vector<program::RunRecord> records;
    for (std::size_t j = 0; j < jobs.size(); ++j) {
        program::RunRecord& record = records.emplace_back(record_of(jobs[j], inputs[j], device));
        record.step_seconds = step_seconds(jobs[j].step_ends(), all_done_ps);
        if (jobs.size() == 1) record.step_seconds = {record.step_seconds.back()};
        program::summarise_steps(record);
    }
    return records;
}

}  // namespace

std::vector<program::RunRecord> simulate_together(std::span<const Job> jobs, const topologies::Cluster& cluster,
                                                  const CommunicationCost& communication,
                                                  const SimulateOptions& options) {
    const topologies::ClusterSpec& spec = cluster.spec();
    std::vector<JobOnCluster> placed;
    for (const Job& job : jobs) {
        placed.push_back({job.program, place_ranks(job.program->plan->parallelism, spec, job.devices)});
    }
    Quotients quotients = make_quotients(placed, spec, options.full);
    std::vector<SimulationInput> inputs(jobs.size());
    for (std::size_t j = 0; j < jobs.size(); ++j) {
        SimulationInput& input = inputs[j];
        input.program = jobs[j].program;
        set_options(input, spec.device, options);
        input.compiled = compile(*jobs[j].program, *jobs[j].cost, spec.device.host_runs_compute);
        input.quotient = std::move(quotients.jobs[j]);
        input.loads = operation_loads(input.compiled, input.quotient, spec, communication);
    }
    std::vector<program::RunRecord> records = run(inputs, quotients.capacity_units, spec.device);
    for (std::size_t j = 0; j < jobs.size(); ++j) {
        records[j].notes = jobs[j].cost->notes(*jobs[j].program);
        const std::vector<std::string> network_notes = communication.notes(*jobs[j].program);
        records[j].notes.insert(records[j].notes.end(), network_notes.begin(), network_notes.end());
    }
    return records;
}

program::RunRecord simulate(const program::Program& program, const topologies::Cluster& cluster, const CostModel& cost,
                            const CommunicationCost& communication, const SimulateOptions& options) {
    const Job job{.program = &program, .cost = &cost, .devices = {}};
    return std::move(simulate_together(std::span(&job, 1), cluster, communication, options).front());
}

program::RunRecord replay(const program::Program& program, const program::Durations& durations,
                          const SimulateOptions& options) {
    const topologies::ClusterSpec& spec = program.plan->cluster;
    SimulationInput input;
    input.program = &program;
    input.durations = &durations;
    set_options(input, spec.device, options);
    input.compiled = compile(program, ActionTableCost(ActionTableCost::Durations()), spec.device.host_runs_compute);
    Quotients quotients = make_quotients(program, spec, true);
    input.quotient = std::move(quotients.jobs.front());
    for (auto& attachments : input.quotient.attachments) attachments.fill({});
    for (const Quotient::Placement& placement : input.quotient.placements) {
        input.loads.emplace_back(input.compiled.operations[static_cast<std::size_t>(placement.axis)].size());
    }
    program::RunRecord record = std::move(run(std::span(&input, 1), quotients.capacity_units, spec.device).front());
    record.notes.emplace_back("replayed: durations are those of a record");
    return record;
}

}  // namespace orrery::sim
