#include "sim/engine/simulate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "core/error.h"
#include "sim/cost/table_cost.h"
#include "sim/engine/compiled_program.h"
#include "sim/engine/simulation.h"
#include "sim/engine/symmetry.h"
#include "sim/program/work_rates.h"
#include "sim/sharing/shared_work.h"

namespace orrery::sim {

namespace {

std::size_t at(std::int64_t index) {
    return static_cast<std::size_t>(index);
}

/// Units of a resource that moving `bytes` in `duration` takes at full speed; at most the whole of one.
std::int64_t share_of(std::int64_t bytes, Picoseconds duration, double bytes_per_s) {
    if (bytes <= 0 || duration.value() <= 0 || bytes_per_s <= 0) return 0;
    const double share = static_cast<double>(bytes) / bytes_per_s / to_seconds(duration);
    return static_cast<std::int64_t>(std::min(1.0, share) * static_cast<double>(kUnit));
}

double reached_bytes_per_s(const topologies::Figure& gb_per_s, const topologies::Figure& efficiency) {
    return gb_per_s.value * kGigabyte * std::min(1.0, efficiency.value);
}

std::int64_t share_of_link(std::int64_t bytes, Picoseconds duration, const topologies::LinkProfile& link) {
    return share_of(bytes, duration, reached_bytes_per_s(link.bandwidth_gb_per_s_per_direction, link.efficiency));
}

std::int64_t share_of_memory(const OperationCost& cost, const topologies::DeviceProfile& device) {
    return share_of(cost.memory_bytes, cost.duration,
                    reached_bytes_per_s(device.memory_bandwidth_gb_per_s, device.memory_efficiency));
}

std::int64_t share_of_compute_units(const OperationCost& cost, const topologies::DeviceProfile& device) {
    if (device.compute_units <= 0 || cost.compute_units <= 0) return 0;
    const double share = cost.compute_units / static_cast<double>(device.compute_units);
    return static_cast<std::int64_t>(std::min(1.0, share) * static_cast<double>(kUnit));
}

/// Units of its node's cores that each member keeps busy: a core, unless the members on a node are more than its cores.
/// Then the operation's time already holds their taking turns, and alone they take just the whole node.
std::int64_t core_share(const PlacedJob::Placement& placement, const topologies::ClusterSpec& cluster) {
    std::map<std::int64_t, std::int64_t> members;  // by node
    for (const std::int64_t device : placement.devices) ++members[device / cluster.devices_per_node];
    std::int64_t most = 1;
    for (const auto& [node, count] : members) most = std::max(most, count);
    return std::min(kUnit, std::max<std::int64_t>(1, cluster.device.cores_per_node * kUnit / most));
}

bool spans_nodes(const PlacedJob::Placement& placement, const topologies::ClusterSpec& cluster) {
    const auto node_of = [&](std::int64_t device) { return device / cluster.devices_per_node; };
    const std::int64_t first = node_of(placement.devices.front());
    return std::any_of(placement.devices.begin(), placement.devices.end(),
                       [&](std::int64_t device) { return node_of(device) != first; });
}

OperationLoad load_of(const OperationCost& cost, std::int64_t cores, const topologies::ClusterSpec& cluster) {
    ORRERY_CHECK(cost.duration.value() >= 0, "a communication takes negative time");
    const std::int64_t port = share_of_link(cost.port_bytes, cost.duration, cluster.intra_node);
    const std::int64_t nic = share_of_link(cost.nic_bytes, cost.duration, cluster.nic);
    OperationLoad load;
    load.duration_ps = cost.duration.value();
    load.units = {cores, port, port, nic, nic, 0, 0, 0, share_of_memory(cost, cluster.device)};
    load.held_compute_units = share_of_compute_units(cost, cluster.device);
    return load;
}

/// What takes longer in training than by its bytes keeps ports, links and memory as busy all the while: a fabric that
/// reaches less than its nominal bandwidth reaches no more for being shared.
void slow_down(OperationLoad& load, double rate, double wait_s) {
    if (rate != 1) {
        const double seconds = to_seconds(Picoseconds(load.duration_ps)) * rate;
        load.duration_ps = picoseconds_from_seconds(seconds).value();
    }
    load.wait_ps = picoseconds_from_seconds(wait_s).value();
    load.duration_ps += load.wait_ps;
}

/// What the stack's collectives hold of a device beyond their kernels' units.
void hold_share(OperationLoad& load, double rate, const topologies::DeviceProfile& device) {
    if (device.compute_units <= 0) return;
    const double share = std::min(1.0, rate);
    const auto units = static_cast<std::int64_t>(share * static_cast<double>(kUnit));
    if (units == 0) return;
    load.held_compute_units = std::min(load.held_compute_units + units, kUnit);
    load.held_by_rate = static_cast<double>(units) / static_cast<double>(load.held_compute_units);
}

void number_cells(std::vector<program::WorkCell>& cells, const program::WorkCell& communication, OperationLoad& load) {
    load.cell = cell_index(cells, communication);
    if (load.held_by_rate > 0) load.held_cell = cell_index(cells, program::hidden_cell(communication));
    if (load.wait_ps > 0) load.wait_cell = cell_index(cells, program::wait_cell(communication));
}

/// In one of the cluster's states.
std::vector<std::vector<OperationLoad>> operation_loads(CompiledProgram& compiled, const PlacedJob& job,
                                                        const ClusterState& state, std::int32_t number,
                                                        bool with_cells) {
    const topologies::ClusterSpec& cluster = state.cluster->spec();
    std::vector<std::vector<OperationLoad>> loads;
    loads.reserve(job.placements().size());
    for (const PlacedJob::Placement& placement : job.placements()) {
        const std::vector<Operation>& operations = compiled.operations[static_cast<std::size_t>(placement.axis)];
        std::vector<OperationLoad>& here = loads.emplace_back(operations.size());
        if (placement.devices.size() < 2) continue;  // a group of one has nobody to talk to
        const std::vector<OperationCost> costs =
            state.communication->costs(placement.axis, operations, placement.devices);
        ORRERY_CHECK(costs.size() == operations.size(), "a communication cost is missing");
        const std::int64_t cores = core_share(placement, cluster);
        const bool between_nodes = spans_nodes(placement, cluster);
        for (std::size_t i = 0; i < costs.size(); ++i) {
            const program::WorkCell cell = program::cell_of(operations[i].kind, placement.axis, between_nodes);
            const OperationCost& cost = costs[i];
            const program::Rates& rates = job.program().plan->rates;
            here[i] = load_of(cost, cores, cluster);
            slow_down(here[i], program::factor_of(cell, rates), program::wait_s(cell, rates));
            if (const auto key = program::hidden_key(cell)) hold_share(here[i], rates[*key], cluster.device);
            if (with_cells) number_cells(compiled.cells, cell, here[i]);
            if (!cost.algorithm || cost.duration.value() == 0) continue;
            here[i].links = FabricRate{{number, *cost.algorithm, operations[i].kind},
                                       static_cast<double>(operations[i].bytes) / to_seconds(cost.duration)};
        }
    }
    return loads;
}

FabricRates link_rates(const OperationLoads& loads) {
    FabricRates rates;
    for (const auto& state : loads) {
        auto& of_state = rates.emplace_back();
        for (const auto& placement : state) {
            auto& of_placement = of_state.emplace_back();
            for (const OperationLoad& load : placement) of_placement.push_back(load.links);
        }
    }
    return rates;
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
    const program::DeviceMemory held = program::device_memory(program, program.classes[at(record.rank_class)]);
    const bool on_host = device.host_runs_compute;
    record.memory = program::memory_parts(memory);
    record.memory.push_back({program::kRuntimeMemory, held.in_use() - held.reserved() + held.workspaces});
    record.memory_peak_bytes = held.in_use();
    record.memory_live_peak_bytes = held.context + memory.most_alive(on_host);
    if (!on_host) record.device_memory = held;
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
    record.idle_fraction = std::max(0.0, 1.0 - busy_share);
    return record;
}

/// When the cluster enters which states, and how it ends.
struct Timetable {
    std::vector<std::int64_t> changes_ps;  // of the second state, the third ...
    std::int64_t closed_ps = -1;           // from then on some members have no way to each other; -1: never
    std::string reason;                    // of that
};

/// Enters the cluster's states one after the other, as events of the jobs' queue.
class Changes {
  public:
    Changes(const Timetable& timetable, std::vector<Simulation>& jobs, EventQueue& queue, std::int32_t slot)
        : timetable_(timetable), jobs_(jobs), queue_(queue), slot_(slot) {
        schedule();
    }
    /// The event has come.
    void enter(std::int64_t unfinished) {
        if (unfinished == 0) return;
        if (next_ == timetable_.changes_ps.size()) throw InputError(timetable_.reason);
        ++next_;
        for (Simulation& job : jobs_) job.enter_next_state();
        schedule();
    }

