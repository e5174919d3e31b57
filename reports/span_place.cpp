#include "reports/span_place.h"

namespace orrery::reports {

SpanPlace place_of(const program::Program& program, program::ClassIndex rank_class, const program::Span& span) {
    const program::RankClass& ranks = program.classes.at(rank_class);
    const program::Action& action = ranks.actions.at(span.action);
    const auto& segments = ranks.segment_lists.at(action.segments);
    const program::Segment& segment = segments.at(span.segment);
    const program::Body& body = program.bodies.at(segment.body);
    return {action, segment, body.instructions.at(span.instruction), body.phase};
}

std::string label_of(const program::Action& action) {
    std::string label(program::name_of(action.kind));
    if (action.micro_batch < 0) return label;
    return label + " c" + std::to_string(action.chunk.value()) + " mb" + std::to_string(action.micro_batch);
}

}  // namespace orrery::reports
