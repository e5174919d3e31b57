#include "sim/program/sensitivity.h"

#include "core/enum_names.h"

namespace orrery::program {
namespace {

using models::Operator;
using models::WorkClass;

constexpr auto kPassNames = name_table<WorkPass::step>({"forward", "backward", "recomputation", "step"});

/// The kernels of attention GEMMs load heads in vectors of 16 bytes.
constexpr std::int64_t kHeadMultiple = 8;
/// Up to this head dimension, fused attention keeps tiles of twice as many rows in registers.
constexpr std::int64_t kNarrowHead = 64;

WorkPass pass_of(Phase phase, bool again) {
    if (again) return WorkPass::recomputation;
    if (phase == Phase::forward) return WorkPass::forward;
    return is_pass(phase) ? WorkPass::backward : WorkPass::step;
}

bool is_product_class(WorkClass work) {
    return work == WorkClass::product || work == WorkClass::expert_product || work == WorkClass::attention ||
           work == WorkClass::attention_product;
}

}  // namespace

std::string name_of(const WorkCell& cell) {
    std::string name(name_of(cell.work));
    const bool is_host = cell.work >= WorkClass::launch && cell.work <= WorkClass::host_step;
    if (is_host) return name;
    if (cell.work == WorkClass::hidden) return name.append(" ").append(name_of(cell.axis));
    const char* const where = cell.between_nodes ? " between nodes" : " inside a node";
    if (cell.work == WorkClass::tp_wait) return name + where;
    if (cell.work == WorkClass::communication) {
        return std::string(name_of(cell.kind)).append(" ").append(name_of(cell.axis)) + where;
    }
    name.append(" ").append(kPassNames[cell.pass]);
    if (cell.at_end) name += " at an end";
    if (cell.odd_heads) name += " odd heads";
    if (cell.narrow_heads) name += " narrow heads";
    if (is_product_class(cell.work)) name += " " + std::string(orrery::name_of(cell.math));
    return name;
}

WorkCell cell_of(const Operator& op, Phase phase) {
    WorkCell cell;
    cell.work = models::row_of(op.kind).work;
    const bool in_core = op.part == models::BlockPart::attention_core;
    if (in_core && cell.work == WorkClass::elementwise) cell.work = WorkClass::attention_memory;
    cell.pass = pass_of(phase, op.again);
    cell.at_end = op.at_end;
    if (is_product_class(cell.work)) cell.math = op.math;
    cell.odd_heads = cell.work == WorkClass::attention_product && op.head_dim % kHeadMultiple != 0;
    cell.narrow_heads = cell.work == WorkClass::attention && op.head_dim <= kNarrowHead;
    return cell;
}

WorkCell cell_of(CommKind kind, GroupAxis axis, bool between_nodes) {
    return {.work = WorkClass::communication,
            .pass = WorkPass::step,
            .kind = kind,
            .axis = axis,
            .between_nodes = between_nodes};
}

}  // namespace orrery::program
