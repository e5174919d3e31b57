#include "reports/table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/error.h"

namespace orrery::reports {
namespace {

TEST(Table, AlignsAndTrims) {
    Table table({{"name", Align::left}, {"time"}, {"note", Align::left}});
    table.add_row({"a", "1.00 s", ""});
    table.add_rule();
    table.add_row({"longer", "12 s", "x"});
    EXPECT_EQ(table.to_text(),
              "name      time  note\n"
              "------  ------  ----\n"
              "a       1.00 s\n"
              "------  ------  ----\n"
              "longer    12 s  x\n");
    EXPECT_EQ(table.row_count(), 2U);
    EXPECT_EQ(table.to_text(3).substr(0, 7), "   name");
}

TEST(Table, CountsCodePoints) {
    EXPECT_EQ(display_width("µs"), 2U);
    Table table({{"µ", Align::left}, {"n"}});
    table.add_row({"ab", "1"});
    EXPECT_EQ(table.to_text(), "µ   n\n--  -\nab  1\n");
}

TEST(Table, RefusesRaggedRows) {
    Table table({{"a"}, {"b"}});
    EXPECT_THROW(table.add_row({"1"}), BugError);
    EXPECT_THROW(Table({}), BugError);
}

TEST(Format, Seconds) {
    EXPECT_EQ(format_seconds(0), "0 s");
    EXPECT_EQ(format_seconds(1.5), "1.50 s");
    EXPECT_EQ(format_seconds(12345.0), "12345 s");
    EXPECT_EQ(format_seconds(0.0123), "12.3 ms");
    EXPECT_EQ(format_seconds(4.2e-6), "4.20 us");
    EXPECT_EQ(format_seconds(3e-12), "3.00 ps");
    EXPECT_EQ(format_seconds(-0.25), "-250 ms");
    EXPECT_EQ(format_seconds(0.9996), "1.00 s");
    EXPECT_EQ(format_seconds(9.996e-3), "10.0 ms");
    EXPECT_EQ(format_seconds(std::numeric_limits<double>::quiet_NaN()), "n/a");
    EXPECT_EQ(format_picoseconds(2'500'000), "2.50 us");
}

TEST(Format, BytesAndCounts) {
    EXPECT_EQ(format_bytes(17), "17 B");
    EXPECT_EQ(format_bytes(1.5e9), "1.50 GB");
    EXPECT_EQ(format_memory(17), "17 B");
    EXPECT_EQ(format_memory(std::int64_t{5} << 20), "5.00 MiB");
    EXPECT_EQ(format_memory(std::int64_t{80} << 30), "80.0 GiB");
    EXPECT_EQ(format_memory(std::int64_t{1} << 62), "4194304 TiB");
    EXPECT_EQ(format_count(17), "17");
    EXPECT_EQ(format_count(0.5), "0.50");
    EXPECT_EQ(format_count(12'340), "12.3 k");
    EXPECT_EQ(format_count(9.89e14), "989 T");
    EXPECT_EQ(format_integer(1'048'576), "1,048,576");
    EXPECT_EQ(format_integer(-1000), "-1,000");
    EXPECT_EQ(format_integer(999), "999");
}

TEST(Format, Fractions) {
    EXPECT_EQ(format_percent(0.4172), "41.7%");
    EXPECT_EQ(format_signed_percent(0.032), "+3.2%");
    EXPECT_EQ(format_signed_percent(-0.00001), "0.0%");
    EXPECT_EQ(format_signed_percent(0.00001), "0.0%");
    EXPECT_EQ(format_signed_percent(-0.2), "-20.0%");
    EXPECT_EQ(format_fixed(INFINITY, 2), "n/a");
    EXPECT_EQ(format_fixed(2.345, 1), "2.3");
}

}  // namespace
}  // namespace orrery::reports
