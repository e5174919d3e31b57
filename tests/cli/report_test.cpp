// `orrery report`.
#include <gtest/gtest.h>

#include "core/file.h"
#include "tests/cli/checks.h"

namespace orrery::test {
namespace {

using nlohmann::json;

/// With the curve of gpt2 on 4 to 16 devices.
class Report : public testing::Test {
  protected:
    void SetUp() override {
        expect_done(here.run({"scale", "--model", "gpt2", "--seq", "512", "--implementation", "orrery", "--cluster",
                              "dgx-h100", "--gpus", "4..16", "--global-batch", "64", "--output", "curve.json"}));
    }
    Workplace here;
};

/// What the page's scripts read.
json charts_of(const std::string& html) {
    const std::string begin = "<script type=\"application/json\" id=\"charts\">";
    const std::size_t from = html.find(begin) + begin.size();
    return json::parse(html.substr(from, html.find("</script>", from) - from));
}

TEST_F(Report, HtmlMarkdownAndCsvHaveTheSameNumbers) {
    const CommandResult result = here.run(
        {"report", "curve.json", "--output", "r.html", "--markdown", "r.md", "--csv", "r.csv", "--title", "A <title>"});
    expect_done(result);
    EXPECT_EQ(result.out, "r.html: 2 sections, 7 charts\n");
    const json point = json::parse(here.read("curve.json")).at("points")[2];
    const std::string html = here.read("r.html"), markdown = here.read("r.md"), csv = here.read("r.csv");
    EXPECT_EQ(charts_of(html)[1]["series"][0]["points"][2]["y"], point.at("tokens_per_s"));
    EXPECT_NE(csv.find("Throughput,3,dgx-h100,tokens/s," + point.at("tokens_per_s").dump() + "\n"), std::string::npos)
        << csv;
    EXPECT_NE(markdown.find("# A &lt;title>\n"), std::string::npos);
    EXPECT_NE(html.find("<title>A &lt;title&gt;</title>"), std::string::npos);
    for (const std::string& text : {html, markdown, csv}) {
        EXPECT_NE(text.find("curve.json"), std::string::npos);
        EXPECT_NE(text.find("2026-09"), std::string::npos) << "the month of the price";
    }
}

TEST_F(Report, PagesOfEqualResultsAreEqual) {
    for (const char* page : {"a.html", "b.html"}) expect_done(here.run({"report", "curve.json", "--output", page}));
    EXPECT_EQ(here.read("a.html"), here.read("b.html"));
}

TEST_F(Report, ShowsPlansThatRan) {
    here.write("tp2.plan.json", local_plan(1, 2));
    const CommandResult run = here.run({"validate", "tp2.plan.json", "--steps", "2", "--warm-up", "1", "--json"});
    expect_done(run);
    here.write("validated.json", run.out);
    expect_done(here.run({"report", "validated.json", "--output", "r.html"}));
    const json row = json::parse(run.out).at("comparisons")[0].at("rows")[0];
    const json point = charts_of(here.read("r.html"))[0]["series"][0]["points"][0];
    EXPECT_EQ(point["x"], row.at("measured"));
    EXPECT_EQ(point["y"], row.at("predicted"));
}

TEST_F(Report, RefusesOtherFiles) {
    here.write("plan.json", small_plan());
    expect_refused(here.run({"report", "curve.json", "plan.json", "--output", "r.html"}), 2,
                   {"plan.json: /schema: got \"orrery.plan/1\"", "orrery.scaling/1", "orrery.whatif/1",
                    "orrery.capacity/1", "orrery.diff/1", "orrery.run_record/1", "orrery.explanation/1",
                    "orrery.comparison/1", "orrery.row_predictions/1"});
    here.write("broken.json", here.read("curve.json").substr(0, 500));
    expect_refused(here.run({"report", "broken.json", "--output", "r.html"}), 2, {"broken.json"});
    json wrong = json::parse(here.read("curve.json"));
    wrong["points"][0]["step_time_s"] = -1;
    here.write("wrong.json", wrong);
    expect_refused(here.run({"report", "wrong.json", "--output", "r.html"}), 2,
                   {"wrong.json: /points/0/step_time_s: got -1"});
    expect_refused(here.run({"report", "none.json", "--output", "r.html"}), 2, {"none.json"});
    EXPECT_FALSE(here.has("r.html"));
}

TEST_F(Report, RefusesToWriteOverItsInput) {
    const std::string before = here.read("curve.json");
    expect_refused(here.run({"report", "curve.json", "--output", "curve.json"}), 2, {"--output", "curve.json"});
    expect_refused(here.run({"report", "curve.json", "--output", "r.html", "--csv", "./curve.json"}), 2,
                   {"--csv", "curve.json"});
    expect_refused(here.run({"report", "curve.json", "--output", "r.html", "--markdown", "r.html"}), 2,
                   {"--markdown", "r.html"});
    expect_refused(here.run({"report", "curve.json", "--output", "none/r.html"}), 2, {"none/r.html"});
    EXPECT_EQ(here.read("curve.json"), before);
    EXPECT_FALSE(here.has("r.html"));
}

TEST_F(Report, AFileNameOfAnyBytesIsShown) {
    const std::string name = "a \xff<b>&.json";
    here.write(name, here.read("curve.json"));
    expect_done(here.run({"report", name, "--output", "r.html", "--markdown", "r.md", "--csv", "r.csv"}));
    EXPECT_EQ(here.read("r.html").find("<b>"), std::string::npos);
}

}  // namespace
}  // namespace orrery::test
