#include "sim/engine/simulate.h"

#include <algorithm>
#include <array>
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

/// The units of a share of a resource, which counts as 1 if it is larger.
std::int64_t units_of(double share) {
    return static_cast<std::int64_t>(std::min(1.0, share) * static_cast<double>(kUnit));
}

/// Units of its node's cores that each member keeps busy: one core, or an equal part of the node if a node has more
/// members than cores. In that case the operation's duration already includes the contention between its members.
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
    const topologies::DeviceProfile& device = cluster.device;
    const auto moving = [&](std::int64_t bytes, double bytes_per_s) {
        if (bytes <= 0 || cost.duration.value() <= 0 || bytes_per_s <= 0) return std::int64_t{0};
        return units_of(static_cast<double>(bytes) / bytes_per_s / to_seconds(cost.duration));
    };
    const std::int64_t port = moving(cost.port_bytes, cluster.intra_node.reached_bytes_per_s());
    const std::int64_t nic = moving(cost.nic_bytes, cluster.nic.reached_bytes_per_s());
    const std::int64_t memory = moving(cost.memory_bytes, device.memory_bandwidth_gb_per_s.value * kGigabyte *
                                                              std::min(1.0, device.memory_efficiency.value));
    OperationLoad load{.duration_ps = cost.duration.value(), .units = {cores, port, port, nic, nic, 0, 0, 0, memory}};
    if (device.compute_units > 0 && cost.compute_units > 0) {
        load.held_compute_units = units_of(cost.compute_units / static_cast<double>(device.compute_units));
    }
    return load;
}

/// Lengthens the operation by the plan's rate and by the wait for late members. Its demand on ports, links and memory
/// stays the same, but lasts longer: a fabric that reaches less than its nominal bandwidth reaches no more if shared.
void slow_down(OperationLoad& load, double rate, double wait_s) {
    if (rate != 1) {
        const double seconds = to_seconds(Picoseconds(load.duration_ps)) * rate;
        load.duration_ps = picoseconds_from_seconds(seconds).value();
    }
    load.wait_ps = picoseconds_from_seconds(wait_s).value();
    load.duration_ps += load.wait_ps;
}

/// Adds the share `rate` of the device, which the operation holds beyond its kernel's units (program::hidden_cell).
/// Returns it in units.
double hold_share(OperationLoad& load, double rate, const topologies::DeviceProfile& device) {
    if (device.compute_units <= 0) return 0;
    const std::int64_t units = units_of(rate);
    load.held_compute_units = std::min(load.held_compute_units + units, kUnit);
    return static_cast<double>(units);
}

void add_terms(Cells& cells, const program::WorkCell& communication, double held_by_rate, OperationLoad& load) {
    const auto add = [&](const program::WorkCell& cell, std::int64_t picoseconds) {
        load.terms.push_back({cell_index(cells, cell).value(), static_cast<double>(picoseconds)});
    };
    add(communication, load.duration_ps - load.wait_ps);
    if (load.wait_ps > 0) add(program::wait_cell(communication), load.wait_ps);
    if (held_by_rate > 0) {
        const CellIndex cell = cell_index(cells, *program::hidden_cell(communication));
        load.unit_terms.push_back({.cell = cell, .held_units = held_by_rate});
    }
}

