#include "sim/program/step_slots.h"

#include <algorithm>
#include <variant>

namespace orrery::program {

using models::Boundary;
using models::kNoSlot;
using models::Operator;
using models::SlotIndex;
using models::Step;

namespace {

/// Which of a step's slots are meant.
enum class Access : std::uint8_t { read, written };

/// Calls visit(slot) for each of these slots, and for places without a slot (kNoSlot).
template <typename AnyStep, typename Visit>
void visit_slots(AnyStep& step, Access access, const Visit& visit) {
    if (auto* op = std::get_if<Operator>(&step)) {
        auto& slots = access == Access::read ? op->in : op->out;
        for (std::size_t i = 0; i < models::Operands::size(); ++i) visit(slots[i]);
        return;
    }
    auto& boundary = std::get<Boundary>(step);
    if (access == Access::written) return visit(boundary.out);
    visit(boundary.in);
    visit(boundary.send_counts);
    visit(boundary.receive_counts);
}

std::vector<SlotIndex> slots_of(const Step& step, Access access) {
    std::vector<SlotIndex> result;
    visit_slots(step, access, [&](SlotIndex slot) {
        if (slot != kNoSlot) result.push_back(slot);
    });
    return result;
}

bool has_slot(const Step& step, Access access, SlotIndex slot) {
    bool found = false;
    visit_slots(step, access, [&](SlotIndex other) { found = found || other == slot; });
    return found;
}

void rename_slots(Step& step, Access access, SlotIndex from, SlotIndex to) {
    visit_slots(step, access, [&](SlotIndex& slot) {
        if (slot == from) slot = to;
    });
}

}  // namespace

bool is_kind(const Step& step, models::OpKind kind) {
    const auto* op = std::get_if<Operator>(&step);
    return op != nullptr && op->kind == kind;
}

bool is_matmul(const Step& step) {
    const auto* op = std::get_if<Operator>(&step);
    return op != nullptr && op->is_matmul();
}

std::vector<SlotIndex> slots_read(const Step& step) {
    return slots_of(step, Access::read);
}

std::vector<SlotIndex> slots_written(const Step& step) {
    return slots_of(step, Access::written);
}

bool reads(const Step& step, SlotIndex slot) {
    return has_slot(step, Access::read, slot);
}

bool writes(const Step& step, SlotIndex slot) {
    return has_slot(step, Access::written, slot);
}

bool reads(const std::vector<Step>& steps, SlotIndex slot) {
    return std::ranges::any_of(steps, [&](const Step& step) { return reads(step, slot); });
}

bool writes(const std::vector<Step>& steps, SlotIndex slot) {
    return std::ranges::any_of(steps, [&](const Step& step) { return writes(step, slot); });
}

void rename_reads(Step& step, SlotIndex from, SlotIndex to) {
    rename_slots(step, Access::read, from, to);
}

void rename_writes(Step& step, SlotIndex from, SlotIndex to) {
    rename_slots(step, Access::written, from, to);
}

}  // namespace orrery::program
