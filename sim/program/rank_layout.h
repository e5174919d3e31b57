// Private to the lowerings: the layout of one rank class: the layers of each chunk, where their parameters, gradients,
// shards and activations lie, and which gradients are reduced together. The segment lists are built from it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/program/body_builder.h"
#include "sim/program/layer_library.h"
#include "sim/program/lowered_layer.h"
#include "sim/program/program.h"
#include "sim/program/schedule.h"

namespace orrery::program {

struct LaidLayer {
    const LoweredLayer* lowered = nullptr;
    std::int32_t index = 0;  // Segment::layer
    Segment segment;         // the bases; each pass fills in `body`
    std::vector<BucketCut> cuts;
    std::int32_t unit = -1;  // index in LaidChunk::units; -1: the layer is not gathered or reduced by unit
    bool offloaded = false;  // its saved activations go to the host
};

/// Layers whose parameters are gathered together and whose gradients are reduced together.
struct Unit {
    /// A contiguous part of the flat order: the experts, or all other parameters.
    struct Part {
        ParameterRange range = ParameterRange::dense;  // or expert
        std::int64_t elements = 0;
        std::int64_t window_offset = 0;    // elements, in Space::parameter
        std::int64_t gradient_offset = 0;  // elements, in Space::gradient
        std::int64_t shard_offset = 0;     // elements, in the shard spaces
        /// Elements that are sharded together, relative to the part's offsets: several pieces if a copy of a tied
        /// embedding is a piece by itself.
        std::vector<BucketCut> pieces;
    };
    std::vector<std::size_t> layers;  // indices in LaidChunk::layers, in forward order
    std::array<Part, 2> parts{Part{}, Part{.range = ParameterRange::expert}};
    bool root = false;      // embedding and head, which have a place of their own before the window's slots
    std::int32_t slot = 0;  // index of its slot in the window, unless it is the root

    [[nodiscard]] const Part& dense() const { return parts[0]; }
    [[nodiscard]] const Part& of(ParameterRange range) const { return parts[range == ParameterRange::expert ? 1 : 0]; }
    [[nodiscard]] std::int64_t elements() const { return parts[0].elements + parts[1].elements; }
};

struct LaidChunk {
    std::vector<LaidLayer> layers;  // forward order
    std::vector<Unit> units;        // forward order; the root unit, if any, first
    // If gradients are reduced every micro-batch: the buckets in staging buffers after a backward pass.
    std::vector<BucketCut> staged_last;
};

/// The consequences of the plan's data parallelism. Only `overlaps` may differ between rank classes.
struct ShardingRules {
    /// Of the gradients of the experts, or of all other gradients.
    struct Part {
        std::int64_t ranks = 1;   // that reduce the gradients together
        std::int64_t shards = 1;  // 1: states are not sharded
        bool reduces = false;     // more than one rank reduces
        Reduction reduction;
    };
    Part dense, expert;
    /// The type in which backward passes write gradients: zero3 that reduces by unit uses the parameters' type,
    /// everything else Precision::gradient.
    DType gradient_dtype = DType::fp32;
    bool gathers_units = false;  // zero3: parameters are sharded at rest and gathered by unit
    bool reduces_units = false;  // zero2, zero3 that reduce every micro-batch, with whole backward passes: gradients
                                 //   are reduced by unit, into shards
    bool shards_states = false;  // zero1, zero2, zero3 with more than one rank
    bool overlaps = true;        // buckets are reduced inside the backward pass, not after it

    [[nodiscard]] const Part& of(ParameterRange range) const {
        return range == ParameterRange::expert ? expert : dense;
    }
    /// zero1, zero2: each rank updates a part of every bucket, and the parts are gathered again.
    [[nodiscard]] bool gathers_buckets() const { return shards_states && !gathers_units; }
    [[nodiscard]] bool has_units() const { return gathers_units || reduces_units; }
    [[nodiscard]] bool is_staged() const { return dense.reduction.staged || expert.reduction.staged; }
    /// The axis of the ranks that share one set of shards, over which parameters are gathered.
    [[nodiscard]] GroupAxis gather_axis(ParameterRange range) const {
        if (range == ParameterRange::expert) return GroupAxis::edp;
        return dense.shards < dense.ranks ? GroupAxis::dp_shard : GroupAxis::dp;
    }
};
/// The axis over which the gradients of tensor_sum or kv_sum are summed.
[[nodiscard]] constexpr GroupAxis sum_axis(ParameterRange range) {
    return range == ParameterRange::tensor_sum ? GroupAxis::tp : GroupAxis::kv;
}
[[nodiscard]] ShardingRules sharding_rules(const Plan& plan, const Mesh& mesh, std::int64_t pp_index);

/// Staging buffers for the reduction of buckets, each as large as the largest bucket. Units share a single one.
inline constexpr std::int64_t kStagingBuffers = 2;

struct RankLayout {
    ShardingRules rules;
    DType stored_dtype = DType::fp32;  // of parameters between steps; zero3 may store shards in fp32 as master weights
    bool keeps_master = false;         // an fp32 copy of the parameters; shards that are stored in fp32 need none
    IndexedVector<ChunkIndex, LaidChunk> chunks;
    std::int32_t window_slots = 0;       // slots for gathered units, without the root units
    std::int32_t gradient_slots = 0;     // slots for the gradients of units, without the root units
    std::int64_t staging_bytes = 0;      // size of one staging buffer
    std::vector<BucketCut> staged_last;  // buckets in staging buffers after the last backward of the step
    bool holds_tied_copy = false;        // one of two copies of a tied embedding, whose gradients are summed
    std::int64_t hidden_elements = 0;    // of the hidden state in a boundary buffer
    /// Each tp rank transfers 1/transfer_parts of a hidden state between stages; the receiving tp group gathers it.
    std::int64_t transfer_parts = 1;

    /// The reduction of a bucket in a call with these bases.
    [[nodiscard]] BucketCut cut_of(const Bucket& bucket, std::int64_t gradient_base, std::int64_t shard_base) const {
        return {.range = bucket.range,
                .offset = bucket.offset - gradient_base,
                .elements = bucket.elements,
                .shard_offset = bucket.shard_offset - shard_base,
                .shard_elements = bucket.shard_elements,
                .reduction = rules.of(bucket.range).reduction};
    }
};

/// Fills in the class's chunks, parameters, buckets, buffer sizes and frame sizes.
[[nodiscard]] RankLayout lay_out_rank(const Plan& plan, const Mesh& mesh, const ScheduleShape& shape, StepKind step,
                                      LayerLibrary& layers, RankClass& result);

}  // namespace orrery::program
