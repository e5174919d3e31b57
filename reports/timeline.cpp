#include "reports/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "reports/span_place.h"
#include "reports/summary.h"
#include "reports/table.h"
#include "reports/xml.h"

namespace orrery::reports {
namespace {

using program::Program;
using program::RankRecord;
using program::RunRecord;
using program::Span;
using program::Stream;

// Pixels.
constexpr double kWidth = 1000;
constexpr double kPlotLeft = 190;
constexpr double kPlotWidth = kWidth - kPlotLeft - 20;
constexpr double kFinestColumn = 0.5;
constexpr double kLegend = 60;
constexpr double kLegendRow = 20;
constexpr double kClassTitle = 24;
constexpr double kComputeLane = 18;
constexpr double kOtherLane = 11;
constexpr double kLaneGap = 2;
constexpr double kGroupGap = 8;
constexpr double kAxis = 40;

constexpr std::size_t kTickDistance = 6;  // columns
constexpr std::size_t kTextBudget = 250'000;
constexpr double kPicosecondsPerMillisecond = 1e9;
constexpr double kPicosecondsPerSecond = 1e12;
constexpr double kWorthALine = 0.01;  // of the axis

struct PhaseLook {
    std::string_view label, colour, waiting;
};
constexpr std::size_t kPhaseCount = static_cast<std::size_t>(program::Phase::exchange) + 1;
template <typename T>
using PerPhase = EnumArray<program::Phase, T, kPhaseCount>;
constexpr auto kPhases = enum_values<program::Phase, kPhaseCount>();
constexpr PerPhase<PhaseLook> kLooks = {{{{"forward", "#3b75af", "#c3d5e7"},
                                          {"backward", "#e1812c", "#f6d9c0"},
                                          {"backward input", "#c9653a", "#efd0c2"},
                                          {"backward weight", "#d9a520", "#f4e4ba"},
                                          {"optimizer", "#8e6bb0", "#ddd3e7"},
                                          {"gradient sync", "#3a923a", "#c4dec4"},
                                          {"transfer", "#2aa198", "#bfe3e0"},
                                          {"gather", "#7fa02a", "#d8e3bd"},
                                          {"reduce", "#58a06c", "#cde3d3"},
                                          {"offload", "#8c6d5a", "#ddd2cc"},
                                          {"prepare", "#6c7a89", "#d3d7db"},
                                          {"exchange", "#b5557a", "#e9ccd7"}}}};

/// A coordinate with at most two decimals, without trailing zeros.
std::string number(double value) {
    std::string text = fmt::format("{:.2f}", value);
    while (text.back() == '0') text.pop_back();
    if (text.back() == '.') text.pop_back();
    return text == "-0" ? "0" : text;
}

/// What a piece of a lane shows: a phase, running or waiting.
using Shade = std::size_t;
constexpr std::size_t kShadeCount = 2 * kPhaseCount;
Shade shade_of(program::Phase phase, bool waiting) {
    return 2 * static_cast<std::size_t>(phase) + (waiting ? 1 : 0);
}

/// The share of each shade in equal columns of the axis.
class Columns {
  public:
    Columns(double column_px, double axis_ps)
        : column_px_(column_px),
          column_ps_(axis_ps * column_px / kPlotWidth),
          times_(static_cast<std::size_t>(std::ceil(kPlotWidth / column_px))) {}

    void add(std::int64_t begin_ps, std::int64_t end_ps, Shade shade) {
        const double begin = std::max(static_cast<double>(begin_ps), 0.0) / column_ps_;
        const double end = std::min(static_cast<double>(end_ps) / column_ps_, static_cast<double>(times_.size()));
        for (double at = begin; at < end;) {
            const auto column = static_cast<std::size_t>(at);
            const double next = std::min(static_cast<double>(column + 1), end);
            if (column < times_.size()) times_[column][shade] += next - at;
            at = next;
        }
    }

