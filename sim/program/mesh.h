// The mesh of ranks and its process groups. One arithmetic for all: lowering, validator, engine and executor ask here.
//
// Ranks carry two sets of coordinates. Dense: (tp, cp, dp, pp), numbered with Parallelism::order's first axis fastest.
// Expert: (etp, ep, edp, pp) over the same ranks in the same order, etp standing in tp's place and edp in dp's, as
// Megatron-Core's rank generator has it; pp must come out the same in both.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "core/index.h"
#include "sim/program/plan.h"

namespace orrery::program {

/// Families of process groups. Each rank is in at most one group of each axis; of the pipeline's pairs, at most once
/// as the sender and once as the receiver.
enum class GroupAxis : std::uint8_t {
    tp,
    kv,  // tp > kv_heads: the neighbours in tp that hold copies of one key/value head
    cp,
    ep,
    etp,
    dp,            // dense gradients: dp * cp ranks (dualpipe: of both ranks that hold the same stages)
    dp_shard,      // those of them that share one set of shards, when dp_shard is less than dp * cp
    dp_replicate,  // ranks with equal shards of different sets
    edp,           // expert gradients
    embedding,     // the ranks that hold the two copies of a tied embedding
    pipeline,      // all stages: vocabulary parallelism
    model,         // ranks that together hold one copy of the model: tp * pp
    world,         // everyone
    // Pairs (sender, receiver). Down: the forward goes from pipeline rank r to r + 1 (and from the last to the first
    // between chunks); up: from r to r - 1 (second half of a V, second direction of dualpipe).
    down_forward,
    down_backward,
    up_forward,
    up_backward,
};
inline constexpr std::size_t kAxisCount = static_cast<std::size_t>(GroupAxis::up_backward) + 1;
template <typename T>
using PerAxis = EnumArray<GroupAxis, T, kAxisCount>;
inline constexpr auto kAxes = enum_values<GroupAxis, kAxisCount>();
[[nodiscard]] std::string_view name_of(GroupAxis axis);
[[nodiscard]] constexpr bool is_pair(GroupAxis axis) {
    return axis >= GroupAxis::down_forward;
}

struct MeshCoordinates {
    std::int64_t tp = 0, cp = 0, dp = 0, pp = 0;
    bool operator==(const MeshCoordinates&) const = default;
};
struct ExpertCoordinates {
    std::int64_t etp = 0, ep = 0, edp = 0, pp = 0;
    bool operator==(const ExpertCoordinates&) const = default;
};

class Mesh {
  public:
    explicit Mesh(const Plan& plan);

    [[nodiscard]] std::int64_t world_size() const { return world_size_; }
    [[nodiscard]] MeshCoordinates coordinates(std::int64_t rank) const;
    [[nodiscard]] ExpertCoordinates expert_coordinates(std::int64_t rank) const;
    [[nodiscard]] std::int64_t rank_at(MeshCoordinates at) const;

    /// Members in the order of their coordinates; empty when the rank is in none. Of a pair: the sender, the receiver,
    /// where `rank` is the sender.
    [[nodiscard]] std::vector<std::int64_t> group_of(GroupAxis axis, std::int64_t rank) const;
    /// Members of one group; 0 when the axis has none.
    [[nodiscard]] std::int64_t group_size(GroupAxis axis) const { return sizes_[axis]; }

  private:
    struct Digit {
        std::int64_t extent = 1, stride = 1;
        [[nodiscard]] std::int64_t of(std::int64_t rank) const { return rank / stride % extent; }
    };
    void number_dense();
    void number_experts();
    [[nodiscard]] std::vector<std::int64_t> box(std::int64_t rank, std::initializer_list<Digit> digits) const;
    [[nodiscard]] std::vector<std::int64_t> gradient_group(std::int64_t rank) const;
    [[nodiscard]] std::vector<std::int64_t> pair_of(GroupAxis axis, std::int64_t rank) const;

    Parallelism parallelism_;
    std::int64_t world_size_ = 1;
    Digit tp_, cp_, dp_, pp_, etp_, ep_, edp_;
    std::int64_t kv_copies_ = 1;                       // neighbours in tp that hold one key/value head
    std::int64_t first_holder_ = 0, last_holder_ = 0;  // pipeline ranks of the first and the last virtual stage
    bool ties_across_ranks_ = false;
    bool mirrored_ = false;  // dualpipe: rank pp and pp' = p - 1 - pp hold the same stages
    bool wraps_ = false;     // interleaved: the last pipeline rank sends forward to the first
    PerAxis<std::int64_t> sizes_{};
};

/// Empty when the order numbers both meshes consistently; otherwise the broken rule.
[[nodiscard]] std::string mesh_problem(const Parallelism& parallelism);

}  // namespace orrery::program