/// The loads of the job's operations in one state of the cluster.
PerOperation<OperationLoad> operation_loads(CompiledProgram& compiled, const PlacedJob& job, const ClusterState& state,
                                            StateIndex state_index, bool with_cells) {
    const topologies::ClusterSpec& cluster = state.cluster->spec();
    PerOperation<OperationLoad> loads;
    loads.reserve(job.placements().size());
    for (const PlacedJob::Placement& placement : job.placements()) {
        const auto& operations = compiled.operations[placement.axis];
        auto& here = loads.emplace_back(operations.size());
        if (placement.devices.size() < 2) continue;  // a group of one does not communicate
        const std::vector<OperationCost> costs =
            state.communication->costs(placement.axis, operations, placement.devices);
        ORRERY_CHECK(costs.size() == operations.size(),
                     "the number of communication costs is not that of the operations");
        const std::int64_t cores = core_share(placement, cluster);
        const bool between_nodes = spans_nodes(placement, cluster);
        for (const OperationIndex i : operations.indices()) {
            const program::WorkCell cell = program::cell_of(operations[i].kind, placement.axis, between_nodes);
            const OperationCost& cost = costs[i.position()];
            const program::Rates& rates = job.program().plan->rates;
            here[i] = load_of(cost, cores, cluster);
            slow_down(here[i], program::factor_of(cell, rates), program::wait_s(cell, rates));
            double held_by_rate = 0;
            if (const auto hidden = program::hidden_cell(cell)) {
                held_by_rate = hold_share(here[i], program::factor_of(*hidden, rates), cluster.device);
            }
            if (with_cells) add_terms(compiled.cells, cell, held_by_rate, here[i]);
            if (!cost.algorithm || cost.duration.value() == 0) continue;
            here[i].links = FabricRate{
                {state_index, *cost.algorithm, operations[i].kind},
                static_cast<double>(cost.loading_bytes.value_or(operations[i].bytes)) / to_seconds(cost.duration)};
        }
    }
    return loads;
}

void add_unit_term(CellIndex cell, const WorkTimes::Operation& less, const WorkTimes::Operation& more, double log_ratio,
                   OperationLoad& load) {
    OperationLoad::UnitTerm term{.cell = cell};
    const auto slope = [&](std::int64_t from, std::int64_t to) { return static_cast<double>(to - from) / log_ratio; };
    term.held_units = slope(less.held_units, more.held_units);
    bool moves = term.held_units != 0;
    for (const ResourceKind kind : kResourceKinds) {
        term.units[kind] = slope(less.units[kind], more.units[kind]);
        moves = moves || term.units[kind] != 0;
    }
    if (moves) load.unit_terms.push_back(term);
}

