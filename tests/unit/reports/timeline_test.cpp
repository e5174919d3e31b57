#include "reports/timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "tests/unit/reports/sample.h"

namespace orrery::reports {
namespace {

constexpr double kLeft = 190;
constexpr double kRight = 980;

/// The first error in the nesting of tags, quotes and entities; empty if there is none.
std::string xml_fault(const std::string& text) {
    std::vector<std::string> open;
    static const std::regex tag(
        R"re(^<(/?)([a-zA-Z][a-zA-Z0-9]*)((?:\s+[a-zA-Z][-a-zA-Z0-9:]*="[^"<>]*")*)\s*(/?)>)re");
    static const std::regex entity("^&(amp|lt|gt|quot);");
    for (std::size_t at = 0; at < text.size();) {
        std::smatch match;
        const auto rest = text.begin() + static_cast<std::ptrdiff_t>(at);
        if (text[at] == '&') {
            if (!std::regex_search(rest, text.end(), match, entity)) return "bare & at " + std::to_string(at);
        } else if (text[at] == '<') {
            const auto end = std::find(rest, text.end(), '>');
            if (end == text.end()) return "a tag without end";
            const std::string one(rest, end + 1);
            if (one.size() > 2000) {  // a long path; std::regex recurses over each character
                if (one.substr(one.size() - 2) != "/>") return "a long tag that is not closed";
                at += one.size();
                continue;
            }
            if (!std::regex_search(one, match, tag)) return "no tag: " + one;
            if (match[1].length() != 0) {
                if (open.empty() || open.back() != match[2]) return "not open: " + one;
                open.pop_back();
            } else if (match[4].length() == 0) {
                open.push_back(match[2]);
            }
            at += one.size();
            if (open.empty() && at != text.size() && text.substr(at) != "\n") return "text after the root";
            continue;
        } else if (text[at] == '>') {
            return "bare > at " + std::to_string(at);
        } else if (open.empty() && text[at] != '\n') {
            return "text outside the root";
        }
        ++at;
    }
    return open.empty() ? "" : "left open: " + open.back();
}

struct Box {
    int shade = 0;
    double left = 0, top = 0, width = 0, height = 0;
};

std::vector<Box> boxes_of(const std::string& svg) {
    std::vector<Box> boxes;
    const std::string start = "<path class=\"s";
    for (std::size_t at = svg.find(start); at != std::string::npos; at = svg.find(start, at + 1)) {
        const int shade = std::atoi(svg.c_str() + at + start.size());
        const std::size_t data = svg.find("d=\"", at) + 3;
        const std::string path = svg.substr(data, svg.find('"', data) - data);
        static const std::regex one(R"(M([-0-9.]+) ([-0-9.]+)h([-0-9.]+)v([-0-9.]+)h-([-0-9.]+)z)");
        std::size_t read = 0;
        for (auto it = std::sregex_iterator(path.begin(), path.end(), one); it != std::sregex_iterator(); ++it) {
            boxes.push_back(
                {shade, std::stod((*it)[1]), std::stod((*it)[2]), std::stod((*it)[3]), std::stod((*it)[4])});
            EXPECT_EQ((*it)[3], (*it)[5]);
            read += static_cast<std::size_t>(it->length());
        }
        EXPECT_EQ(read, path.size()) << "not only boxes in " << path.substr(0, 200);
    }
    return boxes;
}

std::size_t count_of(const std::string& text, const std::string& word) {
    std::size_t count = 0;
    for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + word.size())) ++count;
    return count;
}

TEST(Timeline, IsWellFormed) {
    EXPECT_EQ(xml_fault(timeline_svg(sample::program(), sample::predicted(), sample::measured())), "");
    EXPECT_EQ(xml_fault(timeline_svg(sample::program(), sample::predicted())), "");
}

TEST(Timeline, TheXmlCheckFindsErrors) {
    EXPECT_EQ(xml_fault("<a x=\"1\"><b/>c &amp; d</a>\n"), "");
    EXPECT_NE(xml_fault("<a><b></a></b>"), "");
    EXPECT_NE(xml_fault("<a>"), "");
    EXPECT_NE(xml_fault("<a>x & y</a>"), "");
    EXPECT_NE(xml_fault("<a>1 < 2</a>"), "");
    EXPECT_NE(xml_fault("<a x=\"<\"/>"), "");
    EXPECT_NE(xml_fault("<a/><b/>"), "");
}

