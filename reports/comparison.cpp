#include "reports/comparison.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>

#include "core/enum_names.h"
#include "core/error.h"
#include "core/units.h"
#include "reports/breakdown.h"
#include "reports/class_means.h"
#include "reports/span_place.h"
#include "reports/summary.h"

namespace orrery::reports {
namespace {

using program::Program;
using program::RunRecord;
using program::Stream;

/// The pipeline streams are compared as one, "pp"; they come last in the enumeration.
constexpr std::size_t kStreamKindCount = static_cast<std::size_t>(Stream::pp_recv_forward) + 1;
constexpr auto kStreamKinds = enum_values<Stream, kStreamKindCount>();
Stream kind_of(Stream stream) {
    return std::min(stream, kStreamKinds.back());
}
std::string kind_name(Stream kind) {
    return kind == kStreamKinds.back() ? "pp" : std::string(program::name_of(kind));
}

std::optional<double> relative_error(double predicted, double measured) {
    if (measured != 0) return predicted / measured - 1;
    return predicted == 0 ? std::optional<double>(0.0) : std::nullopt;
}

template <typename T>
EnumArray<Stream, T, kStreamKindCount> by_kind(const program::PerStream<T>& by_stream) {
    EnumArray<Stream, T, kStreamKindCount> sums{};
    for (const Stream stream : program::kStreams) sums[kind_of(stream)] += by_stream[stream];
    return sums;
}

struct Scope {
    std::string name;
    ClassMeans predicted;
    ClassMeans measured;
};

/// All ranks, then each stage if there are several.
std::vector<Scope> scopes_of(const Program& program, const RunRecord& predicted, const RunRecord& measured) {
    std::vector<Scope> scopes = {{kAllRanks, overall_means(predicted), overall_means(measured)}};
    if (program.classes.size() < 2) return scopes;
    const std::vector<ClassMeans> measured_classes = class_means(measured);
    for (const ClassMeans& means : class_means(predicted)) {
        const auto partner = std::find_if(measured_classes.begin(), measured_classes.end(),
                                          [&](const ClassMeans& m) { return m.rank_class == means.rank_class; });
        if (partner == measured_classes.end()) continue;
        scopes.push_back({program.classes.at(means.rank_class).name, means, *partner});
    }
    return scopes;
}

void add_row(std::vector<ComparisonRow>& rows, Quantity quantity, const std::string& scope, const std::string& stream,
             double predicted, double measured) {
    rows.push_back({quantity, scope, stream, predicted, measured, relative_error(predicted, measured)});
}

std::vector<ComparisonRow> rows_of(const Program& program, const RunRecord& predicted, const RunRecord& measured) {
    std::vector<ComparisonRow> rows;
    add_row(rows, Quantity::step_time_s, kAllRanks, "", predicted.step_time_s, measured.step_time_s);
    const std::vector<Scope> scopes = scopes_of(program, predicted, measured);
    for (const Scope& scope : scopes) {
        const auto busy_predicted = by_kind(scope.predicted.busy_s);
        const auto busy_measured = by_kind(scope.measured.busy_s);
        for (const Stream kind : kStreamKinds) {
            if (busy_predicted[kind] == 0 && busy_measured[kind] == 0) continue;
            add_row(rows, Quantity::busy_s, scope.name, kind_name(kind), busy_predicted[kind], busy_measured[kind]);
        }
    }
    for (const Scope& scope : scopes) {
        add_row(rows, Quantity::peak_memory_bytes, scope.name, "",
                static_cast<double>(scope.predicted.memory_peak_bytes),
                static_cast<double>(scope.measured.memory_peak_bytes));
    }
    const auto sent_predicted = by_kind(scopes.front().predicted.bytes_sent);
    const auto sent_measured = by_kind(scopes.front().measured.bytes_sent);
    for (const Stream kind : kStreamKinds) {
        if (sent_predicted[kind] == 0 && sent_measured[kind] == 0) continue;
        add_row(rows, Quantity::bytes_sent, kAllRanks, kind_name(kind), static_cast<double>(sent_predicted[kind]),
                static_cast<double>(sent_measured[kind]));
    }
    return rows;
}

/// Times of one key on one class in one record: seconds per step, mean over the ranks of the class that have spans.
struct KeyTime {
    double busy_s = 0;
    double wait_s = 0;
    program::Phase phase{};
    Stream stream{};
};
using KeyTimes = std::map<std::pair<program::ClassIndex, std::string>, KeyTime>;

/// Times from ready to begin and from begin to end; medians if several steps were recorded.
std::pair<std::int64_t, std::int64_t> wait_and_duration(const program::RankRecord& rank, std::size_t i) {
    if (!rank.spreads.empty()) return {rank.spreads[i].median_wait_ps, rank.spreads[i].median_ps};
    const program::Span& span = rank.spans[i];
    return {span.begin_ps - span.ready_ps, span.end_ps - span.begin_ps};
}

KeyTimes key_times(const Program& program, const RunRecord& record) {
    std::map<program::ClassIndex, double> weights;
    for (const auto& rank : record.ranks) {
        if (!rank.spans.empty()) weights[rank.rank_class] += static_cast<double>(rank.multiplicity);
    }
    KeyTimes times;
    for (const auto& rank : record.ranks) {
        if (rank.spans.empty()) continue;
        const double share = static_cast<double>(rank.multiplicity) / weights.at(rank.rank_class);
        for (std::size_t i = 0; i < rank.spans.size(); ++i) {
            const program::Span& span = rank.spans[i];
            const SpanPlace place = place_of(program, rank.rank_class, span);
            KeyTime& time = times[{rank.rank_class, program::key_of(program, rank.rank_class, span)}];
            time.phase = place.phase;
            time.stream = place.instruction.stream;
            const auto [wait, taken] = wait_and_duration(rank, i);
            time.busy_s += share * to_seconds(Picoseconds(wait + taken));
            time.wait_s += share * to_seconds(Picoseconds(wait));
        }
    }
    return times;
}

/// Fraction of all ranks that belong to each class.
std::map<program::ClassIndex, double> class_shares(const RunRecord& record) {
    std::map<program::ClassIndex, double> shares;
    const auto all = static_cast<double>(overall_means(record).ranks);
    for (const ClassMeans& means : class_means(record)) {
        shares[means.rank_class] = static_cast<double>(means.ranks) / all;
    }
    return shares;
}

void join_spans(const Program& program, const RunRecord& predicted, const RunRecord& measured, Comparison& result) {
    const KeyTimes left = key_times(program, predicted);
    const KeyTimes right = key_times(program, measured);
    if (left.empty() || right.empty()) return;
    const std::map<program::ClassIndex, double> shares = class_shares(predicted);
    std::map<std::pair<program::Phase, Stream>, PhaseRow> phases;
    for (const auto& [place, time] : left) {
        const auto partner = right.find(place);
        if (partner == right.end()) {
            ++result.only_predicted;
            continue;
        }
        ++result.joined;
        const Stream kind = kind_of(time.stream);
        PhaseRow& row = phases[{time.phase, kind}];
        row.phase = std::string(program::name_of(time.phase));
        row.stream = kind_name(kind);
        ++row.instructions;
        row.predicted_s += shares.at(place.first) * time.busy_s;
        row.measured_s += shares.at(place.first) * partner->second.busy_s;
        result.worst.push_back({program.classes.at(place.first).name, place.second,
                                std::string(program::name_of(time.stream)), time.busy_s, partner->second.busy_s,
                                time.wait_s, partner->second.wait_s});
    }
    result.only_measured = static_cast<std::int64_t>(right.size()) - result.joined;
    for (auto& [place, row] : phases) {
        row.error = relative_error(row.predicted_s, row.measured_s);
        result.phases.push_back(row);
    }
    // Stable: rows with equal errors stay in the order of stage and key.
    std::stable_sort(result.worst.begin(), result.worst.end(), [](const InstructionRow& a, const InstructionRow& b) {
        return std::abs(a.predicted_s - a.measured_s) > std::abs(b.predicted_s - b.measured_s);
    });
    if (result.worst.size() > kWorstInstructions) result.worst.resize(kWorstInstructions);
}

std::vector<PartRow> part_rows(const Program& program, const RunRecord& predicted, const RunRecord& measured,
                               const OperatorWeight& weight) {
    const PartTable table(program, weight);
    const Breakdown left = breakdown_of(program, predicted, table).mean;
    const Breakdown right = breakdown_of(program, measured, table).mean;
    const auto seconds = [](const PartTimes& times, TimePart part) { return to_seconds(Picoseconds(times[part])); };
    std::vector<PartRow> rows;
    for (const TimePart part : kTimeParts) {
        PartRow row{.part = std::string(name_of(part)),
                    .predicted_s = seconds(left.parts, part),
                    .measured_s = seconds(right.parts, part),
                    .predicted_hidden_s = seconds(left.hidden, part),
                    .measured_hidden_s = seconds(right.hidden, part)};
        if (row.predicted_s + row.measured_s + row.predicted_hidden_s + row.measured_hidden_s == 0) continue;
        row.error = relative_error(row.predicted_s, row.measured_s);
        rows.push_back(row);
    }
    return rows;
}

std::vector<CollectiveRow> collective_rows(const RunRecord& predicted, const RunRecord& measured) {
    std::map<std::pair<Stream, program::CommKind>, std::array<std::int64_t, 2>> sums;
    const auto add = [&](const RunRecord& record, std::size_t side) {
        for (const program::RankRecord& rank : record.ranks) {
            for (const program::KindBytes& one : rank.collectives) {
                sums[{one.stream, one.kind}][side] += rank.multiplicity * one.bytes_sent;
            }
        }
    };
    add(predicted, 0);
    add(measured, 1);
    std::vector<CollectiveRow> rows;
    for (const auto& [place, bytes] : sums) {
        rows.push_back({std::string(program::name_of(place.first)), std::string(program::name_of(place.second)),
                        bytes[0], bytes[1]});
    }
    return rows;
}

const program::RankRecord& worst_of(const RunRecord& record) {
    return *std::max_element(record.ranks.begin(), record.ranks.end(),
                             [](const auto& a, const auto& b) { return a.memory_peak_bytes < b.memory_peak_bytes; });
}

std::vector<MemoryRow> memory_rows(const RunRecord& predicted, const RunRecord& measured) {
    std::vector<MemoryRow> rows;
    for (const program::MemoryPart& part : worst_of(predicted).memory) rows.push_back({part.part, part.bytes, 0});
    for (const program::MemoryPart& part : worst_of(measured).memory) {
        const auto same =
            std::find_if(rows.begin(), rows.end(), [&](const MemoryRow& row) { return row.part == part.part; });
        if (same == rows.end()) {
            rows.push_back({part.part, 0, part.bytes});
        } else {
            same->measured_bytes = part.bytes;
        }
    }
    return rows;
}

}  // namespace

std::string name_of(Quantity quantity) {
    static constexpr auto kNames =
        name_table<Quantity::bytes_sent>({"step_time_s", "busy_s", "peak_memory_bytes", "bytes_sent"});
    return std::string(kNames[quantity]);
}

Comparison compare(const Program& program, const RunRecord& predicted, const RunRecord& measured,
                   const OperatorWeight& weight) {
    if (predicted.plan_name != measured.plan_name) {
        throw InputError("the prediction is of plan '" + predicted.plan_name + "', but the measurement is of plan '" +
                         measured.plan_name + "'; allowed: records of the same plan");
    }
    if (predicted.ranks.empty() || measured.ranks.empty()) {
        throw InputError("plan '" + predicted.plan_name + "': a record without ranks cannot be compared");
    }
    Comparison result;
    result.plan_name = predicted.plan_name;
    result.strategy = strategy_of(*program.plan);
    result.rows = rows_of(program, predicted, measured);
    join_spans(program, predicted, measured, result);
    if (weight && result.joined > 0) result.parts = part_rows(program, predicted, measured, weight);
    result.collectives = collective_rows(predicted, measured);
    result.memory = memory_rows(predicted, measured);
    for (const RunRecord* record : {&predicted, &measured}) {
        for (const std::string& note : record->notes) {
            result.notes.push_back(name_of(record->maker) + ": " + note);
        }
    }
    return result;
}

}  // namespace orrery::reports