/// Makes the cells those of the changes: a term is the derivative of a duration for the logarithm of an input.
void add_change_terms(std::span<const InputChange> changes, SimulationInput& input) {
    CompiledProgram& compiled = input.compiled;
    compiled.cells.resize(changes.size());
    const auto add = [&](std::size_t c, std::int64_t less_ps, std::int64_t more_ps, std::vector<Tangents::Term>& to) {
        if (less_ps == more_ps) return;
        to.push_back({static_cast<std::int32_t>(c), static_cast<double>(more_ps - less_ps) / changes[c].log_ratio});
    };
    std::vector<Tangents::Term> terms;
    for (const DurationPlace place : compiled.durations.indices()) {
        compiled.first_term.push_back(end_of(compiled.terms));
        terms.clear();
        for (std::size_t c = 0; c < changes.size(); ++c) {
            add(c, changes[c].less.instructions_ps[place.position()], changes[c].more.instructions_ps[place.position()],
                terms);
        }
        compiled.terms.insert(compiled.terms.end(), terms.begin(), terms.end());
    }
    compiled.first_term.push_back(end_of(compiled.terms));
    std::size_t operation = 0;
    for (auto& of_placement : input.loads.front()) {
        for (OperationLoad& load : of_placement) {
            for (std::size_t c = 0; c < changes.size(); ++c) {
                const WorkTimes::Operation &less = changes[c].less.operations[operation],
                                           &more = changes[c].more.operations[operation];
                add(c, less.duration_ps, more.duration_ps, load.terms);
                add_unit_term(CellIndex::of(c), less, more, changes[c].log_ratio, load);
            }
            ++operation;
        }
    }
    for (std::size_t c = 0; c < changes.size(); ++c) {
        const WorkTimes &less = changes[c].less, &more = changes[c].more;
        const auto slope = [&](std::int64_t from, std::int64_t to) {
            return static_cast<double>(to - from) / changes[c].log_ratio;
        };
        input.host_terms.push_back(
            {CellIndex::of(c), slope(less.launch_ps, more.launch_ps), slope(less.pass_ps, more.pass_ps)});
    }
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

program::RankRecord rank_record(const Simulation& simulation, const SimulationInput& input, SimulatedRank rank,
                                const topologies::DeviceProfile& device) {
    const program::Program& program = *input.program;
    program::RankRecord record;
    record.rank = input.quotient.ranks[rank];
    record.multiplicity = input.quotient.multiplicity[rank];
    record.rank_class = program.class_of(record.rank);
    record.streams = simulation.stream_times(rank);
    const program::MemoryFootprint& memory = program.classes[record.rank_class].memory;
    const program::DeviceMemory held = program::device_memory(program, program.classes[record.rank_class]);
    const bool on_host = device.host_runs_compute;
    record.memory = program::memory_parts(memory);
    record.memory.push_back({program::kRuntimeMemory, held.in_use() - held.reserved() + held.workspaces});
    record.memory_peak_bytes = held.in_use();
    record.memory_live_peak_bytes = held.context + memory.most_alive(on_host);
    if (!on_host) record.device_memory = held;
    if (input.record_spans) record.spans = simulation.spans(rank);
    return record;
}

/// The times of the steps after the first that ended by `until_ps`. If there are none, the time of the first step.
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
    IndexedVector<program::ClassIndex, std::vector<program::StreamVolume>> volumes;
    for (const program::ClassIndex c : program.classes.indices()) volumes.push_back(program::volumes(program, c));
    Wide compute_ps = 0;
    for (const SimulatedRank rank : input.quotient.ranks.indices()) {
        program::RankRecord& added = record.ranks.emplace_back(rank_record(simulation, input, rank, device));
        for (const program::StreamVolume& volume : volumes[added.rank_class]) {
            added.bytes_sent[volume.stream] += volume.wire_bytes;
            if (volume.wire_bytes > 0) added.collectives.push_back({volume.stream, volume.kind, volume.wire_bytes});
        }
        compute_ps += static_cast<Wide>(added.streams[program::Stream::compute].busy_ps) * added.multiplicity;
    }
    const std::int64_t period = simulation.step_end(input.steps - 1) - simulation.step_end(input.steps - 2);
    const Wide rank_ps = static_cast<Wide>(period) * program.world_size();
    const double busy_share = rank_ps > 0 ? static_cast<double>(compute_ps) / static_cast<double>(rank_ps) : 1.0;
    record.idle_fraction = std::max(0.0, 1.0 - busy_share);
    return record;
}

/// The states of the cluster after the first.
struct Timetable {
    std::vector<std::int64_t> changes_ps;  // their beginnings
    std::string disconnection;             // if not empty, the last of them is without a route: the error's message
};

/// Runs all jobs to their ends.
void run(SharedWork& work, std::vector<Simulation>& jobs, const UnfinishedJobs& unfinished,
         const Timetable& timetable) {
    std::int32_t slots = 0;
    for (const Simulation& job : jobs) slots += job.own_slots();
    work.seal(slots + 1);
    std::int32_t slot_of_changes = work.activity_count();
    for (Simulation& job : jobs) {
        job.begin(slot_of_changes);
        slot_of_changes += job.own_slots();
    }
    EventQueue& queue = work.queue();
    std::size_t changes = 0;  // so far
    const auto schedule_change = [&] {
        if (changes < timetable.changes_ps.size()) queue.schedule(slot_of_changes, timetable.changes_ps[changes]);
    };
    schedule_change();
    Simulation* const only = jobs.size() == 1 ? &jobs.front() : nullptr;
    while (work.settle_moment()) {
        const std::int32_t slot = queue.pop().slot;
        if (slot == slot_of_changes) {
            if (work.tangents() != nullptr) work.tangents()->set_now(work.tangents()->no_moment(), {});
            if (unfinished.count == 0) continue;
            const bool is_last = ++changes == timetable.changes_ps.size();
            if (is_last && !timetable.disconnection.empty()) throw InputError(timetable.disconnection);
            for (Simulation& job : jobs) job.enter_next_state();
            schedule_change();
            continue;
        }
        Simulation* job = only;
        if (job == nullptr) {
            job = &*std::find_if(jobs.begin(), jobs.end(), [slot](const Simulation& one) { return one.has(slot); });
        }
        slot < work.activity_count() ? job->finish_activity(slot) : job->wake(slot);
    }
    ORRERY_CHECK(work.standing_still() == 0, "a resource is shared by too many activities: some have rate 0");
    for (const Simulation& job : jobs) job.check_finished();
}

