#include "exec/faults/place.h"

#include <utility>
#include <vector>

namespace orrery::exec {
namespace {

using program::Instruction;
using program::Program;
using program::RankClass;
using program::Span;

const Instruction& instruction_at(const Program& program, const RankClass& rank_class, const Span& span) {
    const program::Segment& segment = rank_class.segment_lists[rank_class.actions[span.action].segments][span.segment];
    return program.bodies[segment.body].instructions[span.instruction];
}

/// The instructions of a stream in one step, in order.
std::vector<Span> spans_on(const Program& program, const RankClass& rank_class, program::Stream stream) {
    std::vector<Span> spans;
    for (const program::ActionIndex a : rank_class.actions.indices()) {
        const program::SegmentList& segments = rank_class.segment_lists[rank_class.actions[a].segments];
        for (const program::SegmentIndex s : segments.indices()) {
            const auto& instructions = program.bodies[segments[s].body].instructions;
            for (const program::InstructionIndex i : instructions.indices()) {
                if (instructions[i].stream == stream) spans.push_back({.action = a, .segment = s, .instruction = i});
            }
        }
    }
    return spans;
}

std::string partners_of(const Program& program, std::int64_t rank, const Instruction& instruction) {
    if (program::is_pipeline(instruction.stream)) {
        return " with rank " + std::to_string(program.peer_of(instruction.stream, rank));
    }
    std::string text = " of ranks";
    for (const std::int64_t member : program.group_of(instruction.communication.axis, rank)) {
        text += " " + std::to_string(member);
    }
    return text;
}

std::string describe_wait(const Program& program, std::int64_t rank, const AwaitedOperation& awaited) {
    const program::ClassIndex rank_class = program.class_of(rank);
    const RankClass& its_class = program.classes[rank_class];
    const std::vector<Span> spans = spans_on(program, its_class, awaited.stream);
    if (spans.empty()) return "waits on stream " + std::string(program::name_of(awaited.stream));
    const Span& span = spans[static_cast<std::size_t>(awaited.sequence - 1) % spans.size()];
    return "waits for " + key_of(program, rank_class, span) +
           (instruction_at(program, its_class, span).is_communication
                ? partners_of(program, rank, instruction_at(program, its_class, span))
                : " on its device");
}

bool is_in_a_step(const RankSnapshot& at) {
    return at.next.exists() && !writes_files(at.stage) && at.stage != RankStage::done;
}

}  // namespace

Span span_at(const InstructionPlace& place) {
    return {.action = program::ActionIndex::of(place.action),
            .segment = program::SegmentIndex::of(place.segment),
            .instruction = program::InstructionIndex::of(place.instruction)};
}

std::string describe_stage(const RankSnapshot& at) {
    switch (at.stage) {
        case RankStage::absent:
            return "before it started";
        case RankStage::starting:
            return "while it started";
        case RankStage::connecting:
            return "while its communicators were set up";
        case RankStage::preparing:
            return "while it prepared its first step";
        case RankStage::training:
            return "in step " + std::to_string(at.step);
        case RankStage::saving:
            return "while it wrote the checkpoint after step " + std::to_string(at.step);
        case RankStage::finishing:
            return "after its last step";
        case RankStage::done:
            return "after its work was done";
        case RankStage::failed:
            return "after it had failed";
    }
    return "";
}

std::string describe_place(const program::Program& program, std::int64_t rank, const RankSnapshot& at) {
    if (!is_in_a_step(at)) return describe_stage(at);
    const program::ClassIndex rank_class = program.class_of(rank);
    std::string text = "step " + std::to_string(at.step) + ", ";
    text += at.finished.exists() ? "last finished " + key_of(program, rank_class, span_at(at.finished))
                                 : "nothing finished yet";
    text += ", next " + key_of(program, rank_class, span_at(at.next));
    if (at.awaited.sequence > 0) text += ", " + describe_wait(program, rank, at.awaited);
    if (at.exchanging) text += ", waits for all ranks";
    return text;
}

std::string describe_bystander(const program::Program& program, std::int64_t rank, const RankSnapshot& at) {
    if (!is_in_a_step(at)) return describe_stage(at);
    const std::string step = "step " + std::to_string(at.step) + ", ";
    if (at.awaited.sequence > 0) return step + describe_wait(program, rank, at.awaited);
    if (at.exchanging) return step + "waits for all ranks";
    return step + "at " + key_of(program, program.class_of(rank), span_at(at.next));
}

}  // namespace orrery::exec
