// The mesh of ranks and its process groups. Lowering, validator, engine and executor all take the groups from here.
//
// Each rank has two sets of coordinates. Dense: (tp, cp, dp, pp), where the first axis of Parallelism::order varies
// fastest. Expert: (etp, ep, edp, pp) over the same ranks in the same order, with etp in the place of tp and edp in the
// place of dp, as in Megatron-Core's rank generator. The pp coordinate must be the same in both.
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

/// Families of process groups. A rank is in at most one group of each axis. The pipeline's pairs are the exception: a
/// rank is in at most two pairs of an axis, once as the sender and once as the receiver.
enum class GroupAxis : std::uint8_t {
    tp,
    kv,  // tp > kv_heads: neighbouring tp ranks that hold copies of the same key/value head
    cp,
    ep,
    etp,
    dp,            // dense gradients: dp * cp ranks (dualpipe: those of both pipeline ranks that hold the same stages)
    dp_shard,      // HSDP: the ranks of a dp group that share one set of shards
    dp_replicate,  // HSDP: the ranks of a dp group that hold the same shard in different sets
    edp,           // expert gradients
    embedding,     // the ranks that hold the two copies of a tied embedding
    pipeline,      // all pipeline ranks, for vocabulary parallelism
    model,         // the tp * pp ranks that together hold one copy of the model
    world,         // all ranks
    // Pairs (sender, receiver). Down: activations go from pipeline rank r to r + 1 (interleaved: and from the last rank
    // to the first). Up: they go from r to r - 1 (second half of a V, second direction of dualpipe). Gradients go the
    // opposite way.
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

    /// The members of the rank's group, in the order of their coordinates; empty if the rank is in none. For a pair
    /// axis: the pair whose sender is `rank`, as (sender, receiver).
    [[nodiscard]] std::vector<std::int64_t> group_of(GroupAxis axis, std::int64_t rank) const;
    /// Number of ranks in one group; 0 if the axis has no groups.
    [[nodiscard]] std::int64_t group_size(GroupAxis axis) const { return sizes_[axis]; }

  private:
    struct Digit {
        std::int64_t extent = 1, stride = 1;
        [[nodiscard]] std::int64_t of(std::int64_t rank) const { return rank / stride % extent; }
    };
    [[nodiscard]] bool is_mirrored(GroupAxis axis) const {
        return mirrored_ && (axis == GroupAxis::dp || axis == GroupAxis::edp);
    }
    [[nodiscard]] std::vector<std::int64_t> box(std::int64_t rank, const std::vector<Digit>& digits) const;
    [[nodiscard]] std::vector<std::int64_t> with_mirror(std::vector<std::int64_t> members, std::int64_t rank) const;
    [[nodiscard]] std::vector<std::int64_t> pair_of(GroupAxis axis, std::int64_t rank) const;

    Parallelism parallelism_;
    std::int64_t world_size_ = 1;
    Digit tp_, cp_, dp_, pp_, etp_, ep_, edp_;
    bool ties_across_ranks_ = false;       // the first and the last pipeline rank each hold the tied weight
    bool mirrored_ = false;                // dualpipe: pipeline ranks pp and p - 1 - pp hold the same stages
    bool wraps_ = false;                   // interleaved: the last pipeline rank sends activations to the first
    PerAxis<std::vector<Digit>> boxes_{};  // groups of all ranks that differ in these digits only
    PerAxis<std::int64_t> sizes_{};
};

/// Empty if Parallelism::order numbers both meshes consistently; otherwise the rule that is broken.
[[nodiscard]] std::string mesh_problem(const Parallelism& parallelism);

}  // namespace orrery::program
