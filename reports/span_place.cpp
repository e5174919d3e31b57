#include "reports/span_place.h"

namespace orrery::reports {

SpanPlace place_of(const program::Program& program, std::int32_t rank_class, const program::Span& span) {
    const program::RankClass& ranks = program.classes.at(static_cast<std::size_t>(rank_class));
    const program::Action& action = ranks.actions.at(static_cast<std::size_t>(span.action));
    const auto& segments = ranks.segment_lists.at(static_cast<std::size_t>(action.segments));
    const program::Segment& segment = segments.at(static_cast<std::size_t>(span.segment));
    const program::Body& body = program.bodies.at(static_cast<std::size_t>(segment.body));
    return {action, body.instructions.at(static_cast<std::size_t>(span.instruction)), body.phase};
}

}  // namespace orrery::reports