TEST(Timeline, PredictedAboveMeasuredForEachStage) {
    const std::string svg = timeline_svg(sample::program(), sample::predicted(), sample::measured());
    EXPECT_EQ(count_of(svg, ">predicted<"), 2U);
    EXPECT_EQ(count_of(svg, ">measured<"), 2U);
    EXPECT_LT(svg.find(">predicted<"), svg.find(">measured<"));
    EXPECT_NE(svg.find(">stage 0, rank 0<"), std::string::npos);
    EXPECT_NE(svg.find(">stage 1, rank 2<"), std::string::npos);
    EXPECT_EQ(count_of(svg, ">one of 2 alike<"), 2U);
    EXPECT_NE(svg.find("sample: a step, predicted 20.0 us, measured 25.0 us (-20.0%)"), std::string::npos);
    EXPECT_EQ(count_of(svg, ">pp send forward<"), 2U) << "only stage 0 has the lane, in both records";
}

TEST(Timeline, BoxPositionsMatchTheTimes) {
    // The axis ends with the measured step, 25 us. Stage 0: compute [0, 8], all-reduce waiting [8, 10] and running
    // [10, 13], send [13, 14].
    const program::Program program = sample::program();
    program::RunRecord measured = sample::measured();
    measured.ranks.resize(1);
    const std::vector<Box> boxes = boxes_of(timeline_svg(program, measured));
    ASSERT_EQ(boxes.size(), 4U);
    const double px_per_us = (kRight - kLeft) / 25;
    const auto expect_box = [&](const Box& box, int shade, double begin_us, double end_us) {
        EXPECT_EQ(box.shade, shade);
        EXPECT_NEAR(box.left, kLeft + begin_us * px_per_us, 0.5);
        EXPECT_NEAR(box.left + box.width, kLeft + end_us * px_per_us, 0.5);
    };
    expect_box(boxes[0], 0, 0, 8);
    expect_box(boxes[1], 0, 10, 13);
    expect_box(boxes[2], 1, 8, 10);
    expect_box(boxes[3], 2 * static_cast<int>(program::Phase::transfer), 13, 14);
    EXPECT_LT(boxes[0].top + boxes[0].height, boxes[1].top + 1e-9) << "lanes do not overlap";
    EXPECT_EQ(boxes[1].top, boxes[2].top);
    EXPECT_LT(boxes[2].top + boxes[2].height, boxes[3].top + 1e-9);
}

TEST(Timeline, BoxesStayInsideTheAxis) {
    program::RunRecord record = sample::measured();
    record.ranks[0].spans[1].ready_ps = -5'000'000;  // posted before the step began
    record.ranks[0].spans[1].begin_ps = -1'000'000;
    record.ranks[0].spans[1].end_ps = 40'000'000;  // later than the median step
    const std::vector<Box> boxes = boxes_of(timeline_svg(sample::program(), sample::predicted(), record));
    ASSERT_FALSE(boxes.empty());
    double last = 0;
    for (const Box& box : boxes) {
        EXPECT_GE(box.left, kLeft);
        EXPECT_GT(box.width, 0);
        EXPECT_LE(box.left + box.width, kRight + 1e-9);
        last = std::max(last, box.left + box.width);
    }
    EXPECT_NEAR(last, kRight, 1e-9) << "the axis ends with the last event";
}

TEST(Timeline, BeginsWithTheFirstComputation) {
    program::RunRecord late = sample::measured();
    for (program::RankRecord& rank : late.ranks) {
        for (program::Span& span : rank.spans) {
            span.ready_ps += 7 * sample::kMicrosecond;
            span.begin_ps += 7 * sample::kMicrosecond;
            span.end_ps += 7 * sample::kMicrosecond;
        }
    }
    EXPECT_EQ(timeline_svg(sample::program(), late), timeline_svg(sample::program(), sample::measured()));
}

TEST(Timeline, NamesAreEscaped) {
    program::Plan plan = sample::plan();
    plan.name = "a<b>&\"c\"\x01";
    program::Program program = sample::program(plan);
    program.classes[0].name = "<stage>";
    const std::string svg = timeline_svg(program, sample::predicted());
    EXPECT_EQ(xml_fault(svg), "");
    EXPECT_NE(svg.find("a&lt;b&gt;&amp;&quot;c&quot; : a step"), std::string::npos);
    EXPECT_NE(svg.find("&lt;stage&gt;, rank 0"), std::string::npos);
}

TEST(Timeline, MicroBatchesAreNumberedWhereThereIsRoom) {
    const std::string svg = timeline_svg(sample::program(), sample::predicted());
    EXPECT_EQ(count_of(svg, "class=\"w\""), 2U);
    program::RunRecord narrow = sample::predicted();
    narrow.step_time_s = 1;
    EXPECT_EQ(count_of(timeline_svg(sample::program(), narrow), "class=\"w\""), 0U);
}

