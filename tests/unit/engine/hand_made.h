// Programs, clusters and costs written by hand, so that the engine is tested without the lowering.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "sim/engine/placed_job.h"
#include "sim/engine/simulate.h"

namespace orrery::sim::hand_made {

struct Job {
    std::int64_t tp = 1, dp = 1, pp = 1;
    std::int64_t micro_batches = 1;
    std::int64_t layers = 1;  // of each stage
    program::Schedule schedule = program::Schedule::one_f_one_b;
    std::int64_t message_elements = 1024;
    bool tied_embeddings = false;
    bool norms_over_tp = false;  // a last reduction over tp on the dp stream: one axis on two streams
};

/// Transformer-like stages: each layer computes, reduces over tp and computes again, forward and backward; the last
/// micro-batch's backward reduces a bucket over dp in each layer; transfers have streams of their own.
[[nodiscard]] program::Program make_program(const Job& job);

/// One action, run by all `tp` ranks, whose segments call these bodies.
[[nodiscard]] program::Program one_action(std::int64_t tp, std::vector<std::vector<program::Instruction>> bodies);
[[nodiscard]] program::Program one_body(std::int64_t tp, std::vector<program::Instruction> instructions);
[[nodiscard]] program::Instruction on_stream(program::Stream stream, const std::string& name,
                                             std::vector<program::InstructionIndex> after = {});
[[nodiscard]] program::Instruction compute(const std::string& name, std::vector<program::InstructionIndex> after = {});
/// 32 bytes over tp, on the stream of that name.
[[nodiscard]] program::Instruction reduce(const std::string& name, std::vector<program::InstructionIndex> after = {});

/// Nodes of GPUs with one NIC each, or fewer; figures are round numbers.
[[nodiscard]] topologies::ClusterSpec gpu_cluster(std::int64_t nodes, std::int64_t devices_per_node,
                                                  std::int64_t nics_per_node);
/// Nodes whose ranks share `cores` cores.
[[nodiscard]] topologies::ClusterSpec cpu_cluster(std::int64_t nodes, std::int64_t devices_per_node,
                                                  std::int64_t cores);

/// Alone on that cluster, as it stays.
[[nodiscard]] PlacedJob placed(const program::Program& program, const topologies::ClusterSpec& cluster);

/// Durations of local instructions by their body, then their index in it.
class ListCost final : public CostModel {
  public:
    explicit ListCost(std::vector<std::int64_t> of_first_body) : durations_{std::move(of_first_body)} {}
    explicit ListCost(std::vector<std::vector<std::int64_t>> durations) : durations_(std::move(durations)) {}
    [[nodiscard]] Picoseconds instruction_time(const InstructionContext& where) const override {
        const auto body = static_cast<std::size_t>(where.segments_here()[static_cast<std::size_t>(where.segment)].body);
        return Picoseconds(durations_.at(body).at(static_cast<std::size_t>(where.instruction)));
    }
    [[nodiscard]] bool depends_on_action() const override { return false; }
    [[nodiscard]] std::vector<std::string> notes(const program::Program&) const override { return {"a note"}; }

  private:
    std::vector<std::vector<std::int64_t>> durations_;
};

/// Durations that differ between classes, bodies and instructions, below `scale_ps`.
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

/// Durations that depend on the operation and on how its group lies, with most of the link taken meanwhile; of the
/// fabric's links by rings and sends, where asked for.
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
