// The derivatives of a predicted step time. A cell is work that speeds up or slows down together. Its seconds are the
// time by which the step would grow, to first order, if all of that work took twice as long. If no work shares a
// resource, the cells of a step add up to its step time.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "core/dtype.h"
#include "models/operator_table.h"
#include "sim/program/mesh.h"
#include "sim/program/program.h"

namespace orrery::program {

enum class WorkPass : std::uint8_t { forward, backward, recomputation, step };

struct WorkCell {
    models::WorkClass work{};
    WorkPass pass{};
    bool at_end = false;         // work of the embedding or the head
    bool odd_heads = false;      // attention with a head dimension that is no multiple of 8
    bool narrow_heads = false;   // fused attention with a head dimension of at most 64
    DType math = DType::fp32;    // GEMMs and attention: the type in which they multiply
    CommKind kind{};             // communication
    GroupAxis axis{};            // communication
    bool between_nodes = false;  // communication: the group spans nodes
    auto operator<=>(const WorkCell&) const = default;
};
/// A name such as "product backward bf16" or "all_reduce dp between nodes".
[[nodiscard]] std::string name_of(const WorkCell& cell);

/// `phase`: the phase of the operator's body.
[[nodiscard]] WorkCell cell_of(const models::Operator& op, Phase phase);
[[nodiscard]] WorkCell cell_of(CommKind kind, GroupAxis axis, bool between_nodes);

/// The derivatives of a step time, in seconds: d(step time) / d log(time of the cell's work).
using Sensitivity = std::map<WorkCell, double>;

}  // namespace orrery::program
