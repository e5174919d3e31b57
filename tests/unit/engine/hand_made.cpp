#include "tests/unit/engine/hand_made.h"

#include <map>
#include <set>
#include <utility>

namespace orrery::sim::hand_made {

namespace {

using program::Action;
using program::ActionKind;
using program::Body;
using program::BodyId;
using program::CommKind;
using program::GroupAxis;
using program::Instruction;
using program::Phase;
using program::Stream;

class BodyMaker {
  public:
    explicit BodyMaker(Phase phase) { body_.phase = phase; }
    BodyMaker& compute(const std::string& name, std::vector<program::InstructionIndex> after = {}) {
        Instruction instruction;
        instruction.name = name;
        instruction.stream = Stream::compute;
        instruction.after = std::move(after);
        return add(instruction);
    }
    BodyMaker& communicate(const std::string& name, Stream stream, CommKind kind, GroupAxis axis, std::int64_t elements,
                           std::vector<program::InstructionIndex> after = {}) {
        Instruction instruction;
        instruction.name = name;
        instruction.stream = stream;
        instruction.is_communication = true;
        instruction.communication.kind = kind;
        instruction.communication.axis = axis;
        instruction.communication.elements = elements;
        instruction.after = std::move(after);
        return add(instruction);
    }
    Body done() {
        program::count_streams(body_);
        return std::move(body_);
    }

  private:
    BodyMaker& add(const Instruction& instruction) {
        body_.instructions.push_back(instruction);
        return *this;
    }
    Body body_;
};

Body layer_body(Phase phase, const Job& job, bool reduce_gradients) {
    BodyMaker maker(phase);
    maker.compute("first");
    if (job.tp > 1) {
        maker.communicate("tp.reduce", Stream::tp, CommKind::all_reduce, GroupAxis::tp, job.message_elements, {0});
        maker.compute("beside").compute("second", {1});
    } else {
        maker.compute("beside").compute("second");
    }
    if (reduce_gradients && job.dp > 1) {
        const auto last = program::InstructionIndex::of(job.tp > 1 ? 3 : 2);
        maker.communicate("dp.bucket", Stream::dp, CommKind::all_reduce, GroupAxis::dp, 3 * job.message_elements,
                          {last});
    }
    return maker.done();
}

class Maker {
  public:
    explicit Maker(const Job& job) : job_(job) {
        program::Plan plan;
        plan.name = "hand-made";
        plan.model.tied_embeddings = job.tied_embeddings;
        plan.parallelism.tp = job.tp;
        plan.parallelism.dp = job.dp;
        plan.parallelism.pp = job.pp;
        program_.plan = std::make_shared<const program::Plan>(plan);
        program_.mesh = std::make_shared<const program::Mesh>(plan);
        forward_ = add(layer_body(Phase::forward, job, false));
        backward_ = add(layer_body(Phase::backward, job, false));
        last_backward_ = add(layer_body(Phase::backward, job, true));
        const auto transfer = [&](const std::string& name, Stream stream, CommKind kind, GroupAxis axis) {
            return add(BodyMaker(Phase::transfer).communicate(name, stream, kind, axis, job_.message_elements).done());
        };
        recv_forward_ = transfer("recv", Stream::pp_recv_forward, CommKind::recv, GroupAxis::down_forward);
        send_forward_ = transfer("send", Stream::pp_send_forward, CommKind::send, GroupAxis::down_forward);
        recv_backward_ = transfer("recv", Stream::pp_recv_backward, CommKind::recv, GroupAxis::down_backward);
        send_backward_ = transfer("send", Stream::pp_send_backward, CommKind::send, GroupAxis::down_backward);
        BodyMaker sync(Phase::gradient_sync);
        if (job.norms_over_tp) {
            sync.communicate("tp.norms", Stream::dp, CommKind::all_reduce, GroupAxis::tp, job.message_elements / 2);
        }
        plain_sync_ = add(Body(sync.done()));
        BodyMaker tied(Phase::gradient_sync);
        tied.communicate("embedding", Stream::dp, CommKind::all_reduce, GroupAxis::embedding, job.message_elements);
        tied_sync_ = add(tied.done());
        optimizer_ = add(BodyMaker(Phase::optimizer).compute("adamw").done());
    }

    program::Program run() {
        for (std::int64_t stage = 0; stage < job_.pp; ++stage) add_stage(stage);
        return std::move(program_);
    }

