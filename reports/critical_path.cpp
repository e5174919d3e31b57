#include "reports/critical_path.h"

#include <algorithm>

#include "core/error.h"
#include "reports/span_place.h"

namespace orrery::reports {

CriticalPath critical_path_of(const program::Program& program, const program::RunRecord& record, const PartTable& table,
                              const std::vector<PathElement>& elements) {
    CriticalPath path;
    if (elements.empty()) return path;
    const PathElement& first = elements.front();
    const std::int64_t origin = first.delay == TimePart::idle ? first.start_ps : first.from_ps;
    const PathElement* before = nullptr;
    for (const PathElement& element : elements) {
        const std::int64_t from = before == nullptr ? origin : element.from_ps;
        ORRERY_CHECK(from == origin + path.length_ps && element.start_ps >= from && element.to_ps >= element.start_ps,
                     "the critical path has a gap");
        const program::RankRecord& rank = record.ranks.at(static_cast<std::size_t>(element.record));
        const SpanPlace place = place_of(program, rank.rank_class, element.span);
        if (before == nullptr || before->record != element.record || before->span.action != element.span.action) {
            path.stretches.push_back({.rank = rank.rank,
                                      .stage = program.classes[rank.rank_class].name,
                                      .action = label_of(place.action),
                                      .from_ps = from - origin});
        }
        PathStretch& stretch = path.stretches.back();
        ++stretch.instructions;
        stretch.to_ps = element.to_ps - origin;
        stretch.parts[element.delay] += element.start_ps - from;
        const std::int64_t running = element.to_ps - element.start_ps;
        const program::BodyId body = place.segment.body;
        if (place.instruction.stream == program::Stream::compute) {
            table.add_compute(body, element.span.instruction, running, stretch.parts);
        } else {
            stretch.parts[table.of_instruction(body, element.span.instruction)] += running;
        }
        path.length_ps = element.to_ps - origin;
        before = &element;
    }
    for (const PathStretch& stretch : path.stretches) {
        for (const TimePart part : kTimeParts) path.parts[part] += stretch.parts[part];
    }
    return path;
}

}  // namespace orrery::reports
