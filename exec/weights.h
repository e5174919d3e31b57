// Initial weights: each element is a function of the seed, the global tensor's name and the element's index in the
// global tensor, so that every plan starts from the same model without any communication. The same mapping from local
// rows to global ones serves those who put shards together again.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "models/layer.h"
#include "sim/program/program.h"

namespace orrery::exec {

/// Which part of each parameter is a rank's.
struct ShardPlace {
    std::int64_t tp = 0;
    std::int64_t kv_copies = 1;           // so many neighbours hold the same key/value head
    std::int64_t pp = 0;                  // of what is cut over the stages
    std::int64_t ep = 0;                  // of experts' weights
    std::int64_t etp = 0, etp_ranks = 1;  // of experts' weights: each expert is cut over so many
};
[[nodiscard]] ShardPlace place_of(const program::Program& program, std::int64_t rank);
/// Which part of the vocabulary the rank has: it is cut over tensor-parallel ranks, or over the stages.
[[nodiscard]] std::int64_t vocabulary_index(const program::Program& program, std::int64_t rank);

/// One row of one part of a parameter slot's local shard, and where it lies in the global tensor.
struct ShardRow {
    const models::ParameterPart* part = nullptr;
    std::int64_t local_offset = 0;  // elements from the slot's first
    std::int64_t local_cols = 0;
    std::int64_t global_row = -1;    // -1: padding, a row of zeros
    std::int64_t global_col = 0;     // of the first local column
    std::int64_t valid_cols = 0;     // local columns that exist in the global tensor; 0 for padding rows
    std::int64_t global_offset = 0;  // elements from the global tensor's first; meaningful when valid_cols > 0
};

/// Calls `visit` for each local row, in memory order. A replicated slot is its own global tensor. Experts' weights lie
/// expert by expert, each with its rows of every part; the global tensor of a part has the experts below one another.
void for_each_local_row(const models::SlotDecl& slot, const ShardPlace& place,
                        const std::function<void(const ShardRow&)>& visit);

/// What stands before the part's name in the global tensor's name: "layers.3." for the parameter
/// "layers.3.attention.qkv.weight" of slot "attention.qkv.weight".
[[nodiscard]] std::string layer_prefix(const std::string& parameter_name, const models::SlotDecl& slot);

/// Fills the local shard of a parameter slot. Scaled elements are uniform with standard deviation init_std:
/// (2u - 1) * sqrt(3) * init_std in double, rounded once to float; u from RandomStream(seed, prefix + part name) at the
/// element's index in the global tensor. Padding is zero.
///
/// for_each_initial_row() calls `visit` with the values of each row, or part of one, that lies in [first, first +
/// count) of the shard, and where its first element lies in that range.
void for_each_initial_row(const models::SlotDecl& slot, const std::string& prefix, const ShardPlace& place,
                          std::uint64_t seed, std::int64_t first, std::int64_t count,
                          const std::function<void(std::int64_t, std::span<const float>)>& visit);
void fill_parameter(const models::SlotDecl& slot, const std::string& prefix, const ShardPlace& place,
                    std::uint64_t seed, std::span<float> values);

}  // namespace orrery::exec
