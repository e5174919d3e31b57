// What a predicted step consists of, as its derivatives: a cell is work that speeds up or slows down together, and its
// seconds are by how much the step would grow if all of that work took twice as long, to first order. Where nothing
// shares a resource the cells of a step add up to the step.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "models/operator_table.h"
#include "sim/program/mesh.h"
#include "sim/program/program.h"

namespace orrery::program {

enum class WorkPass : std::uint8_t { forward, backward, recomputation, step };
[[nodiscard]] std::string_view name_of(WorkPass pass);

struct WorkCell {
    models::WorkClass work{};
    WorkPass pass{};
    bool at_end = false;         // of the embedding or the head
    bool odd_heads = false;      // attention of a head dimension that is no multiple of 8
    bool narrow_heads = false;   // fused attention of a head dimension of at most 64
    DType math = DType::fp32;    // products and attention: what they multiply in
    CommKind kind{};             // communication
    GroupAxis axis{};            // communication
    bool between_nodes = false;  // communication: the group spans nodes
    auto operator<=>(const WorkCell&) const = default;
};
/// "product backward bf16", "all_reduce dp between nodes".
[[nodiscard]] std::string name_of(const WorkCell& cell);

/// `phase`: of the body that it stands in.
[[nodiscard]] WorkCell cell_of(const models::Operator& op, Phase phase);
[[nodiscard]] WorkCell cell_of(CommKind kind, GroupAxis axis, bool between_nodes);

/// Derivatives of a step's time.
struct Sensitivity {
    struct Entry {
        WorkCell cell;
        double seconds = 0;  // d step / d log(time of the cell's work)
        bool operator==(const Entry&) const = default;
    };
    std::vector<Entry> entries;  // ascending by cell, none twice
    [[nodiscard]] double total() const;
};

}  // namespace orrery::program
