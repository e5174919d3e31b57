#include "sim/refine/refine.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "sim/cost/roofline_cost.h"
#include "sim/engine/network_communication.h"
#include "sim/engine/simulate.h"
#include "sim/network/measured_model.h"
#include "sim/program/operator_sample.h"
#include "sim/refine/factors.h"

namespace orrery::sim {
namespace {

using models::Operator;
using program::Program;
using program::RankRecord;
using program::Span;
using program::Stream;
using topologies::ClusterSpec;

/// Largest share of a computation that may overlap communication, or of a communication that may overlap computation,
/// for it to be used. Overlapping work slows each other down, which the simulator models separately.
constexpr double kMostShared = 0.1;

/// Identifies a factor: a kind of operator in a type (ranks = 0), or a kind of communication among a number of ranks.
struct TimingKey {
    std::string op;
    DType dtype = DType::fp32;
    std::int64_t ranks = 0;
    friend bool operator<(const TimingKey& a, const TimingKey& b) {
        return std::tie(a.op, a.dtype, a.ranks) < std::tie(b.op, b.dtype, b.ranks);
    }
};

TimingKey key_of(const Operator& op) {
    return {std::string(models::name_of(op.kind)), op.math, 0};
}

using Shape = std::tuple<TimingKey, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, double>;
Shape shape_of(const Operator& op) {
    return {key_of(op), op.rows, op.n, op.k, op.head_dim, op.sequence, op.bytes_read + op.bytes_written};
}

/// Observations collected from runs.
struct Sightings {
    std::map<TimingKey, std::size_t> index;
    std::vector<Observation> observations;
    std::map<Shape, Operator> operators;

    std::size_t index_of(const TimingKey& key) { return index.try_emplace(key, index.size()).first->second; }
};

InstructionContext context_of(const Program& program, const RankRecord& rank, const Span& span) {
    return {program, rank.rank_class, span.action, span.segment, span.instruction};
}

/// Intervals (begin, end) in picoseconds.
using Busy = std::vector<std::pair<std::int64_t, std::int64_t>>;

/// The intervals in which at least `least` of the spans overlap.
Busy covered_by(const Busy& spans, int least) {
    std::map<std::int64_t, int> steps;
    for (const auto& [begin, end] : spans) {
        ++steps[begin];
        --steps[end];
    }
    Busy result;
    int depth = 0;
    for (const auto& [moment, step] : steps) {
        const bool was_in = depth >= least;
        depth += step;
        if (!was_in && depth >= least) result.emplace_back(moment, moment);
        if (was_in && depth < least) result.back().second = moment;
    }
    return result;
}

/// Share of the span that `busy` covers. The intervals of `busy` are sorted and disjoint.
double shared_part(const Span& span, const Busy& busy) {
    std::int64_t covered = 0;
    auto one = std::lower_bound(busy.begin(), busy.end(), span.begin_ps,
                                [](const auto& entry, std::int64_t begin) { return entry.second <= begin; });
    for (; one != busy.end() && one->first < span.end_ps; ++one) {
        covered += std::min(one->second, span.end_ps) - std::max(one->first, span.begin_ps);
    }
    return static_cast<double>(covered) / static_cast<double>(std::max<std::int64_t>(1, span.end_ps - span.begin_ps));
}

class Collector {
  public:
    Collector(const ClusterSpec& cluster, Sightings& sightings)
        : cluster_(cluster), cost_(cluster), sightings_(sightings) {
        for (const auto& sample : cluster.transport_samples) timed_.insert({sample.op, sample.ranks});
    }

    void collect(const MeasuredRun& run) {
        activities_.clear();
        for (const RankRecord& rank : run.record.ranks) {
            if (rank.spans.empty()) {
                throw InputError("the record of " + run.name, "/ranks/" + std::to_string(rank.rank) + "/spans", "none",
                                 "the spans of every rank, as `orrery run --record` writes them");
            }
            activities_[rank.rank] = activity_of(run.program, rank);
        }
        for (const RankRecord& rank : run.record.ranks) collect(run.program, rank);
    }