TEST(Timeline, ChunksAreNamedWhereThereAreSeveral) {
    program::Program program = sample::program();
    program.classes[0].chunks.push_back({.virtual_stage = 2});
    program.classes[0].actions[0].chunk = 1;
    const std::string svg = timeline_svg(program, sample::predicted());
    EXPECT_EQ(count_of(svg, ">1.0<"), 1U);
    EXPECT_EQ(count_of(svg, ">0<"), 1U + 1U) << "one on the other stage, one on the axis";
    EXPECT_NE(svg.find("chunk, micro-batch"), std::string::npos);
}

TEST(Timeline, TheLegendShowsThePhasesThatOccur) {
    program::Program program = sample::program();
    const std::string few = timeline_svg(program, sample::predicted());
    EXPECT_NE(few.find(">transfer<"), std::string::npos);
    EXPECT_EQ(few.find(">optimizer<"), std::string::npos);
    program.bodies[0].phase = program::Phase::backward_weight;
    EXPECT_NE(timeline_svg(program, sample::predicted()).find(">backward weight<"), std::string::npos);
}

TEST(Timeline, OverlappingStepsShowBothStepEnds) {
    program::RunRecord record = sample::predicted();  // spans end at 15 us
    const auto lines = [&] { return count_of(timeline_svg(sample::program(), record), "<line class=\"d\""); };
    EXPECT_EQ(lines(), 1U + 2U) << "one in the legend, one per stage";
    record.step_time_s = 12e-6;
    EXPECT_EQ(lines(), 1U + 4U);
    const std::string svg = timeline_svg(sample::program(), record);
    EXPECT_EQ(count_of(svg, "<line class=\"d\" x1=\"980\""), 2U);
    EXPECT_EQ(count_of(svg, "<line class=\"d\" x1=\"348\""), 2U) << "190 + 3/15 of 790";
}

TEST(Timeline, ShortIsolatedSpansRemainVisible) {
    program::RunRecord record = sample::predicted();
    record.ranks.resize(1);
    record.step_time_s = 1;
    record.ranks[0].spans = {{0, 0, 1, 500'000'000'000, 500'000'000'000, 500'000'000'001}};
    const std::vector<Box> boxes = boxes_of(timeline_svg(sample::program(), record));
    ASSERT_EQ(boxes.size(), 1U);
    EXPECT_NEAR(boxes[0].left, (kLeft + kRight) / 2, 1);
    EXPECT_LE(boxes[0].width, 1);
}

TEST(Timeline, BigRecordsStaySmall) {
    // 40 stages with 20,000 alternating spans each.
    program::Program program = sample::program();
    const program::RankClass stage = program.classes[1];
    program.classes.assign(40, stage);
    program::RunRecord record = sample::predicted();
    record.ranks.clear();
    record.step_time_s = 20'000e-6;
    for (std::int32_t i = 0; i < 40; ++i) {
        program::RankRecord rank;
        rank.rank = i;
        rank.rank_class = program::ClassIndex::of(i);
        for (std::int64_t at = 0; at < 10'000; ++at) {
            const std::int64_t begin = at * 2 * sample::kMicrosecond;
            rank.spans.push_back({0, 0, 0, begin, begin, begin + sample::kMicrosecond});
            rank.spans.push_back({0, 0, 1, begin + sample::kMicrosecond,
                                  begin + sample::kMicrosecond + at % 7 * 100'000, begin + 2 * sample::kMicrosecond});
        }
        record.ranks.push_back(rank);
    }
    program.plan = std::make_shared<const program::Plan>([] {
        program::Plan plan = sample::plan();
        plan.parallelism.pp = 40;
        return plan;
    }());
    const std::string svg = timeline_svg(program, record);
    EXPECT_LT(svg.size(), 300'000U);
    EXPECT_EQ(xml_fault(svg), "");
    std::set<double> lanes;
    for (const Box& box : boxes_of(svg)) lanes.insert(box.top);
    EXPECT_EQ(lanes.size(), 80U);
}

TEST(Timeline, NothingToDraw) {
    program::RunRecord record = sample::predicted();
    for (program::RankRecord& rank : record.ranks) rank.spans.clear();
    EXPECT_THROW((void)timeline_svg(sample::program(), record), InputError);
}

TEST(Timeline, SameInputSameBytes) {
    EXPECT_EQ(timeline_svg(sample::program(), sample::predicted(), sample::measured()),
              timeline_svg(sample::program(), sample::predicted(), sample::measured()));
}

}  // namespace
}  // namespace orrery::reports
