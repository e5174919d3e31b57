#include "exec/faults/place.h"

#include <utility>
#include <vector>

#include "sim/program/run_record.h"

namespace orrery::exec {
namespace {

using program::Instruction;
using program::Program;
using program::RankClass;

std::string key_at(const Program& program, std::int32_t rank_class, const InstructionPlace& place) {
    return program::key_of(program, rank_class,
                           {.action = place.action, .segment = place.segment, .instruction = place.instruction});
}

const Instruction& instruction_at(const Program& program, const RankClass& rank_class, const InstructionPlace& place) {
    const program::Action& action = rank_class.actions[static_cast<std::size_t>(place.action)];
    const program::Segment& segment =
        rank_class.segment_lists[static_cast<std::size_t>(action.segments)][static_cast<std::size_t>(place.segment)];
    return program.bodies[static_cast<std::size_t>(segment.body)]
        .instructions[static_cast<std::size_t>(place.instruction)];
}

/// The instructions of a stream in one step, in order.
std::vector<InstructionPlace> places_on(const Program& program, const RankClass& rank_class, program::Stream stream) {
    std::vector<InstructionPlace> places;
    for (std::size_t a = 0; a < rank_class.actions.size(); ++a) {
        const auto& segments = rank_class.segment_lists[static_cast<std::size_t>(rank_class.actions[a].segments)];
        for (std::size_t s = 0; s < segments.size(); ++s) {
            const auto& instructions = program.bodies[static_cast<std::size_t>(segments[s].body)].instructions;
            for (std::size_t i = 0; i < instructions.size(); ++i) {
                if (instructions[i].stream != stream) continue;
                places.push_back(
                    {static_cast<std::int32_t>(a), static_cast<std::int32_t>(s), static_cast<std::int32_t>(i)});
            }
        }
    }
    return places;
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
    const std::int32_t rank_class = program.class_of(rank);
    const RankClass& its_class = program.classes[static_cast<std::size_t>(rank_class)];
    const std::vector<InstructionPlace> places = places_on(program, its_class, awaited.stream);
    if (places.empty()) return "waits on stream " + std::string(program::name_of(awaited.stream));
    const auto index = static_cast<std::size_t>(awaited.sequence - 1) % places.size();
    return "waits for " + key_at(program, rank_class, places[index]) +
           partners_of(program, rank, instruction_at(program, its_class, places[index]));
}

bool is_in_a_step(const RankSnapshot& at) {
    return at.next.exists() && !writes_files(at.stage) && at.stage != RankStage::done;
}

}  // namespace

std::string describe_stage(const RankSnapshot& at) {
    switch (at.stage) {
        case RankStage::absent:
            return "before it started";
        case RankStage::starting:
            return "while it started";
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
    const std::int32_t rank_class = program.class_of(rank);
    std::string text = "step " + std::to_string(at.step) + ", ";
    text += at.finished.exists() ? "last finished " + key_at(program, rank_class, at.finished) : "nothing finished yet";
    text += ", next " + key_at(program, rank_class, at.next);
    if (at.awaited.sequence > 0) text += ", " + describe_wait(program, rank, at.awaited);
    if (at.exchanging) text += ", waits for all ranks";
    return text;
}

std::string describe_bystander(const program::Program& program, std::int64_t rank, const RankSnapshot& at) {
    if (!is_in_a_step(at)) return describe_stage(at);
    const std::string step = "step " + std::to_string(at.step) + ", ";
    if (at.awaited.sequence > 0) return step + describe_wait(program, rank, at.awaited);
    if (at.exchanging) return step + "waits for all ranks";
    return step + "at " + key_at(program, program.class_of(rank), at.next);
}

}  // namespace orrery::exec
