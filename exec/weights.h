// Initial weights. Each element is a function of the seed, the name of the global tensor and the element's index in it,
// so every plan starts from the same model without communication. The mapping from local to global rows is also used to
// assemble shards (slices.h).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "models/layer.h"
#include "sim/program/program.h"

namespace orrery::exec {

/// A rank's coordinates on the axes that parameters are sharded over.
struct ShardPlace {
    std::int64_t tp = 0;
    std::int64_t kv_copies = 1;           // number of adjacent tensor-parallel ranks that hold the same key/value heads
    std::int64_t pp = 0;                  // for parameters that are sharded over the stages
    std::int64_t ep = 0;                  // for expert weights
    std::int64_t etp = 0, etp_ranks = 1;  // for expert weights: each expert is sharded over etp_ranks
};
[[nodiscard]] ShardPlace place_of(const program::Program& program, std::int64_t rank);
/// The index of the rank's part of the vocabulary, which is sharded over the tensor-parallel ranks or over the stages.
[[nodiscard]] std::int64_t vocabulary_index(const program::Program& program, std::int64_t rank);

/// One row of one part of a parameter slot's local shard, and its place in the global tensor.
struct ShardRow {
    const models::ParameterPart* part = nullptr;
    std::int64_t local_offset = 0;  // in elements, from the start of the slot
    std::int64_t local_cols = 0;
    std::int64_t global_row = -1;    // -1: padding, a row of zeros
    std::int64_t global_col = 0;     // of the first local column
    std::int64_t valid_cols = 0;     // local columns that exist in the global tensor; 0 for padding rows
    std::int64_t global_offset = 0;  // in elements, from the start of the global tensor; valid if valid_cols > 0
};

/// Calls `visit` for each local row, in memory order. A replicated slot is its own global tensor. Expert weights are
/// stored expert by expert, each with its rows of every part. The global tensor of a part stacks the experts' rows.
void for_each_local_row(const models::SlotDecl& slot, const ShardPlace& place,
                        const std::function<void(const ShardRow&)>& visit);

/// The prefix of the global tensor's name before the part's name: "layers.3." for the parameter
/// "layers.3.attention.qkv.weight" of slot "attention.qkv.weight".
[[nodiscard]] std::string layer_prefix(const std::string& parameter_name, const models::SlotDecl& slot);

/// Fills the local shard of a parameter slot. Scaled elements are uniform with standard deviation init_std:
/// (2u - 1) * sqrt(3) * init_std in double, rounded once to float; u from RandomStream(seed, prefix + part name) at the
/// element's index in the global tensor. Padding is zero.
///
/// for_each_initial_row() visits each row, or part of a row, in the elements [first, first + count) of the shard. The
/// arguments of `visit` are the offset of its first element from `first`, and its values.
void for_each_initial_row(const models::SlotDecl& slot, const std::string& prefix, const ShardPlace& place,
                          std::uint64_t seed, std::int64_t first, std::int64_t count,
                          const std::function<void(std::int64_t, std::span<const float>)>& visit);
void fill_parameter(const models::SlotDecl& slot, const std::string& prefix, const ShardPlace& place,
                    std::uint64_t seed, std::span<float> values);

}  // namespace orrery::exec
