#include <algorithm>

#include "core/error.h"
#include "sim/program/program.h"
#include "sim/program/validate_rules.h"

namespace orrery::program {
namespace rules {

std::string describe(const Program& program, Site site) {
    if (site.rank_class < 0) return "the program";
    const RankClass& ranks = program.classes[site.rank_class];
    std::string where = text("class {} ({})", site.rank_class, ranks.name);
    if (site.action < 0) return where;
    const Action& action = ranks.actions[site.action];
    where += text(", action {} ({}", site.action, action.kind);
    if (action.micro_batch >= 0) where += text(" of micro-batch {}", action.micro_batch);
    if (ranks.chunks.size() > 1) where += text(", chunk {}", action.chunk);
    where += ")";
    if (site.segment < 0) return where;
    const Segment& segment = ranks.segment_lists[action.segments][site.segment];
    where += text(", segment {} (layer {})", site.segment, segment.layer);
    if (site.instruction < 0) return where;
    return where + text(", instruction '{}'", program.bodies[segment.body].instructions[site.instruction].name);
}

void fail_with(const Program& program, std::string_view rule, Site site, const std::string& what) {
    throw BugError(text("the lowered program breaks the rule '{}': {}: {}", rule, describe(program, site), what));
}

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

std::vector<ClassIndex> classes_of_group(const Program& program, GroupAxis axis, ClassIndex rank_class) {
    std::vector<ClassIndex> classes;
    const bool spans_stages = axis == GroupAxis::world || axis == GroupAxis::model || axis == GroupAxis::pipeline;
    if (spans_stages || is_replicated(*program.plan)) {
        for (const ClassIndex c : program.classes.indices()) classes.push_back(c);
        return classes;
    }
    // A group that reduces gradients spans a second pipeline rank only if that one holds the same layers (dualpipe).
    const ClassIndex mirror = ClassIndex::of(program.classes.next_index() - rank_class - 1);
    const bool gradients = axis == GroupAxis::dp || axis == GroupAxis::edp;
    if (gradients && program.plan->parallelism.model_copies() > 1 && mirror != rank_class) {
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
    ORRERY_CHECK(is_pipeline(stream), text("{} is not a pipeline stream", stream));
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

}  // namespace rules

void validate(const Program& program) {
    ORRERY_CHECK(program.plan != nullptr && program.mesh != nullptr, "a program without its plan or its mesh");
    rules::check_indices(program);
    rules::check_counts(program);
    const rules::Traces traces = rules::traces_of(program);
    rules::check_transfers(program, traces);
    rules::check_collective_order(program, traces);
    rules::check_progress(program, traces);
    rules::check_buffers(program);
    rules::check_accesses(program, traces);
    rules::check_parameters(program);
    rules::check_footprint(program);
    rules::check_bytes(program);
}

}  // namespace orrery::program