    /// Draws one path per shade, with runs of equal columns as one box.
    void draw(std::string& svg, double top, double height) const {
        std::array<std::string, kShadeCount> boxes;
        const std::vector<std::optional<Shade>> shades = winners();
        for (std::size_t begin = 0; begin < times_.size();) {
            const std::optional<Shade> shade = shades[begin];
            std::size_t end = begin + 1;
            while (end < times_.size() && shades[end] == shade) ++end;
            if (shade) {
                const double left = kPlotLeft + static_cast<double>(begin) * column_px_;
                const double width =
                    std::min(static_cast<double>(end - begin) * column_px_, kPlotLeft + kPlotWidth - left);
                boxes[*shade] += fmt::format("M{} {}h{}v{}h-{}z", number(left), number(top), number(width),
                                             number(height), number(width));
            }
            begin = end;
        }
        for (Shade shade = 0; shade < kShadeCount; ++shade) {
            if (boxes[shade].empty()) continue;
            svg += fmt::format("<path class=\"s{}\" d=\"{}\"/>\n", shade, boxes[shade]);
        }
    }

  private:
    /// The shade of each column. A mostly idle column stays empty unless nothing is drawn near it, so that short
    /// isolated spans remain visible.
    [[nodiscard]] std::vector<std::optional<Shade>> winners() const {
        std::vector<std::optional<Shade>> shades(times_.size());
        std::vector<std::size_t> faint;
        for (std::size_t column = 0; column < times_.size(); ++column) {
            const std::array<double, kShadeCount>& times = times_[column];
            const auto largest = std::max_element(times.begin(), times.end());
            if (*largest <= 0) continue;
            if (std::accumulate(times.begin(), times.end(), 0.0) < 0.25) {
                faint.push_back(column);
            } else {
                shades[column] = static_cast<Shade>(largest - times.begin());
            }
        }
        for (const std::size_t column : faint) {
            const auto first = shades.begin() + static_cast<std::ptrdiff_t>(column - std::min(column, kTickDistance));
            const auto last =
                shades.begin() + static_cast<std::ptrdiff_t>(std::min(column + kTickDistance, shades.size() - 1));
            if (std::any_of(first, last + 1, [](const std::optional<Shade>& shade) { return shade.has_value(); })) {
                continue;
            }
            const auto& times = times_[column];
            shades[column] = static_cast<Shade>(std::max_element(times.begin(), times.end()) - times.begin());
        }
        return shades;
    }

    double column_px_;
    double column_ps_;
    std::vector<std::array<double, kShadeCount>> times_;  // as a fraction of the column
};

/// The picture's axis in a record's time. It begins with the first computation, not with the first receives: in a deep
/// pipeline they are posted long before, as soon as the previous step has ended.
struct Frame {
    std::int64_t begin_ps = 0;
    double end_ps = 0;     // from begin: when the last rank finished the step
    double before_ps = 0;  // from begin: when the last rank finished the previous step
};

/// One rank of one record.
struct Row {
    const RunRecord* record = nullptr;
    const RankRecord* rank = nullptr;
    Frame frame;
};

/// The rows of one rank class.
struct ClassRows {
    program::ClassIndex rank_class = 0;
    std::vector<Row> rows;
    program::PerStream<bool> used{};
    PerPhase<bool> phases{};
};

Frame frame_of(const Program& program, const RunRecord& record) {
    std::optional<std::int64_t> begin;
    std::int64_t end = 0;
    for (const RankRecord& rank : record.ranks) {
        for (const Span& span : rank.spans) {
            end = std::max(end, span.end_ps);
            if (begin && *begin <= span.ready_ps) continue;
            if (place_of(program, rank.rank_class, span).instruction.stream == Stream::compute) begin = span.ready_ps;
        }
    }
    const double step = record.step_time_s * kPicosecondsPerSecond;
    Frame frame{.begin_ps = std::max<std::int64_t>(0, begin.value_or(0))};
    frame.end_ps = std::max(step, static_cast<double>(end - frame.begin_ps));
    frame.before_ps = frame.end_ps - step;
    return frame;
}

std::vector<ClassRows> classes_of(const Program& program, std::span<const RunRecord* const> records) {
    std::map<program::ClassIndex, ClassRows> by_class;
    for (const RunRecord* record : records) {
        const Frame frame = frame_of(program, *record);
        std::map<program::ClassIndex, const RankRecord*> first;
        for (const RankRecord& rank : record->ranks) {
            if (!rank.spans.empty()) first.try_emplace(rank.rank_class, &rank);
        }
        for (const auto& [rank_class, rank] : first) {
            ClassRows& rows = by_class[rank_class];
            rows.rank_class = rank_class;
            rows.rows.push_back({record, rank, frame});
            for (const Span& span : rank->spans) {
                const SpanPlace place = place_of(program, rank_class, span);
                rows.used[place.instruction.stream] = true;
                rows.phases[place.phase] = true;
            }
        }
    }
    std::vector<ClassRows> result;
    result.reserve(by_class.size());
    for (auto& [rank_class, rows] : by_class) result.push_back(std::move(rows));
    return result;
}

std::int64_t ranks_of(const RunRecord& record, program::ClassIndex rank_class) {
    std::int64_t ranks = 0;
    for (const RankRecord& rank : record.ranks) {
        if (rank.rank_class == rank_class) ranks += rank.multiplicity;
    }
    return ranks;
}

double lane_height(Stream stream) {
    return stream == Stream::compute ? kComputeLane : kOtherLane;
}

std::string lane_label(Stream stream) {
    std::string label(program::name_of(stream));
    std::replace(label.begin(), label.end(), '_', ' ');
    return label;
}

/// Draws at one resolution.
class TimelinePicture {
  public:
    TimelinePicture(const Program& program, std::span<const RunRecord* const> records,
                    const std::vector<ClassRows>& classes, double column_px)
        : program_(program), records_(records), classes_(classes), column_px_(column_px) {
        for (const ClassRows& rows : classes) {
            for (const Row& row : rows.rows) axis_ps_ = std::max(axis_ps_, row.frame.end_ps);
        }
        lay_out_legend();
    }

