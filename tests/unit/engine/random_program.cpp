#include "tests/unit/engine/random_program.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "core/index.h"
#include "core/random.h"
#include "tests/unit/engine/hand_made.h"

namespace orrery::sim::hand_made {

namespace {

using program::ClassIndex;
using program::CommKind;
using program::GroupAxis;
using program::Schedule;
using program::Stream;

class Dice {
  public:
    explicit Dice(std::uint64_t seed) : random_(seed, "random job") {}
    /// Uniform in [0, bound).
    std::int64_t below(std::int64_t bound) {
        return static_cast<std::int64_t>(random_.below(draw_++, static_cast<std::uint64_t>(bound)));
    }
    bool chance(std::int64_t percent) { return below(100) < percent; }
    template <typename T>
    T one_of(const std::vector<T>& choices) {
        return choices.at(at(below(static_cast<std::int64_t>(choices.size()))));
    }
    template <typename T>
    void shuffle(T& list) {
        for (std::size_t i = list.size(); i > 1; --i)
            std::swap(list[i - 1], list[at(below(static_cast<std::int64_t>(i)))]);
    }

  private:
    RandomStream random_;
    std::uint64_t draw_ = 0;
};

std::vector<std::int64_t> divisors(std::int64_t n) {
    std::vector<std::int64_t> result;
    for (std::int64_t d = 1; d <= n; ++d) {
        if (n % d == 0) result.push_back(d);
    }
    return result;
}

program::Plan random_plan(Dice& dice) {
    program::Plan plan;
    plan.name = "random";
    program::Parallelism& p = plan.parallelism;
    if (dice.chance(8)) {  // torch DataParallel: one process, rank 0 is the master
        p.dp = 2 + dice.below(6);
        p.data_parallel = program::DataParallel::dp;
        return plan;
    }
    p.tp = dice.one_of<std::int64_t>({1, 2, 4});
    p.cp = 1 + dice.below(2);
    p.dp = 1 + dice.below(4);
    p.pp = 1 + dice.below(4);
    p.ep = dice.one_of(divisors(p.tp * p.cp * p.dp));
    p.etp = dice.chance(30) && p.tp * p.cp * p.dp % (p.ep * p.tp) == 0 ? p.tp : 1;
    p.dp_shard = dice.one_of(divisors(p.dp * p.cp));
    if (p.pp > 1) {
        p.schedule =
            dice.one_of<Schedule>({Schedule::one_f_one_b, Schedule::interleaved, Schedule::zb_v, Schedule::dualpipe});
        if (p.schedule == Schedule::dualpipe && p.pp % 2 != 0) p.schedule = Schedule::interleaved;
        if (p.schedule != Schedule::one_f_one_b) p.chunks = 2;
    }
    const auto usual = p.order;
    if (dice.chance(60)) dice.shuffle(p.order);
    if (!program::mesh_problem(p).empty()) p.order = usual;
    plan.model.tied_embeddings = dice.chance(50);
    plan.model.heads = 8;
    plan.model.kv_heads = dice.one_of(divisors(p.tp));
    plan.model.moe.expert_count = dice.chance(70) ? 8 : 0;
    return plan;
}

void place(Dice& dice, program::Parallelism& p, const topologies::ClusterSpec& cluster) {
    const std::int64_t devices = cluster.device_count();
    const std::int64_t world = p.world_size();
    switch (dice.below(4)) {
        case 0:
            return;  // rank i on device i
        case 1:
            for (std::int64_t r = 0; r < world; ++r) p.placement.push_back((world - 1 - r) % devices);
            return;
        case 2: {  // transposed
            const std::int64_t rows = dice.one_of(divisors(world));
            for (std::int64_t r = 0; r < world; ++r) {
                p.placement.push_back((r % rows * (world / rows) + r / rows) % devices);
            }
            return;
        }
        default: {
            std::vector<std::int64_t> all(at(std::max(devices, world)));
            for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i) % devices;
            dice.shuffle(all);
            p.placement.assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(world));
        }
    }
}

