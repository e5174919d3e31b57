#include "sim/program/durations.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "core/error.h"
#include "core/units.h"
#include "sim/program/issue_order.h"

namespace orrery::program {
namespace {

/// The part of the record that stands for each rank.
std::vector<const RankRecord*> records_of_ranks(const Program& program, const RunRecord& record,
                                                const std::string& file) {
    std::vector<const RankRecord*> own(static_cast<std::size_t>(program.world_size()), nullptr);
    std::map<std::int32_t, std::vector<const RankRecord*>> of_class;
    for (const RankRecord& rank : record.ranks) {
        own.at(static_cast<std::size_t>(rank.rank)) = &rank;
        of_class[rank.rank_class].push_back(&rank);
    }
    for (std::size_t rank = 0; rank < own.size(); ++rank) {
        if (own[rank] != nullptr) continue;
        const ClassIndex rank_class = program.class_of(static_cast<std::int64_t>(rank));
        const auto& standing = of_class[rank_class];
        if (standing.size() != 1) {
            throw InputError(file, "/ranks",
                             "no rank " + std::to_string(rank) + " and " + std::to_string(standing.size()) +
                                 " ranks of its class, " + program.classes[rank_class].name,
                             "every rank (orrery simulate --full), or one of each class");
        }
        own[rank] = standing.front();
    }
    return own;
}

/// In issue order. Of several steps the median.
std::vector<std::int64_t> taken_in_order(const RankRecord& record, const IssueOrder& order, double factor) {
    const std::vector<Span> spans = spans_in_order(record, order);
    std::vector<std::int64_t> taken;
    taken.reserve(spans.size());
    for (const Span& span : spans) taken.push_back(span.end_ps - span.begin_ps);
    for (std::size_t i = 0; i < record.spreads.size(); ++i) {
        taken[static_cast<std::size_t>(order.index_of(record.spans[i]))] = record.spreads[i].median_ps;
    }
    for (std::int64_t& one : taken) {
        one = std::llround(static_cast<double>(std::max<std::int64_t>(0, one)) * factor);
    }
    return taken;
}

/// A communicator: the axis and the lowest member, or the sender of a pair.
using Communicator = std::pair<GroupAxis, std::int64_t>;

Communicator communicator_of(const Program& program, const Instruction& instruction, std::int64_t rank) {
    const Communication& communication = instruction.communication;
    if (is_pipeline(instruction.stream)) {
        const bool receives = communication.kind == CommKind::recv;
        return {communication.axis, receives ? program.peer_of(instruction.stream, rank) : rank};
    }
    const std::vector<std::int64_t> members = program.group_of(communication.axis, rank);
    return {communication.axis, *std::min_element(members.begin(), members.end())};
}

/// Members issue the operations of a communicator in the same order, so the k-th of one is the k-th of all. Calls
/// visit(longest, own) for each communication of the rank, both of which it may change.
using Longest = std::map<Communicator, std::vector<std::int64_t>>;

template <typename Visit>
void for_each_communication(const Program& program, const IssueOrder& order, std::int64_t rank, Longest& longest,
                            std::vector<std::int64_t>& durations, const Visit& visit) {
    std::map<Communicator, std::size_t> passed;
    for (std::int64_t i = 0; i < order.size(); ++i) {
        const Instruction& instruction = order.instruction(i);
        if (!instruction.is_communication) continue;
        const Communicator communicator = communicator_of(program, instruction, rank);
        const std::size_t place = passed[communicator]++;
        std::vector<std::int64_t>& operations = longest[communicator];
        if (place == operations.size()) operations.push_back(0);
        visit(operations[place], durations[static_cast<std::size_t>(i)]);
    }
}

/// A step takes no longer than all its instructions together, and a simulation some steps, in picoseconds of 64 bits.
void refuse_long_sums(const Durations& durations, const std::string& file) {
    constexpr double kMost_s = 1e6;
    double sum_s = 0;
    for (const std::vector<std::int64_t>& rank : durations.by_rank) {
        for (const std::int64_t one_ps : rank) sum_s += static_cast<double>(one_ps) / kPicosecondsPerSecond;
    }
    if (sum_s <= kMost_s) return;
    throw InputError(file, "/ranks", fmt::format("{:.6g} s of all its instructions together", sum_s),
                     fmt::format("at most {:.6g} s", kMost_s));
}

}  // namespace

Durations durations_of(const Program& program, const RunRecord& record, const std::string& file, double factor) {
    ORRERY_CHECK(factor > 0, "durations are stretched by a positive factor");
    const std::vector<const RankRecord*> records = records_of_ranks(program, record, file);
    std::vector<IssueOrder> orders;
    for (std::size_t c = 0; c < program.classes.size(); ++c) orders.emplace_back(program, static_cast<std::int32_t>(c));
    const auto order_of = [&](std::size_t rank) -> const IssueOrder& {
        return orders[static_cast<std::size_t>(program.class_of(static_cast<std::int64_t>(rank)))];
    };
    Durations durations;
    for (std::size_t rank = 0; rank < records.size(); ++rank) {
        try {
            durations.by_rank.push_back(taken_in_order(*records[rank], order_of(rank), factor));
        } catch (const InputError& error) {
            throw InputError(file + ": " + error.what());
        }
    }
    refuse_long_sums(durations, file);
    Longest longest;
    const auto visit_all = [&](const auto& visit) {
        for (std::size_t rank = 0; rank < records.size(); ++rank) {
            for_each_communication(program, order_of(rank), static_cast<std::int64_t>(rank), longest,
                                   durations.by_rank[rank], visit);
        }
    };
    visit_all([](std::int64_t& most, std::int64_t own) { most = std::max(most, own); });
    visit_all([](std::int64_t most, std::int64_t& own) { own = most; });
    return durations;
}

Picoseconds launch_time(const topologies::DeviceProfile& device, const models::HostChoices& host) {
    return picoseconds_from_seconds(device.launch_us.value * host.launch_factor * 1e-6);
}

}  // namespace orrery::program
