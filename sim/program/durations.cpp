#include "sim/program/durations.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>

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

using ClassOrders = IndexedVector<ClassIndex, IssueOrder>;

/// Gives each member of a communication the longest duration of all members. They issue the operations of a
/// communicator in the same order, so that the k-th operation of each member is the same one.
void share_longest(const Program& program, const ClassOrders& orders, Durations& durations) {
    std::map<Communicator, std::vector<std::int64_t>> longest;  // of each operation, in issue order
    for (const bool found : {false, true}) {
        for (std::int64_t rank = 0; rank < program.world_size(); ++rank) {
            const IssueOrder& order = orders[program.class_of(rank)];
            std::map<Communicator, std::size_t> passed;
            std::int64_t index = 0;
            for (std::int64_t& own : durations.by_rank[static_cast<std::size_t>(rank)]) {
                const Instruction& instruction = order.instruction(index++);
                if (!instruction.is_communication) continue;
                const Communicator communicator = communicator_of(program, instruction, rank);
                const std::size_t place = passed[communicator]++;
                std::vector<std::int64_t>& operations = longest[communicator];
                if (place == operations.size()) operations.push_back(0);
                (found ? own : operations[place]) = std::max(own, operations[place]);
            }
        }
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
    ClassOrders orders;
    for (const ClassIndex c : program.classes.indices()) orders.emplace_back(program, c);
    Durations durations;
    for (const RankRecord* const one : records) {
        const ClassIndex rank_class = program.class_of(std::ssize(durations.by_rank));
        try {
            durations.by_rank.push_back(durations_in_order(*one, orders[rank_class], factor));
        } catch (const InputError& error) {
            throw InputError(file + ": " + error.what());
        }
    }
    refuse_long_sums(durations, file);
    share_longest(program, orders, durations);
    return durations;
}

Picoseconds launch_time(const topologies::DeviceProfile& device, const models::HostChoices& host) {
    return picoseconds_from_seconds(device.launch_us.value * host.launch_factor * 1e-6);
}

}  // namespace orrery::program