/// The streams on which an axis may be used; several streams share its communicator.
std::vector<Stream> streams_of(GroupAxis axis) {
    switch (axis) {
        case GroupAxis::tp:
        case GroupAxis::kv:
        case GroupAxis::etp:
            return {Stream::tp};
        case GroupAxis::cp:
            return {Stream::cp};
        case GroupAxis::ep:
            return {Stream::ep};
        case GroupAxis::dp:
        case GroupAxis::dp_shard:
            return {Stream::dp, Stream::dp_gather};
        case GroupAxis::dp_replicate:
            return {Stream::dp_replicate};
        case GroupAxis::edp:
        case GroupAxis::embedding:
            return {Stream::dp};
        case GroupAxis::pipeline:
        case GroupAxis::model:
        case GroupAxis::world:
            return {Stream::dp, Stream::tp};
        case GroupAxis::down_forward:
            return {Stream::pp_send_forward, Stream::pp_recv_forward};
        case GroupAxis::down_backward:
            return {Stream::pp_send_backward, Stream::pp_recv_backward};
        case GroupAxis::up_forward:
            return {Stream::pp_up_send_forward, Stream::pp_up_recv_forward};
        case GroupAxis::up_backward:
            return {Stream::pp_up_send_backward, Stream::pp_up_recv_backward};
    }
    return {};
}

class RandomMaker {
  public:
    RandomMaker(Dice& dice, program::Program& program) : dice_(dice), program_(program) {
        const std::int64_t classes =
            program.plan->parallelism.data_parallel == program::DataParallel::dp ? 2 : program.plan->parallelism.pp;
        for (std::int64_t c = 0; c < classes; ++c) {
            program::RankClass added;
            added.name = "class " + std::to_string(c);
            added.pp_index = c;
            program_.classes.push_back(added);
        }
        own_axes_.resize(program_.classes.size());
        for (const GroupAxis axis : program::kAxes) {
            if (!is_pair(axis)) sort_classes(axis);
        }
        for (std::int64_t rank = 0; rank < program.world_size(); ++rank) {
            for (const GroupAxis axis :
                 {GroupAxis::down_forward, GroupAxis::down_backward, GroupAxis::up_forward, GroupAxis::up_backward}) {
                const std::vector<std::int64_t> pair = program.group_of(axis, rank);
                if (!pair.empty()) pairs_.insert({axis, {program.class_of(pair[0]), program.class_of(pair[1])}});
            }
        }
    }

    void run() {
        const std::int64_t items = 2 + dice_.below(25);
        for (std::int64_t i = 0; i < items; ++i) {
            const std::int64_t kind = dice_.below(100);
            if (kind < 35 && !pairs_.empty()) {
                const auto pair = *std::next(pairs_.begin(), dice_.below(static_cast<std::int64_t>(pairs_.size())));
                transfer(pair.first, pair.second.first, pair.second.second);
            } else if (kind < 50 && !spanning_.empty()) {
                const auto& [axis, classes] = dice_.one_of(spanning_);
                collective(axis, classes);
            } else {
                local(ClassIndex::of(dice_.below(static_cast<std::int64_t>(program_.classes.size()))));
            }
        }
        for (const ClassIndex c : program_.classes.indices()) local(c);
    }

  private:
    /// Finds the sets of classes whose ranks share groups on the axis. A class on its own may communicate at any time.
    void sort_classes(GroupAxis axis) {
        if (program_.mesh->group_size(axis) == 0) return;
        IndexedVector<ClassIndex, std::set<ClassIndex>> sets(program_.classes.size());
        for (std::int64_t rank = 0; rank < program_.world_size(); ++rank) {
            std::set<ClassIndex> met;
            for (const std::int64_t member : program_.group_of(axis, rank)) met.insert(program_.class_of(member));
            for (const ClassIndex c : met) sets[c].insert(met.begin(), met.end());
        }
        for (const ClassIndex c : sets.indices()) {
            if (sets[c].empty()) continue;
            if (sets[c].size() == 1) {
                own_axes_[c].push_back(axis);
            } else if (*sets[c].begin() == c) {
                spanning_.push_back({axis, {sets[c].begin(), sets[c].end()}});
            }
        }
    }