  private:
    BodyId add(Body body) { return program_.bodies.add(std::move(body)); }
    /// Micro-batches share their lists, as in lowered programs.
    program::SegmentListId list_of(const std::vector<BodyId>& bodies) {
        const auto known = lists_.find(bodies);
        if (known != lists_.end()) return known->second;
        program::SegmentList segments;
        for (std::size_t i = 0; i < bodies.size(); ++i) {
            program::Segment segment;
            segment.body = bodies[i];
            segment.layer = static_cast<std::int32_t>(i);
            segments.push_back(segment);
        }
        return lists_.emplace(bodies, stage_.segment_lists.add(std::move(segments))).first->second;
    }
    program::ActionIndex act(ActionKind kind, std::int64_t micro_batch, const std::vector<BodyId>& bodies,
                             const std::vector<program::Wait>& waits) {
        Action action;
        action.kind = kind;
        action.micro_batch = static_cast<std::int32_t>(micro_batch);
        action.segments = list_of(bodies);
        action.first_wait = static_cast<std::int32_t>(stage_.waits.size());
        action.wait_count = static_cast<std::int32_t>(waits.size());
        stage_.waits.insert(stage_.waits.end(), waits.begin(), waits.end());
        return stage_.actions.add(action);
    }
    void forward(std::int64_t stage, std::int64_t micro_batch) {
        std::vector<program::Wait> waits;
        if (stage > 0) {
            waits.push_back({act(ActionKind::recv_forward, micro_batch, {recv_forward_}, {}), Stream::pp_recv_forward});
        }
        const std::vector<BodyId> layers(static_cast<std::size_t>(job_.layers), forward_);
        const program::ActionIndex action = act(ActionKind::forward, micro_batch, layers, waits);
        if (stage + 1 < job_.pp) {
            act(ActionKind::send_forward, micro_batch, {send_forward_}, {{action, Stream::compute}});
        }
    }
    void backward(std::int64_t stage, std::int64_t micro_batch) {
        std::vector<program::Wait> waits;
        if (stage + 1 < job_.pp) {
            waits.push_back(
                {act(ActionKind::recv_backward, micro_batch, {recv_backward_}, {}), Stream::pp_recv_backward});
        }
        const bool last = micro_batch == job_.micro_batches - 1;
        const std::vector<BodyId> layers(static_cast<std::size_t>(job_.layers), last ? last_backward_ : backward_);
        last_action_ = act(ActionKind::backward, micro_batch, layers, waits);
        if (stage > 0) {
            act(ActionKind::send_backward, micro_batch, {send_backward_}, {{last_action_, Stream::compute}});
        }
    }
    void add_stage(std::int64_t stage) {
        stage_ = {};
        lists_.clear();
        stage_.name = "stage " + std::to_string(stage);
        stage_.pp_index = stage;
        stage_.memory.live_peak = 1000 + stage;
        stage_.memory.arena = 2000 + stage;
        const std::int64_t m = job_.micro_batches;
        const bool gpipe = job_.schedule == program::Schedule::gpipe;
        const std::int64_t warm_up = gpipe ? m : std::min(job_.pp - 1 - stage, m);
        for (std::int64_t i = 0; i < warm_up; ++i) forward(stage, i);
        for (std::int64_t i = warm_up; i < m; ++i) {
            forward(stage, i);
            backward(stage, i - warm_up);
        }
        for (std::int64_t i = m - warm_up; i < m; ++i) backward(stage, i);
        std::vector<program::Wait> waits = {{last_action_, Stream::dp}};
        const auto reduced = [&](BodyId body) {
            waits.push_back(
                {act(ActionKind::sync_gradients, -1, {body}, {{last_action_, Stream::compute}}), Stream::dp});
        };
        if (job_.norms_over_tp) reduced(plain_sync_);
        if (job_.tied_embeddings && job_.pp > 1 && (stage == 0 || stage == job_.pp - 1)) reduced(tied_sync_);
        act(ActionKind::optimizer_step, -1, {optimizer_}, waits);
        program_.classes.push_back(std::move(stage_));
    }

