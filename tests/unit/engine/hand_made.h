// Hand-written Programs, clusters and costs, so that tests of the engine do not need the lowering.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "core/units.h"
#include "sim/engine/placed_job.h"
#include "sim/engine/simulate.h"
#include "sim/engine/symmetry.h"

namespace orrery::sim {

[[nodiscard]] inline std::int64_t step_ps(const program::RunRecord& record) {
    return std::llround(record.step_time_s * kPicosecondsPerSecond);
}

/// Jobs on a cluster that does not change.
[[nodiscard]] inline std::vector<program::RunRecord> simulate_together(std::span<const Job> jobs,
                                                                       const topologies::Cluster& cluster,
                                                                       const CommunicationCost& communication,
                                                                       const SimulateOptions& options = {}) {
    const ClusterState state{Picoseconds(0), &cluster, &communication};
    return simulate_together(jobs, std::span(&state, 1), options);
}

}  // namespace orrery::sim

namespace orrery::sim::hand_made {

struct Job {
    std::int64_t tp = 1, dp = 1, pp = 1;
    std::int64_t micro_batches = 1;
    std::int64_t layers = 1;  // of each stage
    program::Schedule schedule = program::Schedule::one_f_one_b;
    std::int64_t message_elements = 1024;
    bool tied_embeddings = false;
    bool norms_over_tp = false;  // ends with a reduction over tp on the dp stream, so that two streams use the tp axis
};

/// Transformer-like stages. In forward and backward each layer computes, reduces over tp and computes again. The last
/// micro-batch's backward also reduces one bucket over dp per layer. Transfers between stages have their own streams.
[[nodiscard]] program::Program make_program(const Job& job);

/// All `tp` ranks run one action, whose segments call these bodies.
[[nodiscard]] program::Program one_action(std::int64_t tp, std::vector<std::vector<program::Instruction>> bodies);
[[nodiscard]] program::Program one_body(std::int64_t tp, std::vector<program::Instruction> instructions);
[[nodiscard]] program::Instruction on_stream(program::Stream stream, const std::string& name,
                                             std::vector<program::InstructionIndex> after = {});
[[nodiscard]] program::Instruction compute(const std::string& name, std::vector<program::InstructionIndex> after = {});
/// An all-reduce of 32 bytes over tp, on the tp stream.
[[nodiscard]] program::Instruction reduce(const std::string& name, std::vector<program::InstructionIndex> after = {});

/// Nodes with GPUs and at most one NIC per GPU; all figures are round numbers.
[[nodiscard]] topologies::ClusterSpec gpu_cluster(std::int64_t nodes, std::int64_t devices_per_node,
                                                  std::int64_t nics_per_node);
/// Nodes whose ranks share `cores` cores.
[[nodiscard]] topologies::ClusterSpec cpu_cluster(std::int64_t nodes, std::int64_t devices_per_node,
                                                  std::int64_t cores);

/// The job alone on the cluster, which does not change.
[[nodiscard]] PlacedJob placed(const program::Program& program, const topologies::ClusterSpec& cluster);
/// Its reduction to one rank of each kind, or with `full` to itself, on a fabric that is never oversubscribed.
[[nodiscard]] Quotient quotient_of(const program::Program& program, const topologies::ClusterSpec& cluster,
                                   bool full = false);

/// Durations of local instructions, by body and index in the body.
class ListCost final : public CostModel {
  public:
    explicit ListCost(std::vector<std::int64_t> of_first_body) : durations_{std::move(of_first_body)} {}
    explicit ListCost(std::vector<std::vector<std::int64_t>> durations) : durations_(std::move(durations)) {}
    [[nodiscard]] Picoseconds instruction_time(const InstructionContext& where) const override {
        const program::BodyId body = where.segments_here()[where.segment].body;
        return Picoseconds(durations_.at(body.position()).at(where.instruction.position()));
    }
    [[nodiscard]] bool depends_on_action() const override { return false; }
    [[nodiscard]] std::vector<std::string> notes(const program::Program&) const override { return {"a note"}; }

  private:
    std::vector<std::vector<std::int64_t>> durations_;
};

/// Random durations below `scale_ps`, which depend on the class, the body and the instruction.
class HashCost final : public CostModel {
  public:
    HashCost(std::uint64_t seed, std::uint64_t scale_ps) : random_(seed, "compute"), scale_(scale_ps) {}
    [[nodiscard]] Picoseconds instruction_time(const InstructionContext& where) const override;
    [[nodiscard]] bool depends_on_action() const override { return false; }
    [[nodiscard]] std::vector<std::string> notes(const program::Program&) const override { return {}; }

  private:
    RandomStream random_;
    std::uint64_t scale_;
};

/// Random durations that depend on the operation and on the placement of its group, with a high load on ports and NICs.
/// `uses_fabric`: rings and sends also load the links of the fabric.
class HashCommunication final : public CommunicationCost {
  public:
    HashCommunication(const topologies::ClusterSpec& cluster, std::uint64_t seed, std::uint64_t scale_ps,
                      bool uses_fabric = false)
        : cluster_(cluster), random_(seed, "communication"), scale_(scale_ps), uses_fabric_(uses_fabric) {}
    [[nodiscard]] std::vector<OperationCost> costs(program::GroupAxis axis, std::span<const Operation> operations,
                                                   std::span<const std::int64_t> devices) const override;

  private:
    topologies::ClusterSpec cluster_;
    RandomStream random_;
    std::uint64_t scale_;
    bool uses_fabric_;
};

}  // namespace orrery::sim::hand_made