    [[nodiscard]] std::string text() {
        double y = header_;
        for (const ClassRows& rows : classes_) y = draw_class(rows, y);
        const double bottom = y;
        std::string axis = axis_text(bottom);
        const double height = bottom + kAxis;
        return opening(height) + header() + axis + body_ + "</svg>\n";
    }

  private:
    [[nodiscard]] double x_of(double ps) const { return kPlotLeft + std::clamp(ps / axis_ps_, 0.0, 1.0) * kPlotWidth; }

    [[nodiscard]] static std::string styles() {
        std::string css =
            "text{font-family:system-ui,'DejaVu Sans',Arial,sans-serif;font-size:11px;fill:#222}"
            ".h{font-size:16px;font-weight:600}.n{font-size:12px;font-weight:600}.q{fill:#666}.e{text-anchor:end}"
            ".m{text-anchor:middle}.w{text-anchor:middle;fill:#fff;font-size:10px}.l{fill:#f1f2f4}"
            ".g{stroke:#d5d8dc;stroke-width:1}.d{stroke:#222;stroke-width:1;stroke-dasharray:3 2}"
            ".b{stroke:#fff;stroke-width:1}";
        for (const program::Phase phase : kPhases) {
            css += fmt::format(".s{}{{fill:{}}}.s{}{{fill:{}}}", shade_of(phase, false), kLooks[phase].colour,
                               shade_of(phase, true), kLooks[phase].waiting);
        }
        return css;
    }

    [[nodiscard]] std::string opening(double height) const {
        return fmt::format(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
            "role=\"img\">\n<title>{2}</title>\n<style>{3}</style>\n"
            "<rect width=\"{0}\" height=\"{1}\" fill=\"#fff\"/>\n",
            number(kWidth), number(height), xml_text("Timeline of " + program_.plan->name), styles());
    }

    [[nodiscard]] std::string header() const {
        std::string times;
        for (const RunRecord* record : records_) {
            times += fmt::format("{}{} {}", times.empty() ? "" : ", ", name_of(record->maker),
                                 format_seconds(record->step_time_s));
        }
        if (records_.size() == 2 && records_[1]->step_time_s > 0) {
            times +=
                fmt::format(" ({})", format_signed_percent(records_[0]->step_time_s / records_[1]->step_time_s - 1));
        }
        const program::Plan& plan = *program_.plan;
        std::string svg =
            fmt::format("<text class=\"h\" x=\"16\" y=\"26\">{}</text>\n", xml_text(plan.name + ": a step, " + times));
        svg += fmt::format(
            "<text class=\"q\" x=\"16\" y=\"46\">{}</text>\n",
            xml_text(fmt::format("{}, {}, {} micro-batch{} of {} x {} tokens, on {}", plan.model.name,
                                 strategy_of(plan), plan.micro_batches(), plan.micro_batches() == 1 ? "" : "es",
                                 plan.training.micro_batch_size, plan.training.sequence_length, plan.cluster.name)));
        return svg + legend_;
    }