    program::Instruction communication(GroupAxis axis, CommKind kind, Stream stream, std::int64_t elements) {
        program::Instruction instruction;
        instruction.stream = stream;
        instruction.is_communication = true;
        instruction.communication.axis = axis;
        instruction.communication.kind = kind;
        instruction.communication.elements = elements;
        return instruction;
    }
    program::Instruction random_collective(GroupAxis axis) {
        const auto kind = dice_.one_of<CommKind>({CommKind::all_reduce, CommKind::all_gather, CommKind::reduce_scatter,
                                                  CommKind::all_to_all, CommKind::broadcast, CommKind::exchange});
        return communication(axis, kind, dice_.one_of(streams_of(axis)), 64 * (1 + dice_.below(3)));
    }

    void append(program::Body& body, program::Instruction instruction) {
        instruction.name = "i" + std::to_string(body.instructions.size());
        for (const program::InstructionIndex earlier : body.instructions.indices()) {
            if (body.instructions[earlier].stream != instruction.stream && dice_.chance(25)) {
                instruction.after.push_back(earlier);
            }
        }
        body.instructions.push_back(std::move(instruction));
    }
    void append_random(program::Body& body, ClassIndex rank_class, std::int64_t count) {
        for (std::int64_t i = 0; i < count; ++i) {
            const std::vector<GroupAxis>& axes = own_axes_[rank_class];
            if (dice_.chance(35) && !axes.empty()) {
                append(body, random_collective(dice_.one_of(axes)));
                continue;
            }
            program::Instruction instruction;
            const std::int64_t kind = dice_.below(100);
            instruction.stream = kind < 70   ? Stream::compute
                                 : kind < 80 ? Stream::host
                                 : kind < 90 ? Stream::copy_out
                                             : Stream::copy_in;
            append(body, instruction);
        }
    }
    program::BodyId random_body(ClassIndex rank_class, const program::Instruction* within = nullptr) {
        program::Body body;
        append_random(body, rank_class, dice_.below(within == nullptr ? 6 : 3));
        if (within != nullptr) {
            append(body, *within);
            append_random(body, rank_class, dice_.below(3));
        }
        program::count_streams(body);
        return program_.bodies.add(std::move(body));
    }
    /// A random stream that the segments use; empty if they have no instructions.
    std::optional<Stream> stream_of(std::span<const program::Segment> segments) {
        std::vector<Stream> streams;
        for (const program::Segment& segment : segments) {
            for (const program::Instruction& one : program_.bodies[segment.body].instructions) {
                streams.push_back(one.stream);
            }
        }
        return streams.empty() ? std::nullopt : std::optional(dice_.one_of(streams));
    }

