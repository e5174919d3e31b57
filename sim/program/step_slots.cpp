#include "sim/program/step_slots.h"

#include <algorithm>
#include <variant>

namespace orrery::program {

using models::Boundary;
using models::kNoSlot;
using models::Operator;
using models::SlotIndex;
using models::Step;

std::vector<SlotIndex> slots_read(const Step& step) {
    std::vector<SlotIndex> result;
    if (const auto* op = std::get_if<Operator>(&step)) {
        for (const SlotIndex slot : op->in) {
            if (slot != kNoSlot) result.push_back(slot);
        }
        return result;
    }
    const auto& boundary = std::get<Boundary>(step);
    for (const SlotIndex slot : {boundary.in, boundary.send_counts, boundary.receive_counts}) {
        if (slot != kNoSlot) result.push_back(slot);
    }
    return result;
}

std::vector<SlotIndex> slots_written(const Step& step) {
    std::vector<SlotIndex> result;
    if (const auto* op = std::get_if<Operator>(&step)) {
        for (const SlotIndex slot : op->out) {
            if (slot != kNoSlot) result.push_back(slot);
        }
        return result;
    }
    const auto& boundary = std::get<Boundary>(step);
    if (boundary.out != kNoSlot) result.push_back(boundary.out);
    return result;
}

bool reads(const Step& step, SlotIndex slot) {
    const std::vector<SlotIndex> all = slots_read(step);
    return std::find(all.begin(), all.end(), slot) != all.end();
}

bool writes(const Step& step, SlotIndex slot) {
    const std::vector<SlotIndex> all = slots_written(step);
    return std::find(all.begin(), all.end(), slot) != all.end();
}

bool touches(const std::vector<Step>& steps, SlotIndex slot) {
    return std::any_of(steps.begin(), steps.end(),
                       [&](const Step& step) { return reads(step, slot) || writes(step, slot); });
}

void rename_reads(Step& step, SlotIndex from, SlotIndex to) {
    if (auto* op = std::get_if<Operator>(&step)) {
        for (std::size_t i = 0; i < models::Operands::size(); ++i) {
            if (op->in[i] == from) op->in[i] = to;
        }
        return;
    }
    auto& boundary = std::get<Boundary>(step);
    for (SlotIndex* slot : {&boundary.in, &boundary.send_counts, &boundary.receive_counts}) {
        if (*slot == from) *slot = to;
    }
}

void rename_writes(Step& step, SlotIndex from, SlotIndex to) {
    if (auto* op = std::get_if<Operator>(&step)) {
        for (std::size_t i = 0; i < models::Operands::size(); ++i) {
            if (op->out[i] == from) op->out[i] = to;
        }
        return;
    }
    auto& boundary = std::get<Boundary>(step);
    if (boundary.out == from) boundary.out = to;
}

}  // namespace orrery::program