    /// Lays out the legend in rows: the phases that occur, then the other symbols.
    void lay_out_legend() {
        double x = 16, y = kLegend;
        const auto sign = [&](const std::string& shape, double left, const char* style, std::string_view label) {
            const double width = left + 19 + 6.5 * static_cast<double>(label.size());
            if (x + width > kWidth) {
                x = 16;
                y += kLegendRow;
            }
            legend_ += fmt::format(fmt::runtime(shape), fmt::arg("x", number(x)), fmt::arg("top", number(y - 2)),
                                   fmt::arg("y", number(y)), fmt::arg("bottom", number(y + 14)));
            legend_ +=
                fmt::format("<text{} x=\"{}\" y=\"{}\">{}</text>\n", style, number(x + left), number(y + 10), label);
            x += width;
        };
        const auto box = [](std::size_t shade) {
            return fmt::format("<rect class=\"s{}\" x=\"{{x}}\" y=\"{{y}}\" width=\"12\" height=\"12\"/>", shade);
        };
        PerPhase<bool> phases{};
        for (const ClassRows& rows : classes_) {
            for (const program::Phase phase : kPhases) phases[phase] |= rows.phases[phase];
        }
        for (const program::Phase phase : kPhases) {
            if (phases[phase]) sign(box(shade_of(phase, false)), 17, "", kLooks[phase].label);
        }
        sign(box(shade_of(program::Phase::transfer, true)), 17, "", "lighter: waiting for the partner");
        sign("<line class=\"d\" x1=\"{x}\" y1=\"{top}\" x2=\"{x}\" y2=\"{bottom}\"/>", 7, "", "a step ends");
        const bool chunks = std::any_of(program_.classes.begin(), program_.classes.end(),
                                        [](const program::RankClass& ranks) { return ranks.chunks.size() > 1; });
        sign("", 0, " class=\"q\"", chunks ? "0.1, …: chunk, micro-batch" : "0, 1, …: micro-batch");
        header_ = y + 32;
    }

    double draw_class(const ClassRows& rows, double y) {
        const program::RankClass& rank_class = program_.classes.at(rows.rank_class);
        std::string title = fmt::format("{}, rank {}", rank_class.name, rows.rows.front().rank->rank);
        const std::int64_t ranks = ranks_of(*rows.rows.front().record, rows.rank_class);
        body_ += fmt::format(
            "<text class=\"n\" x=\"16\" y=\"{}\">{}<tspan class=\"q\" dx=\"6\" font-weight=\"400\">{}</tspan>"
            "</text>\n",
            number(y + 15), xml_text(title), ranks > 1 ? fmt::format("one of {} alike", ranks) : std::string());
        y += kClassTitle;
        for (const Row& row : rows.rows) y = draw_row(rows, row, y) + kGroupGap;
        return y;
    }

    double draw_row(const ClassRows& rows, const Row& row, double y) {
        const double top = y;
        body_ +=
            fmt::format("<text class=\"q\" x=\"16\" y=\"{}\">{}</text>\n", number(y + 13), name_of(row.record->maker));
        for (const Stream stream : program::kStreams) {
            if (!rows.used[stream]) continue;
            const double height = lane_height(stream);
            body_ += fmt::format("<text class=\"e q\" x=\"{}\" y=\"{}\">{}</text>", number(kPlotLeft - 8),
                                 number(y + height / 2 + 4), xml_text(lane_label(stream)));
            body_ += fmt::format("<rect class=\"l\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>\n",
                                 number(kPlotLeft), number(y), number(kPlotWidth), number(height));
            draw_lane(row, stream, y);
            y += height + kLaneGap;
        }
        y -= kLaneGap;
        draw_step_end(row.frame.end_ps, top, y);
        // Stages end one after another, and the first may begin before the last has ended the previous step.
        if (row.frame.before_ps > axis_ps_ * kWorthALine) draw_step_end(row.frame.before_ps, top, y);
        return y;
    }

    void draw_step_end(double ps, double top, double bottom) {
        body_ += fmt::format("<line class=\"d\" x1=\"{0}\" y1=\"{1}\" x2=\"{0}\" y2=\"{2}\"/>\n", number(x_of(ps)),
                             number(top - 2), number(bottom + 2));
    }