  private:
    struct Activity {
        Busy computing, communicating;
        Busy crowded;  // more than one communication at once
    };
    static Activity activity_of(const Program& program, const RankRecord& rank) {
        Busy computing, communicating;
        for (const Span& span : rank.spans) {
            const bool communicates = context_of(program, rank, span).instruction_here().is_communication;
            (communicates ? communicating : computing).emplace_back(span.begin_ps, span.end_ps);
        }
        return {covered_by(computing, 1), covered_by(communicating, 1), covered_by(communicating, 2)};
    }

    void collect(const Program& program, const RankRecord& rank) {
        for (const Span& span : rank.spans) {
            if (span.end_ps <= span.begin_ps) continue;
            const InstructionContext where = context_of(program, rank, span);
            const program::Instruction& instruction = where.instruction_here();
            // The time in the median step, not the instruction's own median: medians would not sum to the step.
            const double seconds = to_seconds(Picoseconds(span.end_ps - span.begin_ps));
            if (!instruction.is_communication) {
                if (shared_part(span, activities_.at(rank.rank).communicating) <= kMostShared)
                    computation(where, seconds);
                continue;
            }
            const std::vector<std::int64_t> members = program.group_of(instruction.communication.axis, rank.rank);
            const bool alone = std::all_of(members.begin(), members.end(), [&](std::int64_t member) {
                const auto activity = activities_.find(member);
                return activity != activities_.end() && shared_part(span, activity->second.computing) <= kMostShared &&
                       shared_part(span, activity->second.crowded) <= kMostShared;
            });
            if (alone) communication(static_cast<std::int64_t>(members.size()), instruction.communication, seconds);
        }
    }

    void computation(const InstructionContext& where, double seconds) {
        const program::Instruction& instruction = where.instruction_here();
        // On a GPU cluster copies and host work are costed by figures, not by timings.
        if (instruction.stream != Stream::compute && !cluster_.device.host_runs_compute) return;
        Observation observation{.measured_s = seconds};
        for (std::int32_t i = 0; i < instruction.operator_count; ++i) {
            const Operator& op = where.body_here().operators[instruction.first_operator + i];
            const double predicted = cost_.operator_seconds(op);
            if (predicted <= 0) continue;
            observation.predicted_s.emplace_back(sightings_.index_of(key_of(op)), predicted);
            sightings_.operators.try_emplace(shape_of(op), op);
        }
        if (!observation.predicted_s.empty()) sightings_.observations.push_back(std::move(observation));
    }

    void communication(std::int64_t members, const program::Communication& what, double seconds) {
        if (what.kind == program::CommKind::recv) return;  // the other side of a send, which is observed itself
        if (what.kind == program::CommKind::send) members = 2;
        const TimingKey key{std::string(program::name_of(what.kind)), DType::fp32, members};
        // Without samples the time is composed of other operations, or scaled from other group sizes.
        if (!timed_.contains({key.op, members})) return;
        const double predicted = measured_time(what.kind, what.bytes(), members, cluster_).seconds;
        if (predicted <= 0) return;
        sightings_.observations.push_back({seconds, {{sightings_.index_of(key), predicted}}});
    }