void set_options(SimulationInput& input, const topologies::DeviceProfile& device, const SimulateOptions& options) {
    ORRERY_CHECK(options.steps >= 1, "SimulateOptions::steps must be at least 1");
    input.host = host_times(*input.program->plan, device);
    input.steps = options.steps;
    input.record_spans = options.record_spans;
}

/// Derivatives of the step time, by cell.
struct Derivatives {
    bool is_proportional = false;  // see Tangents
    std::vector<double> seconds;
};

Derivatives derivatives_of(const Simulation& simulation, bool is_proportional) {
    Derivatives result{.is_proportional = is_proportional, .seconds = {}};
    for (const double picoseconds : simulation.step_derivatives()) {
        result.seconds.push_back(picoseconds / kPicosecondsPerSecond);
    }
    return result;
}

program::Sensitivity by_cell(const Derivatives& derivatives, const Cells& cells) {
    program::Sensitivity result;
    for (const CellIndex cell : cells.indices()) {
        const double seconds = derivatives.seconds[cell.position()];
        if (seconds != 0) result[cells[cell]] = seconds;
    }
    return result;
}

/// Whether a derivative is too large (see Tangents). No work lengthens a step by more than the whole step, except for
/// small effects of sharing, and longer work cannot shorten it.
bool grew_without_bounds(const std::vector<double>& derivatives, double step_time_s) {
    constexpr double kTolerance = 0.05;
    return std::any_of(derivatives.begin(), derivatives.end(), [&](double seconds) {
        return seconds < -kTolerance * step_time_s || seconds > (1 + kTolerance) * step_time_s;
    });
}

/// The derivatives that may be used: an input that changes all work in proportion changes the step in proportion.
std::vector<std::optional<double>> bounded(const std::vector<double>& derivatives, double step_time_s) {
    constexpr double kMost = 2;
    std::vector<std::optional<double>> result;
    for (const double seconds : derivatives) {
        const bool is_bounded = std::abs(seconds) <= kMost * step_time_s;
        result.push_back(is_bounded ? std::optional(seconds) : std::nullopt);
    }
    return result;
}

/// Simulates the jobs and returns one record for each.
std::vector<program::RunRecord> run(const IndexedVector<JobIndex, SimulationInput>& inputs,
                                    const std::vector<std::int64_t>& capacity_units,
                                    const topologies::DeviceProfile& device, const Timetable& timetable,
                                    const SimulateOptions& options = {}, Derivatives* derivatives = nullptr) {
    SharedWork work;
    const bool is_proportional = derivatives != nullptr && derivatives->is_proportional;
    Tangents tangents(derivatives != nullptr ? inputs.front().compiled.cells.size() : 0, is_proportional);
    if (derivatives != nullptr) work.carry(tangents);
    work.reserve_resources(capacity_units.size());
    for (const std::int64_t capacity : capacity_units) (void)work.add_resource(static_cast<Wide>(capacity) * kFullRate);
    UnfinishedJobs unfinished;
    IndexedVector<JobIndex, Simulation> jobs;
    jobs.reserve(inputs.size());
    for (const SimulationInput& input : inputs) jobs.emplace_back(input, work, unfinished);
    run(work, jobs, unfinished, timetable);
    if (derivatives != nullptr) *derivatives = derivatives_of(jobs.front(), is_proportional);
    if (options.first_step_s != nullptr) {
        *options.first_step_s = to_seconds(Picoseconds(jobs.front().step_ends().front()));
    }

    std::int64_t all_done_ps = 0;  // when the last job finished its steps
    for (const JobIndex j : jobs.indices()) {
        all_done_ps = std::max(all_done_ps, jobs[j].step_end(inputs[j].steps - 1));
    }
    std::vector<program::RunRecord> records;
    for (const JobIndex j : jobs.indices()) {
        program::RunRecord& record = records.emplace_back(record_of(jobs[j], inputs[j], device));
        record.step_seconds = step_seconds(jobs[j].step_ends(), all_done_ps);
        const bool is_constant = timetable.changes_ps.size() == (timetable.disconnection.empty() ? 0 : 1);
        if (jobs.size() == 1 && is_constant) record.step_seconds = {record.step_seconds.back()};
        program::summarise_steps(record);
    }
    return records;
}

