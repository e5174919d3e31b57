#include "core/error.h"
#include "sim/program/program.h"
#include "sim/program/validate_rules.h"

namespace orrery::program {
namespace rules {

std::string describe(const Program& program, Site site) {
    if (site.rank_class < 0) return "the program";
    const RankClass& ranks = program.classes[site.rank_class];
    std::string text = "class " + std::to_string(site.rank_class.value()) + " (" + ranks.name + ")";
    if (site.action < 0) return text;
    const Action& action = ranks.actions[site.action];
    text += ", action " + std::to_string(site.action.value()) + " (" + std::string(name_of(action.kind));
    if (action.micro_batch >= 0) text += " of micro-batch " + std::to_string(action.micro_batch);
    if (ranks.chunks.size() > 1) text += ", chunk " + std::to_string(action.chunk.value());
    text += ")";
    if (site.segment < 0) return text;
    const Segment& segment = ranks.segment_lists[action.segments][site.segment];
    text += ", segment " + std::to_string(site.segment.value()) + " (layer " + std::to_string(segment.layer) + ")";
    if (site.instruction < 0) return text;
    const Body& body = program.bodies[segment.body];
    return text + ", instruction '" + body.instructions[site.instruction].name + "'";
}

void fail(const Program& program, std::string_view rule, Site site, const std::string& what) {
    throw BugError("the lowered program breaks the rule '" + std::string(rule) + "': " + describe(program, site) +
                   ": " + what);
}

}  // namespace rules

void validate(const Program& program) {
    ORRERY_CHECK(program.plan != nullptr && program.mesh != nullptr, "a program without its plan or its mesh");
    rules::check_indices(program);
    rules::check_counts(program);
    const IndexedVector<ClassIndex, Trace> traces = rules::traces_of(program);
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
