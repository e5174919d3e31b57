#include "sim/planner/scaled_program.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/error.h"

namespace orrery::sim {
namespace {

using models::Operator;
using program::Body;
using program::Instruction;
using program::Program;
using program::Segment;
using program::Slot;

constexpr std::array kCounts{&Operator::rows,        &Operator::n,           &Operator::k,         &Operator::heads,
                             &Operator::kv_heads,    &Operator::sequence,    &Operator::queries,   &Operator::reach,
                             &Operator::copies,      &Operator::from_column, &Operator::to_column, &Operator::groups,
                             &Operator::micro_batch, &Operator::elements};
constexpr std::array kAmounts{&Operator::flops, &Operator::bytes_read, &Operator::bytes_written};
constexpr std::array kOffsets{&Segment::host_base,         &Segment::activation_base,    &Segment::hidden_in_offset,
                              &Segment::hidden_out_offset, &Segment::gradient_in_offset, &Segment::gradient_out_offset};

bool are_alike(const Instruction& a, const Instruction& b) {
    return a.stream == b.stream && a.is_communication == b.is_communication &&
           a.communication.kind == b.communication.kind && a.communication.axis == b.communication.axis &&
           a.first_operator == b.first_operator && a.operator_count == b.operator_count && a.after == b.after;
}

bool are_alike(const Body& a, const Body& b) {
    const auto same_kind = [](const Operator& x, const Operator& y) { return x.kind == y.kind; };
    const auto same_space = [](const Slot& x, const Slot& y) { return x.space == y.space; };
    const auto same_instruction = [](const Instruction& x, const Instruction& y) { return are_alike(x, y); };
    return std::equal(a.operators.begin(), a.operators.end(), b.operators.begin(), b.operators.end(), same_kind) &&
           std::equal(a.slots.begin(), a.slots.end(), b.slots.begin(), b.slots.end(), same_space) &&
           std::equal(a.instructions.begin(), a.instructions.end(), b.instructions.begin(), b.instructions.end(),
                      same_instruction);
}

bool are_alike(const Program& a, const Program& b) {
    if (a.bodies.size() != b.bodies.size() || a.classes.size() != b.classes.size()) return false;
    for (const program::BodyId id : a.bodies.indices()) {
        if (!are_alike(a.bodies[id], b.bodies[id])) return false;
    }
    for (const program::ClassIndex r : a.classes.indices()) {
        const auto &lists = a.classes[r].segment_lists, &others = b.classes[r].segment_lists;
        const auto same_bodies = [](const program::SegmentList& x, const program::SegmentList& y) {
            return std::equal(x.begin(), x.end(), y.begin(), y.end(),
                              [](const Segment& s, const Segment& t) { return s.body == t.body; });
        };
        if (!std::equal(lists.begin(), lists.end(), others.begin(), others.end(), same_bodies)) return false;
    }
    return true;
}

/// Calls visit(number of a, number of b) for each number that may depend on the micro-batch size.
template <typename Visit>
void for_each_number(Program& a, Program& b, const Visit& visit) {
    for (const program::BodyId id : a.bodies.indices()) {
        Body &of_a = a.bodies[id], &of_b = b.bodies[id];
        for (const models::SlotIndex s : of_a.slots.indices()) {
            visit(of_a.slots[s].bytes, of_b.slots[s].bytes);
        }
        for (const program::OperatorIndex o : of_a.operators.indices()) {
            for (const auto count : kCounts) visit(of_a.operators[o].*count, of_b.operators[o].*count);
            for (const auto amount : kAmounts) visit(of_a.operators[o].*amount, of_b.operators[o].*amount);
        }
        for (const program::InstructionIndex i : of_a.instructions.indices()) {
            visit(of_a.instructions[i].communication.elements, of_b.instructions[i].communication.elements);
        }
    }
    for (const program::ClassIndex r : a.classes.indices()) {
        program::RankClass &of_a = a.classes[r], &of_b = b.classes[r];
        for (const program::ChunkIndex c : of_a.chunks.indices()) {
            visit(of_a.chunks[c].frame_bytes, of_b.chunks[c].frame_bytes);
        }
        for (const program::SegmentListId list : of_a.segment_lists.indices()) {
            for (const program::SegmentIndex s : of_a.segment_lists[list].indices()) {
                for (const auto offset : kOffsets)
                    visit(of_a.segment_lists[list][s].*offset, of_b.segment_lists[list][s].*offset);
            }
        }
    }
}

}  // namespace

ScaledProgram::ScaledProgram(Program one, std::int64_t size_of_one, Program other, std::int64_t size_of_other)
    : program_(std::move(one)), size_of_one_(size_of_one), is_scalable_(are_alike(program_, other)) {
    ORRERY_CHECK(size_of_one != size_of_other, "two lowerings with one micro-batch size");
    if (!is_scalable_) return;
    const auto difference = static_cast<double>(size_of_other - size_of_one);
    const auto note = [&](auto& number, auto other_number, auto& varying) {
        if (number == other_number) return;
        const auto at_one = static_cast<double>(number);
        varying.push_back({&number, at_one, (static_cast<double>(other_number) - at_one) / difference});
    };
    struct Visit {
        const decltype(note)& note_number;
        ScaledProgram& scaled;
        void operator()(std::int64_t& a, std::int64_t& b) const { note_number(a, b, scaled.counts_); }
        void operator()(double& a, double& b) const { note_number(a, b, scaled.amounts_); }
    };
    for_each_number(program_, other, Visit{note, *this});
    // A search keeps many of these Programs.
    for (Body& body : program_.bodies) {
        for (Slot& slot : body.slots) slot.decl = {};
        for (Instruction& instruction : body.instructions) instruction.name = {};
    }
}

const Program& ScaledProgram::at(std::int64_t size) {
    ORRERY_CHECK(is_scalable_, "programs that differ in more than sizes");
    const auto more = static_cast<double>(size - size_of_one_);
    for (const auto& [number, at_one, slope] : counts_) *number = std::llround(at_one + slope * more);
    for (const auto& [number, at_one, slope] : amounts_) *number = at_one + slope * more;
    return program_;
}

}  // namespace orrery::sim