/// Places the jobs in all states before the first one without a route between members of a group, to which it shortens
/// `states`. Throws InputError if the very first state has no route.
PlacedJobs place_jobs(std::span<const Job> jobs, std::span<const ClusterState>& states, Timetable& timetable) {
    std::vector<const topologies::Cluster*> clusters;
    PlacedJobs placed;
    for (const ClusterState& state : states) {
        clusters.push_back(state.cluster);
        if (clusters.size() > 1) timetable.changes_ps.push_back(state.from.value());
        PlacedJobs here;
        try {
            for (const Job& job : jobs) {
                here.emplace_back(*job.program,
                                  place_ranks(job.program->plan->parallelism, *state.cluster, job.devices), clusters);
            }
        } catch (const InputError& error) {
            if (clusters.size() == 1) throw;
            std::ostringstream reason;
            reason << "from " << to_seconds(state.from) << " s on: " << error.what();
            timetable.disconnection = reason.str();
            states = states.first(clusters.size() - 1);
            return placed;
        }
        placed = std::move(here);
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

WorkTimes work_times(const program::Program& program, const topologies::Cluster& cluster, const CostModel& cost,
                     const CommunicationCost& communication) {
    const topologies::Cluster* const state = &cluster;
    const PlacedJob placed(program, place_ranks(program.plan->parallelism, cluster), std::span(&state, 1));
    const topologies::DeviceProfile& device = cluster.spec().device;
    CompiledProgram compiled = compile(program, cost, device.host_runs_compute);
    const ClusterState at_all_times{Picoseconds(0), &cluster, &communication};
    const HostTimes host = host_times(*program.plan, device);
    WorkTimes times{.launch_ps = host.launch_ps, .pass_ps = host.layer_ps + host.tp_layer_ps};
    times.instructions_ps.assign(compiled.durations.begin(), compiled.durations.end());
    for (const auto& of_placement : operation_loads(compiled, placed, at_all_times, 0, false)) {
        for (const OperationLoad& load : of_placement) {
            times.operations.push_back({load.duration_ps, load.held_compute_units, load.units});
        }
    }
    return times;
}

std::vector<program::RunRecord> simulate_together(std::span<const Job> jobs, std::span<const ClusterState> states,
                                                  const SimulateOptions& options) {
    ORRERY_CHECK(!states.empty() && states.front().from.value() == 0, "the first state of a cluster must begin at 0");
    ORRERY_CHECK((options.sensitivity == nullptr && options.first_step_s == nullptr && options.changes.empty()) ||
                     (jobs.size() == 1 && states.size() == 1),
                 "derivatives and the first step's time are available only for a job that runs alone");
    Timetable timetable;
    const PlacedJobs placed = place_jobs(jobs, states, timetable);
    const topologies::ClusterSpec& spec = states.front().cluster->spec();
    IndexedVector<JobIndex, SimulationInput> inputs(jobs.size());
    IndexedVector<JobIndex, FabricRates> rates;
    for (const JobIndex j : inputs.indices()) {
        const Job& job = jobs[j.position()];
        SimulationInput& input = inputs[j];
        input.program = job.program;
        set_options(input, spec.device, options);
        input.compiled =
            compile(*job.program, *job.cost, spec.device.host_runs_compute, options.sensitivity != nullptr);
        if (options.sensitivity != nullptr) {
            const auto add = [&](models::WorkClass work, std::int64_t launch_ps, std::int64_t pass_ps) {
                input.host_terms.push_back({cell_index(input.compiled.cells, {.work = work}),
                                            static_cast<double>(launch_ps), static_cast<double>(pass_ps)});
            };
            add(models::WorkClass::launch, input.host.launch_ps, 0);
            add(models::WorkClass::host_layer, 0, input.host.layer_ps);
            add(models::WorkClass::tp_layer, 0, input.host.tp_layer_ps);
        }
        for (const ClusterState& state : states) {
            input.loads.push_back(operation_loads(input.compiled, placed[j], state, input.loads.next_index(),
                                                  options.sensitivity != nullptr));
        }
        rates.push_back(link_rates(input.loads));
        if (!options.changes.empty()) add_change_terms(options.changes, input);
    }
    std::vector<const topologies::Cluster*> clusters;
    for (const ClusterState& state : states) clusters.push_back(state.cluster);
    Quotients quotients = make_quotients(placed, FabricUse(placed, rates, clusters), spec, options.full);
    for (const JobIndex j : inputs.indices()) inputs[j].quotient = std::move(quotients.jobs[j]);
    Derivatives derivatives;
    const bool wants_derivatives = options.sensitivity != nullptr || !options.changes.empty();
    Derivatives* const wanted = wants_derivatives ? &derivatives : nullptr;
    std::vector<program::RunRecord> records =
        run(inputs, quotients.capacity_units, spec.device, timetable, options, wanted);
    const double step_time_s = records.front().step_time_s;
    if (options.sensitivity != nullptr) {
        if (grew_without_bounds(derivatives.seconds, step_time_s)) {
            derivatives.is_proportional = true;
            records = run(inputs, quotients.capacity_units, spec.device, timetable, options, wanted);
        }
        *options.sensitivity = by_cell(derivatives, inputs.front().compiled.cells);
    }
    if (options.change_derivatives != nullptr) *options.change_derivatives = bounded(derivatives.seconds, step_time_s);
    for (std::size_t j = 0; j < jobs.size(); ++j) records[j].notes = notes_of(jobs[j], states.front());
    return records;
}

program::RunRecord simulate(const program::Program& program, const topologies::Cluster& cluster, const CostModel& cost,
                            const CommunicationCost& communication, const SimulateOptions& options) {
    const Job job{.program = &program, .cost = &cost, .devices = {}};
    const ClusterState state{Picoseconds(0), &cluster, &communication};
    return std::move(simulate_together(std::span(&job, 1), std::span(&state, 1), options).front());
}

program::RunRecord replay(const program::Program& program, const program::Durations& durations,
                          const SimulateOptions& options) {
    const topologies::ClusterSpec& spec = program.plan->cluster;
    IndexedVector<JobIndex, SimulationInput> inputs(1);
    SimulationInput& input = inputs.front();
    input.program = &program;
    input.durations = &durations;
    set_options(input, spec.device, options);
    input.compiled = compile(program, ActionTableCost(ActionTableCost::Durations()), spec.device.host_runs_compute);
    const topologies::Cluster cluster(spec);
    const topologies::Cluster* const state = &cluster;
    PlacedJobs placed;
    placed.emplace_back(program, place_ranks(program.plan->parallelism, cluster), std::span(&state, 1));
    Quotients quotients = make_quotients(placed, FabricUse(), spec, true);
    input.quotient = std::move(quotients.jobs.front());
    for (auto& attachments : input.quotient.attachments) attachments.fill({});
    auto& loads = input.loads.emplace_back();
    for (const PlacedJob::Placement& placement : placed.front().placements()) {
        loads.emplace_back(input.compiled.operations[placement.axis].size());
    }
    program::RunRecord record = std::move(run(inputs, quotients.capacity_units, spec.device, {}).front());
    record.notes.emplace_back("replayed: durations are those of a record");
    return record;
}

}  // namespace orrery::sim