    Job job_;
    program::Program program_;
    program::RankClass stage_;
    std::map<std::vector<BodyId>, program::SegmentListId> lists_;  // of the stage
    BodyId forward_ = 0, backward_ = 0, last_backward_ = 0, recv_forward_ = 0, send_forward_ = 0, recv_backward_ = 0,
           send_backward_ = 0, plain_sync_ = 0, tied_sync_ = 0, optimizer_ = 0;
    program::ActionIndex last_action_ = 0;
};

topologies::Figure figure(double value) {
    return {value, topologies::Provenance::datasheet, "round number"};
}
topologies::LinkProfile link(double gb_per_s) {
    return {"link", topologies::LinkMedium::other, figure(gb_per_s), figure(1.0), figure(1.0)};
}

}  // namespace

program::Program make_program(const Job& job) {
    return Maker(job).run();
}

program::Program one_action(std::int64_t tp, std::vector<std::vector<program::Instruction>> bodies) {
    program::Plan plan;
    plan.parallelism.tp = tp;
    program::Program program;
    program.plan = std::make_shared<const program::Plan>(plan);
    program.mesh = std::make_shared<const program::Mesh>(plan);
    program::RankClass stage;
    stage.segment_lists.resize(1);
    for (std::vector<program::Instruction>& instructions : bodies) {
        program::Body body;
        body.instructions.assign(instructions.begin(), instructions.end());
        program::count_streams(body);
        stage.segment_lists[0].push_back({.body = program.bodies.add(std::move(body))});
    }
    stage.actions.resize(1);
    program.classes.push_back(std::move(stage));
    return program;
}

program::Program one_body(std::int64_t tp, std::vector<program::Instruction> instructions) {
    return one_action(tp, {std::move(instructions)});
}

program::Instruction on_stream(Stream stream, const std::string& name, std::vector<program::InstructionIndex> after) {
    program::Instruction instruction;
    instruction.name = name;
    instruction.stream = stream;
    instruction.after = std::move(after);
    return instruction;
}

program::Instruction compute(const std::string& name, std::vector<program::InstructionIndex> after) {
    return on_stream(Stream::compute, name, std::move(after));
}

program::Instruction reduce(const std::string& name, std::vector<program::InstructionIndex> after) {
    program::Instruction instruction = on_stream(Stream::tp, name, std::move(after));
    instruction.is_communication = true;
    instruction.communication.axis = GroupAxis::tp;
    instruction.communication.elements = 8;
    return instruction;
}

topologies::ClusterSpec gpu_cluster(std::int64_t nodes, std::int64_t devices_per_node, std::int64_t nics_per_node) {
    topologies::ClusterSpec spec;
    spec.name = "hand-made GPUs";
    spec.nodes = nodes;
    spec.devices_per_node = devices_per_node;
    spec.device.name = "gpu";
    spec.device.peaks = {{DType::fp32, figure(100)}};
    spec.device.memory_bandwidth_gb_per_s = figure(1000);
    spec.device.context_gib = figure(1);
    spec.device.matmul_efficiency = figure(0.5);
    spec.device.memory_efficiency = figure(0.5);
    spec.intra_node = link(100);
    spec.node_switches = 1;
    spec.nics_per_node = nics_per_node;
    spec.nic = link(10);
    spec.host_link = link(20);
    spec.fabric = nodes > 1 ? topologies::FabricKind::rail_optimised : topologies::FabricKind::none;
    spec.nodes_per_scalable_unit = nodes > 1 ? 2 : 0;
    return spec;
}

topologies::ClusterSpec cpu_cluster(std::int64_t nodes, std::int64_t devices_per_node, std::int64_t cores) {
    topologies::ClusterSpec spec = gpu_cluster(nodes, devices_per_node, nodes > 1 ? 1 : 0);
    spec.name = "hand-made CPUs";
    spec.device.name = "cpu";
    spec.node_switches = 0;
    spec.device.host_runs_compute = true;
    spec.device.cores_per_node = cores;
    return spec;
}

Picoseconds HashCost::instruction_time(const InstructionContext& where) const {
    const program::BodyId body = where.segments_here()[where.segment].body;
    const std::uint64_t key = (where.rank_class.position() * 64 + body.position()) * 64 + where.instruction.position();
    return Picoseconds(static_cast<std::int64_t>(random_.below(key, scale_)));
}

PlacedJob placed(const program::Program& program, const topologies::ClusterSpec& cluster) {
    const topologies::Cluster built(cluster);
    const topologies::Cluster* const state = &built;
    return {program, place_ranks(program.plan->parallelism, built), std::span(&state, 1)};
}

Quotient quotient_of(const program::Program& program, const topologies::ClusterSpec& cluster, bool full) {
    PlacedJobs jobs;
    jobs.push_back(placed(program, cluster));
    return make_quotients(jobs, FabricUse(), cluster, full).jobs.front();
}

std::vector<OperationCost> HashCommunication::costs(GroupAxis axis, std::span<const Operation> operations,
                                                    std::span<const std::int64_t> devices) const {
    std::set<std::int64_t> nodes;
    std::set<std::int64_t> units;
    for (const std::int64_t device : devices) {
        nodes.insert(device / cluster_.devices_per_node);
        if (cluster_.nodes_per_scalable_unit > 0) {
            units.insert(device / cluster_.devices_per_node / cluster_.nodes_per_scalable_unit);
        }
    }
    std::vector<OperationCost> result;
    for (const Operation& operation : operations) {
        const std::uint64_t key =
            ((static_cast<std::uint64_t>(axis) * 100 + static_cast<std::uint64_t>(operation.bytes)) * 1000 +
             nodes.size()) *
                100 +
            units.size();
        const Picoseconds duration(static_cast<std::int64_t>(random_.below(key, scale_)));
        const double seconds = to_seconds(duration);
        OperationCost cost{duration, 0, 0};
        // Nearly all of a link's bandwidth, so that two concurrent operations contend.
        if (nodes.size() > 1) cost.nic_bytes = static_cast<std::int64_t>(seconds * 9.7e9);
        cost.port_bytes = static_cast<std::int64_t>(seconds * 71e9);
        if (uses_fabric_) {
            cost.algorithm = program::is_pair(axis) ? algorithms::Algorithm::direct : algorithms::Algorithm::ring;
        }
        result.push_back(cost);
    }
    return result;
}

}  // namespace orrery::sim::hand_made