    void draw_lane(const Row& row, Stream stream, double y) {
        Columns columns(column_px_, axis_ps_);
        std::map<program::ActionIndex, std::pair<std::int64_t, std::int64_t>>
            actions;  // first ready and last end of each
        for (const Span& span : row.rank->spans) {
            const SpanPlace place = place_of(program_, row.rank->rank_class, span);
            if (place.instruction.stream != stream) continue;
            const std::int64_t ready = span.ready_ps - row.frame.begin_ps;
            const std::int64_t begin = span.begin_ps - row.frame.begin_ps;
            const std::int64_t end = span.end_ps - row.frame.begin_ps;
            columns.add(ready, begin, shade_of(place.phase, true));
            columns.add(begin, end, shade_of(place.phase, false));
            if (place.action.micro_batch < 0) continue;
            auto& extent = actions.try_emplace(span.action, ready, end).first->second;
            extent.first = std::min(extent.first, ready);
            extent.second = std::max(extent.second, end);
        }
        columns.draw(body_, y, lane_height(stream));
        if (stream == Stream::compute) label_actions(*row.rank, actions, y);
    }

    /// Draws micro-batch numbers and the lines between them, where there is room.
    void label_actions(const RankRecord& rank,
                       const std::map<program::ActionIndex, std::pair<std::int64_t, std::int64_t>>& actions, double y) {
        const program::RankClass& rank_class = program_.classes.at(rank.rank_class);
        for (const auto& [action, extent] : actions) {
            const double left = x_of(static_cast<double>(extent.first));
            const double right = x_of(static_cast<double>(extent.second));
            const program::Action& named = rank_class.actions.at(action);
            std::string label = std::to_string(named.micro_batch);
            if (rank_class.chunks.size() > 1) label = fmt::format("{}.{}", named.chunk.value(), label);
            if (right - left < 8 + 6 * static_cast<double>(label.size())) continue;
            body_ += fmt::format("<line class=\"b\" x1=\"{0}\" y1=\"{1}\" x2=\"{0}\" y2=\"{2}\"/>", number(left),
                                 number(y), number(y + kComputeLane));
            body_ += fmt::format("<text class=\"w\" x=\"{}\" y=\"{}\">{}</text>\n", number((left + right) / 2),
                                 number(y + kComputeLane / 2 + 3.5), label);
        }
    }

    /// Grid lines from the first lane to `bottom`, and the milliseconds under them.
    [[nodiscard]] std::string axis_text(double bottom) const {
        const double axis_ms = axis_ps_ / kPicosecondsPerMillisecond;
        double tick = std::pow(10, std::floor(std::log10(axis_ms / 6)));
        if (axis_ms / tick > 30) {
            tick *= 5;
        } else if (axis_ms / tick > 12) {
            tick *= 2;
        }
        std::string svg;
        for (int i = 0; i * tick <= axis_ms; ++i) {
            const std::string x = number(x_of(i * tick * kPicosecondsPerMillisecond));
            svg += fmt::format("<line class=\"g\" x1=\"{0}\" y1=\"{1}\" x2=\"{0}\" y2=\"{2}\"/>", x, number(header_),
                               number(bottom));
            svg +=
                fmt::format("<text class=\"m q\" x=\"{}\" y=\"{}\">{:.6g}</text>\n", x, number(bottom + 15), i * tick);
        }
        svg +=
            fmt::format("<text class=\"m q\" x=\"{}\" y=\"{}\">milliseconds from the step's first computation</text>\n",
                        number(kPlotLeft + kPlotWidth / 2), number(bottom + 31));
        return svg;
    }

    const Program& program_;
    std::span<const RunRecord* const> records_;
    const std::vector<ClassRows>& classes_;
    double column_px_;
    double axis_ps_ = 1;
    double header_ = 0;  // height of the title and legend above the first lane
    std::string legend_;
    std::string body_;
};

}  // namespace

std::string timeline_svg(const Program& program, std::span<const RunRecord* const> records) {
    const std::vector<ClassRows> classes = classes_of(program, records);
    if (classes.empty()) {
        throw InputError("plan '" + program.plan->name + "': the record holds no spans, so there is nothing to draw");
    }
    std::string svg;
    double column = kFinestColumn;
    do {
        svg = TimelinePicture(program, records, classes, column).text();
        column *= 2;
    } while (svg.size() > kTextBudget && column <= kPlotWidth);
    return svg;
}

std::string timeline_svg(const Program& program, const RunRecord& record) {
    const std::array<const RunRecord*, 1> records = {&record};
    return timeline_svg(program, records);
}

std::string timeline_svg(const Program& program, const RunRecord& predicted, const RunRecord& measured) {
    const std::array<const RunRecord*, 2> records = {&predicted, &measured};
    return timeline_svg(program, records);
}

}  // namespace orrery::reports
