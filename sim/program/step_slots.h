// Private to the lowerings: the slots that the steps of a layer touch, whether they are operators or boundaries.
#pragma once

#include <vector>

#include "models/layer.h"

namespace orrery::program {

/// The slots that a step reads (in, and scratch) and writes.
[[nodiscard]] std::vector<models::SlotIndex> slots_read(const models::Step& step);
[[nodiscard]] std::vector<models::SlotIndex> slots_written(const models::Step& step);
[[nodiscard]] bool reads(const models::Step& step, models::SlotIndex slot);
[[nodiscard]] bool writes(const models::Step& step, models::SlotIndex slot);
/// Whether any of the steps reads or writes it.
[[nodiscard]] bool touches(const std::vector<models::Step>& steps, models::SlotIndex slot);
/// The step reads (writes) `to` wherever it did `from`.
void rename_reads(models::Step& step, models::SlotIndex from, models::SlotIndex to);
void rename_writes(models::Step& step, models::SlotIndex from, models::SlotIndex to);

}  // namespace orrery::program
