// Private to the lowerings: questions about a layer's steps (operators and boundaries), and the slots that they read
// and write.
#pragma once

#include <vector>

#include "models/layer.h"

namespace orrery::program {

/// Whether the step is an operator of this kind, or a product.
[[nodiscard]] bool is_kind(const models::Step& step, models::OpKind kind);
[[nodiscard]] bool is_matmul(const models::Step& step);
/// Whether the operator has FLOPs on matrix units.
[[nodiscard]] inline bool uses_matrix_units(const models::Operator& op) {
    return op.is_matmul() || op.is_expert_matmul() || op.is_attention() || op.is_attention_product();
}

/// The slots that a step reads or writes. The scratch slot of an operator is in neither list.
[[nodiscard]] std::vector<models::SlotIndex> slots_read(const models::Step& step);
[[nodiscard]] std::vector<models::SlotIndex> slots_written(const models::Step& step);
[[nodiscard]] bool reads(const models::Step& step, models::SlotIndex slot);
[[nodiscard]] bool writes(const models::Step& step, models::SlotIndex slot);
/// Whether any of the steps reads it, writes it, or either.
[[nodiscard]] bool reads(const std::vector<models::Step>& steps, models::SlotIndex slot);
[[nodiscard]] bool writes(const std::vector<models::Step>& steps, models::SlotIndex slot);
[[nodiscard]] inline bool touches(const std::vector<models::Step>& steps, models::SlotIndex slot) {
    return reads(steps, slot) || writes(steps, slot);
}
/// Makes the step read (write) `to` in every place where it read (wrote) `from`.
void rename_reads(models::Step& step, models::SlotIndex from, models::SlotIndex to);
void rename_writes(models::Step& step, models::SlotIndex from, models::SlotIndex to);
inline void rename(models::Step& step, models::SlotIndex from, models::SlotIndex to) {
    rename_reads(step, from, to);
    rename_writes(step, from, to);
}

}  // namespace orrery::program
