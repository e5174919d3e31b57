// The rules that validate() applies, each one function, and helpers that several rules use. check_indices and
// check_counts run first; the later rules rely on them and follow the Program's indices unchecked.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "sim/program/issue_trace.h"
#include "sim/program/memory_map.h"
#include "sim/program/program.h"
#include "sim/program/schedule.h"

namespace orrery::program::rules {

/// Where a rule is broken; -1: the part does not apply.
struct Site {
    ClassIndex rank_class = -1;
    ActionIndex action = -1;
    SegmentIndex segment = -1;
    InstructionIndex instruction = -1;
};
[[nodiscard]] std::string describe(const Program& program, Site site);

/// A value as messages show it: an enum by its name, an index by its number.
template <typename T>
[[nodiscard]] decltype(auto) printed(const T& value) {
    if constexpr (std::is_enum_v<T>) {
        return name_of(value);
    } else if constexpr (requires { value.value(); }) {
        return value.value();
    } else {
        return (value);
    }
}
/// A text with a {} for each value. The compiler checks that they match.
template <typename... T>
using Form = fmt::format_string<decltype(printed(std::declval<const T&>()))...>;
template <typename... T>
[[nodiscard]] std::string text(Form<T...> form, const T&... values) {
    return fmt::format(form, printed(values)...);
}

/// Throws the BugError for a broken rule.
[[noreturn]] void fail_with(const Program& program, std::string_view rule, Site site, const std::string& what);
template <typename... T>
[[noreturn]] void fail(const Program& program, std::string_view rule, Site site, Form<T...> form, const T&... values) {
    fail_with(program, rule, site, text(form, values...));
}

/// A rule as it is applied to one rank class.
class ClassRule {
  public:
    ClassRule(const Program& program, ClassIndex c, std::string_view rule) : program_(program), c_(c), rule_(rule) {}

  protected:
    template <typename... T>
    [[noreturn]] void refuse(Form<T...> form, const T&... values) const {
        fail(program_, rule_, {.rank_class = c_}, form, values...);
    }
    template <typename... T>
    [[noreturn]] void refuse(ActionIndex action, Form<T...> form, const T&... values) const {
        fail(program_, rule_, {.rank_class = c_, .action = action}, form, values...);
    }

    const Program& program_;
    ClassIndex c_;
    const RankClass& ranks_ = program_.classes[c_];
    const Plan& plan_ = *program_.plan;
    const Parallelism& p_ = plan_.parallelism;

  private:
    std::string_view rule_;
};

[[nodiscard]] inline std::span<const models::Operator> operators_of(const Body& body, const Instruction& instruction) {
    return part(body.operators, instruction.first_operator.value(), instruction.operator_count);
}

/// The slots that the instructions of each body touch, each once.
using TouchedSlots = IndexedVector<BodyId, std::vector<models::SlotIndex>>;
[[nodiscard]] TouchedSlots touched_slots(const Program& program);

using Traces = IndexedVector<ClassIndex, Trace>;
[[nodiscard]] Traces traces_of(const Program& program);
/// The call of that number in the trace, as in Trace::calls_on.
[[nodiscard]] inline const Call& call_of(const Trace& trace, std::int32_t index) {
    return trace.calls[static_cast<std::size_t>(index)];
}
[[nodiscard]] inline Site site_of(const Trace& trace, const Call& call) {
    return {trace.rank_class, call.action, call.segment, call.instruction};
}

/// Whether the plan uses torch DataParallel: its classes are the master and the other replicas, not pipeline ranks.
[[nodiscard]] inline bool is_replicated(const Plan& plan) {
    return plan.parallelism.data_parallel == DataParallel::dp;
}
/// One rank of the class.
[[nodiscard]] inline std::int64_t representative(const Program& program, ClassIndex rank_class) {
    return is_replicated(*program.plan) ? rank_class.value() : program.mesh->rank_at({.pp = rank_class.value()});
}
/// The classes, ascending, of the members of the group that a rank of the class has on the axis.
[[nodiscard]] std::vector<ClassIndex> classes_of_group(const Program& program, GroupAxis axis, ClassIndex rank_class);
/// Whether the ranks of the axis reduce gradients and gather parameters.
[[nodiscard]] constexpr bool moves_buckets(GroupAxis axis) {
    return axis == GroupAxis::dp || axis == GroupAxis::dp_shard || axis == GroupAxis::edp;
}
/// The stream at the other end of a pipeline stream's transfers: the receiving one of a send and vice versa.
[[nodiscard]] Stream opposite(Stream pipeline_stream);

/// The micro-batches [begin, end) that pass a chunk: in dualpipe each copy of the model has one half of them.
struct MicroBatches {
    std::int32_t begin = 0, end = 0;
};
[[nodiscard]] MicroBatches micro_batches_of(const Plan& plan, const Chunk& chunk);

/// A virtual stage before or after another one, if there is one.
struct Neighbour {
    bool is_here = false;  // on the same rank
    bool is_elsewhere = false;
    StageHolder holder;
    [[nodiscard]] bool exists() const { return is_here || is_elsewhere; }
};
/// The virtual stage that is `shift` after the chunk's. Parts of the vocabulary have no neighbours.
[[nodiscard]] Neighbour neighbour_of(const ScheduleShape& shape, const RankClass& ranks, const Chunk& chunk,
                                     std::int64_t shift);

void check_indices(const Program& program);
void check_counts(const Program& program);
void check_transfers(const Program& program, const Traces& traces);
void check_collective_order(const Program& program, const Traces& traces);
void check_progress(const Program& program, const Traces& traces);
/// The rules "ordered accesses" and "fresh values", in one walk.
void check_accesses(const Program& program, const Traces& traces);
void check_buffers(const Program& program);
void check_footprint(const Program& program);
void check_parameters(const Program& program);
void check_bytes(const Program& program);

}  // namespace orrery::program::rules
