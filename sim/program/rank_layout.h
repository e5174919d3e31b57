// Private to the lowerings: what the ranks of one pipeline position hold, before anything is listed: the layers of each
// chunk, where their parameters, gradients, shards and activations lie, and which gradients cross ranks together.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/program/body_builder.h"
#include "sim/program/form_library.h"
#include "sim/program/layer_form.h"
#include "sim/program/program.h"
#include "sim/program/schedule.h"

namespace orrery::program {

struct LaidLayer {
    const LayerForm* form = nullptr;
    std::int32_t index = 0;  // Segment::layer
    Segment segment;         // bases; `body` is filled per pass
    std::vector<BucketCut> cuts;
    std::int32_t unit = -1;  // of the chunk's units; -1: nothing of it is gathered or reduced by unit
    bool offloaded = false;
};

/// Layers whose parameters are gathered, and whose gradients are reduced, together.
struct Unit {
    /// What is cut into shards as one; offsets count from the part's.
    struct Piece {
        std::int64_t offset = 0, elements = 0;
        std::int64_t shard_offset = 0, shard_elements = 0;
    };
    /// One contiguous run of the flat order: dense parameters of all sums, or experts.
    struct Part {
        std::int64_t elements = 0;
        std::int64_t window_offset = 0;  // elements, in the windows of gathered parameters and of gradients
        std::int64_t gradient_offset = 0;
        std::int64_t shard_offset = 0;
        std::vector<Piece> pieces;  // one, or more where a copy of a tied embedding is one by itself
    };
    std::vector<std::int32_t> layers;  // of the chunk, in forward order
    Part dense, expert;
    bool root = false;      // embedding and head: in a place of its own
    std::int32_t slot = 0;  // of the window
};

struct LaidChunk {
    std::vector<LaidLayer> layers;       // forward order
    std::vector<Unit> units;             // forward order; the root unit, if any, first
    std::vector<BucketCut> staged_last;  // buckets still in staging buffers after a backward that reduces
};

/// What the plan's data parallelism comes to for one rank class.
struct ShardingRules {
    std::int64_t dense_ranks = 1, expert_ranks = 1;    // that reduce gradients
    std::int64_t dense_shards = 1, expert_shards = 1;  // that share one set of shards
    bool reduces_dense = false, reduces_expert = false;
    bool gathers_units = false;  // parameters lie sharded (zero3)
    bool reduces_units = false;  // gradients go to shards after each backward (zero2, zero3)
    bool shards_states = false;  // any of zero1 … zero3
    bool overlaps = true;        // buckets are reduced inside the last backward
    ReductionForm dense, expert;
    [[nodiscard]] std::int64_t shards(ParameterRange range) const {
        return range == ParameterRange::expert ? expert_shards : dense_shards;
    }
    [[nodiscard]] bool reduces(ParameterRange range) const {
        return range == ParameterRange::expert ? reduces_expert : reduces_dense;
    }
    /// Of the ranks that share a set of shards, however gradients came there.
    [[nodiscard]] GroupAxis gather_axis(ParameterRange range) const {
        if (range == ParameterRange::expert) return GroupAxis::edp;
        return dense_shards < dense_ranks ? GroupAxis::dp_shard : GroupAxis::dp;
    }
    [[nodiscard]] const ReductionForm& form(ParameterRange range) const {
        return range == ParameterRange::expert ? expert : dense;
    }
};
/// The type in which backward passes write gradients: where they go to shards at once, the parameters' own.
[[nodiscard]] DType gradient_dtype(const Plan& plan, const ShardingRules& rules);
[[nodiscard]] ShardingRules sharding_rules(const Plan& plan, const Mesh& mesh, std::int64_t pp_index);

/// Gradients on their way across ranks, where a bucket or unit is staged. Each holds the largest.
inline constexpr std::int64_t kStagingBuffers = 2;

struct RankLayout {
    ShardingRules rules;
    DType gradient_dtype = DType::fp32;
    std::vector<LaidChunk> chunks;
    std::int32_t window_slots = 0;       // of gathered units, root places apart
    std::int32_t gradient_slots = 0;     // of units' gradients
    std::int64_t staging_bytes = 0;      // of one staging buffer
    std::vector<BucketCut> staged_last;  // buckets that still lie in staging buffers after the last backward
    bool holds_tied_copy = false;        // one of two copies of a tied embedding, summed across ranks
    /// A transfer between stages carries one of so many parts of a hidden state; the receiving tp group gathers them.
    std::int64_t transfer_parts = 1;
};

/// Fills the class's chunks, parameters, buckets, buffer sizes and frames.
[[nodiscard]] RankLayout lay_out_rank(const Plan& plan, const Mesh& mesh, const ScheduleShape& shape, StepKind step,
                                      FormLibrary& forms, RankClass& result);

}  // namespace orrery::program