  private:
    void schedule() {
        if (next_ < timetable_.changes_ps.size()) {
            queue_.schedule(slot_, timetable_.changes_ps[next_]);
        } else if (timetable_.closed_ps >= 0) {
            queue_.schedule(slot_, timetable_.closed_ps);
        }
    }
    const Timetable& timetable_;
    std::vector<Simulation>& jobs_;
    EventQueue& queue_;
    std::int32_t slot_;
    std::size_t next_ = 0;
};

/// To the end of all jobs.
void run(SharedWork& work, std::vector<Simulation>& jobs, const Company& company, const Timetable& timetable) {
    std::int32_t slots = 0;
    for (const Simulation& job : jobs) slots += job.own_slots();
    work.seal(slots + 1);
    std::int32_t slot_of_changes = work.activity_count();
    for (Simulation& job : jobs) {
        job.begin(slot_of_changes);
        slot_of_changes += job.own_slots();
    }
    EventQueue& queue = work.queue();
    Changes changes(timetable, jobs, queue, slot_of_changes);
    Simulation* const only = jobs.size() == 1 ? &jobs.front() : nullptr;
    while (work.settle_moment()) {
        const std::int32_t slot = queue.pop().slot;
        if (slot == slot_of_changes) {
            if (work.tangents() != nullptr)
                work.tangents()->set_now(work.tangents()->no_moment(), std::span<const Tangents::Term>());
            changes.enter(company.unfinished);
            continue;
        }
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
    ORRERY_CHECK(work.standing_still() == 0, "a resource is shared by more than it can divide");
    for (const Simulation& job : jobs) job.check_finished();
}

void set_options(SimulationInput& input, const topologies::DeviceProfile& device, const SimulateOptions& options) {
    ORRERY_CHECK(options.steps >= 1, "at least one step has to be simulated");
    input.host = host_times(*input.program->plan, device);
    input.steps = options.steps;
    input.record_spans = options.record_spans;
}

program::Sensitivity sensitivity_of(const Simulation& simulation, const std::vector<program::WorkCell>& cells) {
    const std::vector<double> derivatives = simulation.step_derivatives();
    program::Sensitivity result;
    for (std::size_t cell = 0; cell < cells.size(); ++cell) {
        if (derivatives[cell] == 0) continue;
        result.entries.push_back({cells[cell], derivatives[cell] / kPicosecondsPerSecond});
    }
    std::sort(result.entries.begin(), result.entries.end(),
              [](const auto& a, const auto& b) { return a.cell < b.cell; });
    return result;
}

/// No work can shorten a step by taking longer, or lengthen it by more than all of the step, but for the little that
/// sharing makes of it.
bool grew_without_bounds(const program::Sensitivity& sensitivity, double step_time_s) {
    constexpr double kLittle = 0.05;
    using Entry = program::Sensitivity::Entry;
    return std::any_of(sensitivity.entries.begin(), sensitivity.entries.end(), [&](const Entry& entry) {
        return entry.seconds < -kLittle * step_time_s || entry.seconds > (1 + kLittle) * step_time_s;
    });
}

/// One record for each input.
std::vector<program::RunRecord> run(std::span<const SimulationInput> inputs,
                                    const std::vector<std::int64_t>& capacity_units,
                                    const topologies::DeviceProfile& device, const Timetable& timetable,
                                    program::Sensitivity* sensitivity = nullptr, bool proportional = false) {
    SharedWork work;
    std::vector<program::WorkCell> no_cells;
    const std::vector<program::WorkCell>& cells = sensitivity != nullptr ? inputs.front().compiled.cells : no_cells;
    Tangents tangents(cells.size(), proportional);
    if (sensitivity != nullptr) work.carry(tangents);
    for (const std::int64_t capacity : capacity_units) (void)work.add_resource(static_cast<Wide>(capacity) * kFullRate);
    Company company;
    std::vector<Simulation> jobs;
    jobs.reserve(inputs.size());
    for (const SimulationInput& input : inputs) jobs.emplace_back(input, work, company);
    run(work, jobs, company, timetable);
    if (sensitivity != nullptr) *sensitivity = sensitivity_of(jobs.front(), inputs.front().compiled.cells);

    std::int64_t all_done_ps = 0;  // when the last job came to the end of its steps
    for (std::size_t j = 0; j < jobs.size(); ++j) {
        all_done_ps = std::max(all_done_ps, jobs[j].step_ends()[at(inputs[j].steps) - 1]);
    }
    std::vector<program::RunRecord> records;
    for (std::size_t j = 0; j < jobs.size(); ++j) {
        program::RunRecord& record = records.emplace_back(record_of(jobs[j], inputs[j], device));
        record.step_seconds = step_seconds(jobs[j].step_ends(), all_done_ps);
        if (jobs.size() == 1 && timetable.changes_ps.empty()) record.step_seconds = {record.step_seconds.back()};
        program::summarise_steps(record);
    }
    return records;
}

/// The jobs in as many of the states, from the first, as leave all members a way to each other; the timetable says
/// what becomes of the others.
std::vector<PlacedJob> place_jobs(std::span<const Job> jobs, std::span<const ClusterState> states,
                                  Timetable& timetable) {
    std::vector<const topologies::Cluster*> clusters;
    std::vector<PlacedJob> placed;
    for (const ClusterState& state : states) {
        clusters.push_back(state.cluster);
        std::vector<PlacedJob> here;
        try {
            for (const Job& job : jobs) {
                here.emplace_back(*job.program,
                                  place_ranks(job.program->plan->parallelism, *state.cluster, job.devices), clusters);
            }
        } catch (const InputError& error) {
            if (clusters.size() == 1) throw;
            timetable.closed_ps = state.from.value();
            std::ostringstream reason;
            reason << "from " << to_seconds(state.from) << " s on: " << error.what();
            timetable.reason = reason.str();
            return placed;
        }
        placed = std::move(here);
        if (clusters.size() > 1) timetable.changes_ps.push_back(state.from.value());
    }
    return placed;
}

std::vector<std::string> notes_of(const Job& job, const ClusterState& state) {
    std::vector<std::string> notes = job.cost->notes(*job.program);
    const std::vector<std::string> network_notes = state.communication->notes(*job.program);
    notes.insert(notes.end(), network_notes.begin(), network_notes.end());
    return notes;
}

}  // namespace

std::vector<program::RunRecord> simulate_together(std::span<const Job> jobs, std::span<const ClusterState> states,
                                                  const SimulateOptions& options) {
    ORRERY_CHECK(!states.empty() && states.front().from.value() == 0, "a cluster has a state from the start");
    ORRERY_CHECK(options.sensitivity == nullptr || jobs.size() == 1, "derivatives are of a job that runs alone");
    Timetable timetable;
    const std::vector<PlacedJob> placed = place_jobs(jobs, states, timetable);
    const std::size_t open = timetable.changes_ps.size() + 1;
    const topologies::ClusterSpec& spec = states.front().cluster->spec();
    std::vector<SimulationInput> inputs(jobs.size());
    std::vector<FabricRates> rates;
    for (std::size_t j = 0; j < jobs.size(); ++j) {
        SimulationInput& input = inputs[j];
        input.program = jobs[j].program;
        set_options(input, spec.device, options);
        input.compiled =
            compile(*jobs[j].program, *jobs[j].cost, spec.device.host_runs_compute, options.sensitivity != nullptr);
        if (options.sensitivity != nullptr) {
            constexpr std::array kHostWork{models::WorkClass::launch, models::WorkClass::host_layer,
                                           models::WorkClass::tp_layer};
            for (std::size_t i = 0; i < kHostWork.size(); ++i) {
                input.host_cells[i] = cell_index(input.compiled.cells, {.work = kHostWork[i]});
            }
        }
        for (std::size_t state = 0; state < open; ++state) {
            input.loads.push_back(operation_loads(input.compiled, placed[j], states[state],
                                                  static_cast<std::int32_t>(state), options.sensitivity != nullptr));
        }
        rates.push_back(link_rates(input.loads));
    }
    std::vector<const topologies::Cluster*> clusters;
    for (const ClusterState& state : states.first(open)) clusters.push_back(state.cluster);
    Quotients quotients = make_quotients(placed, FabricUse(placed, rates, clusters), spec, options.full);
    for (std::size_t j = 0; j < jobs.size(); ++j) inputs[j].quotient = std::move(quotients.jobs[j]);
    std::vector<program::RunRecord> records =
        run(inputs, quotients.capacity_units, spec.device, timetable, options.sensitivity);
    if (options.sensitivity != nullptr && grew_without_bounds(*options.sensitivity, records.front().step_time_s)) {
        records = run(inputs, quotients.capacity_units, spec.device, timetable, options.sensitivity, true);
    }
    for (std::size_t j = 0; j < jobs.size(); ++j) records[j].notes = notes_of(jobs[j], states.front());
    return records;
}

std::vector<program::RunRecord> simulate_together(std::span<const Job> jobs, const topologies::Cluster& cluster,
                                                  const CommunicationCost& communication,
                                                  const SimulateOptions& options) {
    const ClusterState state{Picoseconds(0), &cluster, &communication};
    return simulate_together(jobs, std::span(&state, 1), options);
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
    const topologies::Cluster cluster(spec);
    const topologies::Cluster* const state = &cluster;
    const PlacedJob placed(program, place_ranks(program.plan->parallelism, cluster), std::span(&state, 1));
    Quotients quotients = make_quotients(std::span(&placed, 1), FabricUse(), spec, true);
    input.quotient = std::move(quotients.jobs.front());
    for (auto& attachments : input.quotient.attachments) attachments.fill({});
    auto& loads = input.loads.emplace_back();
    for (const PlacedJob::Placement& placement : placed.placements()) {
        loads.emplace_back(input.compiled.operations[static_cast<std::size_t>(placement.axis)].size());
    }
    program::RunRecord record = std::move(run(std::span(&input, 1), quotients.capacity_units, spec.device, {}).front());
    record.notes.emplace_back("replayed: durations are those of a record");
    return record;
}

}  // namespace orrery::sim