    program::SegmentListId random_segments(ClassIndex rank_class, const program::Instruction* within = nullptr) {
        program::RankClass& owner = program_.classes[rank_class];
        const std::int64_t count = 1 + dice_.below(3);
        const std::int64_t chosen = dice_.below(count);
        program::SegmentList segments;
        for (std::int64_t s = 0; s < count; ++s) {
            program::Segment segment;
            segment.body = random_body(rank_class, s == chosen ? within : nullptr);
            segment.first_wait = static_cast<std::int32_t>(owner.segment_waits.size());
            for (std::int64_t w = s > 0 ? dice_.below(3) : 0; w > 0; --w) {
                const auto awaited = program::SegmentIndex::of(dice_.below(s));
                const std::optional<Stream> stream = stream_of({&segments[awaited], 1});
                if (!stream) continue;
                owner.segment_waits.push_back({awaited, *stream});
                ++segment.wait_count;
            }
            segments.push_back(segment);
        }
        return owner.segment_lists.add(std::move(segments));
    }
    void act(ClassIndex rank_class, program::SegmentListId segments) {
        program::RankClass& owner = program_.classes[rank_class];
        program::Action action;
        action.segments = segments;
        action.micro_batch = static_cast<std::int32_t>(owner.actions.size());
        action.first_wait = static_cast<std::int32_t>(owner.waits.size());
        const auto before = static_cast<std::int64_t>(owner.actions.size());
        for (std::int64_t w = dice_.below(3); w > 0; --w) {
            const bool earlier_step = dice_.chance(25);
            if (!earlier_step && before == 0) continue;
            const auto target = program::ActionIndex::of(dice_.below(earlier_step ? before + 1 : before));
            const bool is_this = target == owner.actions.next_index();
            const program::SegmentListId list = is_this ? segments : owner.actions[target].segments;
            const std::optional<Stream> stream = stream_of(owner.segment_lists[list]);
            if (!stream) continue;
            owner.waits.push_back({target, *stream, static_cast<std::uint8_t>(earlier_step ? 1 : 0)});
            ++action.wait_count;
        }
        owner.actions.push_back(action);
    }
    void local(ClassIndex rank_class) {
        std::vector<program::SegmentListId>& known = local_lists_[rank_class];
        if (known.empty() || dice_.chance(50)) known.push_back(random_segments(rank_class));
        act(rank_class, dice_.one_of(known));
    }
    void transfer(GroupAxis axis, ClassIndex sender, ClassIndex receiver) {
        const std::vector<Stream> streams = streams_of(axis);
        const std::int64_t elements = 64 * (1 + dice_.below(3));
        const program::Instruction send = communication(axis, CommKind::send, streams[0], elements);
        const program::Instruction recv = communication(axis, CommKind::recv, streams[1], elements);
        act(sender, random_segments(sender, &send));
        act(receiver, random_segments(receiver, &recv));
    }
    void collective(GroupAxis axis, const std::vector<ClassIndex>& classes) {
        program::Instruction instruction = random_collective(axis);
        for (const ClassIndex c : classes) {
            instruction.stream = dice_.one_of(streams_of(axis));
            act(c, random_segments(c, &instruction));
        }
    }

    Dice& dice_;
    program::Program& program_;
    IndexedVector<ClassIndex, std::vector<GroupAxis>> own_axes_;
    std::vector<std::pair<GroupAxis, std::vector<ClassIndex>>> spanning_;      // axes with groups across classes
    std::set<std::pair<GroupAxis, std::pair<ClassIndex, ClassIndex>>> pairs_;  // (axis, (sender, receiver))
    std::map<ClassIndex, std::vector<program::SegmentListId>> local_lists_;    // for reuse
};

}  // namespace

RandomJob random_job(std::uint64_t seed) {
    Dice dice(seed);
    program::Plan plan = random_plan(dice);
    const std::int64_t per_node = 1 + dice.below(8);
    const std::int64_t nodes = (plan.parallelism.world_size() + per_node - 1) / per_node + (dice.chance(20) ? 1 : 0);
    RandomJob job;
    job.cluster = dice.chance(60) ? gpu_cluster(nodes, per_node, dice.one_of(divisors(per_node)))
                                  : cpu_cluster(nodes, per_node, 1 + dice.below(4));
    job.cluster.device.launch_us.value = dice.one_of<double>({0.0, 0.0001, 0.0003});
    plan.implementation.host.launch_factor = dice.one_of<double>({1.0, 1.0, 2.0});
    place(dice, plan.parallelism, job.cluster);
    plan.cluster = job.cluster;
    job.program.plan = std::make_shared<const program::Plan>(plan);
    job.program.mesh = std::make_shared<const program::Mesh>(plan);
    RandomMaker(dice, job.program).run();
    return job;
}

}  // namespace orrery::sim::hand_made
