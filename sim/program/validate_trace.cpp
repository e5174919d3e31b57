// Helpers of the rules: traces, rank classes and groups, and the plan's pipeline.
#include <algorithm>

#include "core/error.h"
#include "sim/program/validate_rules.h"

namespace orrery::program::rules {

Traces traces_of(const Program& program) {
    Traces traces;
    for (const ClassIndex c : program.classes.indices()) traces.push_back(trace_of(program, c));
    return traces;
}

TouchedSlots touched_slots(const Program& program) {
    TouchedSlots touched(program.bodies.size());
    for (const BodyId b : program.bodies.indices()) {
        const Body& body = program.bodies[b];
        IndexedVector<models::SlotIndex, bool> seen(body.slots.size());
        for (const Instruction& instruction : body.instructions) {
            visit_accesses(body, instruction, [&](models::SlotIndex slot, bool) {
                if (!seen[slot]) touched[b].push_back(slot);
                seen[slot] = true;
            });
        }
    }
    return touched;
}

bool is_replicated(const Program& program) {
    return program.plan->parallelism.data_parallel == DataParallel::dp;
}

std::int64_t representative(const Program& program, ClassIndex rank_class) {
    if (is_replicated(program)) return rank_class.value();
    return program.mesh->rank_at({.pp = rank_class.value()});
}

std::vector<ClassIndex> classes_of_group(const Program& program, GroupAxis axis, ClassIndex rank_class) {
    const Parallelism& p = program.plan->parallelism;
    std::vector<ClassIndex> classes;
    const bool spans_stages = axis == GroupAxis::world || axis == GroupAxis::model || axis == GroupAxis::pipeline;
    if (spans_stages || is_replicated(program)) {
        for (const ClassIndex c : program.classes.indices()) classes.push_back(c);
        return classes;
    }
    // A group that reduces gradients spans a second pipeline rank only if that one holds the same layers (dualpipe).
    const ClassIndex mirror = ClassIndex::of(program.classes.next_index() - rank_class - 1);
    const bool gradients = axis == GroupAxis::dp || axis == GroupAxis::edp;
    if (gradients && p.model_copies() > 1 && mirror != rank_class) {
        return {std::min(rank_class, mirror), std::max(rank_class, mirror)};
    }
    if (axis != GroupAxis::embedding) return {rank_class};
    for (const std::int64_t member : program.group_of(axis, representative(program, rank_class))) {
        classes.push_back(program.class_of(member));
    }
    std::sort(classes.begin(), classes.end());
    return classes;
}

Stream opposite(Stream stream) {
    if (!is_pipeline(stream)) {
        throw BugError(text("stream {} is not a pipeline stream", stream));
    }
    // A receive is followed by the send of its flow.
    constexpr auto kFirst = static_cast<std::size_t>(Stream::pp_recv_forward);
    return static_cast<Stream>(kFirst + ((static_cast<std::size_t>(stream) - kFirst) ^ 1U));
}

MicroBatches micro_batches_of(const Plan& plan, const Chunk& chunk) {
    const auto all = static_cast<std::int32_t>(plan.micro_batches());
    if (plan.parallelism.model_copies() == 1) return {0, all};
    return chunk.direction == 0 ? MicroBatches{0, all / 2} : MicroBatches{all / 2, all};
}

Neighbour neighbour_of(const ScheduleShape& shape, const RankClass& ranks, const Chunk& chunk, std::int64_t shift) {
    const std::int64_t stage = chunk.virtual_stage + shift;
    if (chunk.part != ChunkPart::stage || stage < 0 || stage >= virtual_stages(shape)) return {};
    const StageHolder holder = stage_holder(shape, stage, chunk.direction);
    const bool here = holder.rank == ranks.pp_index;
    return {.is_here = here, .is_elsewhere = !here, .holder = holder};
}

}  // namespace orrery::program::rules