    const ClusterSpec& cluster_;
    RooflineCost cost_;
    Sightings& sightings_;
    std::set<std::pair<std::string, std::int64_t>> timed_;  // operations with transport samples, and their ranks
    std::map<std::int64_t, Activity> activities_;           // by rank of the current run
};

ClusterSpec stretched(const ClusterSpec& cluster, const Sightings& sightings, const std::vector<double>& factors) {
    const auto factor_of = [&](const TimingKey& key) {
        const auto found = sightings.index.find(key);
        return found == sightings.index.end() ? 1.0 : factors[found->second];
    };
    ClusterSpec result = cluster;
    std::set<TimingKey> timed;
    const auto stretch = [&](auto& sample) {
        const TimingKey key{sample.op, sample.dtype, 0};
        timed.insert(key);
        sample.seconds *= factor_of(key);
    };
    for (auto& sample : result.device.matmul_samples) stretch(sample);
    for (auto& sample : result.device.operator_samples) stretch(sample);
    for (auto& sample : result.transport_samples) sample.seconds *= factor_of({sample.op, DType::fp32, sample.ranks});
    const RooflineCost before(cluster);
    for (const auto& [shape, op] : sightings.operators) {
        const TimingKey key = key_of(op);
        if (timed.contains(key)) continue;
        program::add_sample(op, before.operator_seconds(op) * factor_of(key), result.device.matmul_samples,
                            result.device.operator_samples);
    }
    return result;
}

double step_seconds(const Program& program, const ClusterSpec& spec) {
    const topologies::Cluster cluster(spec);
    return simulate(program, cluster, RooflineCost(spec), NetworkCommunication(cluster)).step_time_s;
}

/// More ranks than cores would have to wait for a core.
bool can_be_fitted(const MeasuredRun& run, const ClusterSpec& cluster) {
    return !cluster.device.host_runs_compute || run.program.world_size() <= cluster.device.cores_per_node;
}

Sightings collect(const ClusterSpec& cluster, const std::vector<const MeasuredRun*>& runs) {
    Sightings sightings;
    Collector collector(cluster, sightings);
    for (const MeasuredRun* run : runs) collector.collect(*run);
    return sightings;
}

ClusterSpec fitted_on(const ClusterSpec& cluster, const std::vector<const MeasuredRun*>& runs) {
    const Sightings sightings = collect(cluster, runs);
    return stretched(cluster, sightings, fit_factors(sightings.index.size(), sightings.observations));
}

std::vector<TimingFactor> factors_of(const Sightings& sightings, const std::vector<double>& factors) {
    std::vector<TimingFactor> result(factors.size());
    for (const auto& [key, index] : sightings.index) {
        const std::string of =
            key.ranks > 0 ? std::to_string(key.ranks) + " ranks" : std::string(orrery::name_of(key.dtype));
        result[index] = {.op = key.op, .of = of, .factor = factors[index]};
    }
    for (const Observation& one : sightings.observations) {
        for (const auto& [index, seconds] : one.predicted_s) {
            ++result[index].instructions;
            result[index].predicted_s += seconds;
        }
    }
    std::stable_sort(result.begin(), result.end(),
                     [](const TimingFactor& a, const TimingFactor& b) { return a.predicted_s > b.predicted_s; });
    return result;
}

}  // namespace

Refinement refine(const ClusterSpec& cluster, const std::vector<MeasuredRun>& runs) {
    std::vector<const MeasuredRun*> all;
    std::array<std::vector<const MeasuredRun*>, 2> halves;
    std::map<const MeasuredRun*, std::size_t> half_of;
    for (const MeasuredRun& run : runs) {
        if (!can_be_fitted(run, cluster)) continue;
        half_of[&run] = all.size() % 2;
        halves.at(all.size() % 2).push_back(&run);
        all.push_back(&run);
    }
    if (all.size() < 2) {
        throw InputError("results", "runs", std::to_string(all.size()),
                         "at least two with no more ranks than cores: one to refine with, one to validate the result");
    }
    Refinement result;
    const Sightings sightings = collect(cluster, all);
    const std::vector<double> factors = fit_factors(sightings.index.size(), sightings.observations);
    result.cluster = stretched(cluster, sightings, factors);
    result.factors = factors_of(sightings, factors);
    const std::array<ClusterSpec, 2> by_half{fitted_on(cluster, halves[0]), fitted_on(cluster, halves[1])};
    for (const MeasuredRun& run : runs) {
        const auto half = half_of.find(&run);
        const bool is_fitted = half != half_of.end();
        result.runs.push_back(
            {.name = run.name,
             .is_fitted = is_fitted,
             .measured_s = run.record.step_time_s,
             .before_s = step_seconds(run.program, cluster),
             .after_s = step_seconds(run.program, is_fitted ? by_half.at(1 - half->second) : result.cluster)});
    }
    return result;
}

}  // namespace orrery::sim
