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
