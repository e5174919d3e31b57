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

/// The record of each rank: its own, or that of the single recorded rank of its class.
std::vector<const RankRecord*> records_of_ranks(const Program& program, const RunRecord& record,
                                                const std::string& file) {
    std::vector<const RankRecord*> own(static_cast<std::size_t>(program.world_size()), nullptr);
    std::map<ClassIndex, std::vector<const RankRecord*>> of_class;
    for (const RankRecord& rank : record.ranks) {
        own.at(static_cast<std::size_t>(rank.rank)) = &rank;
        of_class[rank.rank_class].push_back(&rank);
    }
    for (std::size_t rank = 0; rank < own.size(); ++rank) {
        if (own[rank] != nullptr) continue;
        const ClassIndex rank_class = program.class_of(static_cast<std::int64_t>(rank));
        const auto& representatives = of_class[rank_class];
        if (representatives.size() != 1) {
            throw InputError(file, "/ranks",
                             "no rank " + std::to_string(rank) + " and " + std::to_string(representatives.size()) +
                                 " ranks of its class, " + program.classes[rank_class].name,
                             "every rank (orrery simulate --full), or one of each class");
        }
        own[rank] = representatives.front();
    }
    return own;
}

/// The durations in issue order. If the record has spreads over several steps, the medians.
std::vector<std::int64_t> durations_in_order(const RankRecord& record, const IssueOrder& order, double factor) {
    const std::vector<Span> spans = spans_in_order(record, order);
    std::vector<std::int64_t> durations;
    durations.reserve(spans.size());
    for (const Span& span : spans) durations.push_back(span.end_ps - span.begin_ps);
    for (std::size_t i = 0; i < record.spreads.size(); ++i) {
        durations[static_cast<std::size_t>(order.index_of(record.spans[i]))] = record.spreads[i].median_ps;
    }
    for (std::int64_t& one : durations) {
        one = std::llround(static_cast<double>(std::max<std::int64_t>(0, one)) * factor);
    }
    return durations;
}

/// A communicator, identified by its axis and its lowest member or, for a pair, its sender.
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

/// The longest duration of each operation, by communicator and issue order.
using Longest = std::map<Communicator, std::vector<std::int64_t>>;

/// Calls visit(longest, own) for each communication of the rank; visit may change both. All members issue the
/// operations of a communicator in the same order, so that the k-th operation of each member is the same one.
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

/// Limits the sum of all durations, which no step exceeds, so that simulated times fit into 64-bit picoseconds.
void refuse_long_sums(const Durations& durations, const std::string& file) {
    constexpr double kMost_s = 1e6;
    double sum_s = 0;
    for (const std::vector<std::int64_t>& rank : durations.by_rank) {
        for (const std::int64_t one_ps : rank) sum_s += static_cast<double>(one_ps) / kPicosecondsPerSecond;
    }
    if (sum_s <= kMost_s) return;
    throw InputError(file, "/ranks", fmt::format("{:.6g} s for all its instructions together", sum_s),
                     fmt::format("at most {:.6g} s", kMost_s));
}

}  // namespace

Durations durations_of(const Program& program, const RunRecord& record, const std::string& file, double factor) {
    ORRERY_CHECK(factor > 0, "the factor of durations must be positive");
    const std::vector<const RankRecord*> records = records_of_ranks(program, record, file);
    IndexedVector<ClassIndex, IssueOrder> orders;
    for (const ClassIndex c : program.classes.indices()) orders.emplace_back(program, c);
    const auto order_of = [&](std::size_t rank) -> const IssueOrder& {
        return orders[program.class_of(static_cast<std::int64_t>(rank))];
    };
    Durations durations;
    for (std::size_t rank = 0; rank < records.size(); ++rank) {
        try {
            durations.by_rank.push_back(durations_in_order(*records[rank], order_of(rank), factor));
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
