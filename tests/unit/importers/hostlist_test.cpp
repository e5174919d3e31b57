#include "topologies/importers/hostlist.h"

#include "tests/unit/importers/importers.h"

namespace orrery::topologies::test {
namespace {

using Names = std::vector<std::string>;

Names expand(const std::string& list, std::int64_t most = 1000) {
    return expand_hostlist(list, "f: line 1: Nodes", most);
}

TEST(Hostlist, NamesRangesAndLists) {
    EXPECT_EQ(expand("tux0"), Names{"tux0"});
    EXPECT_EQ(expand("a,b1,c"), (Names{"a", "b1", "c"}));
    EXPECT_EQ(expand("tux[0-3,12,18-20]"), (Names{"tux0", "tux1", "tux2", "tux3", "tux12", "tux18", "tux19", "tux20"}));
    EXPECT_EQ(expand("[7-8]"), (Names{"7", "8"}));
    EXPECT_EQ(expand("switch.2.[9-10]"), (Names{"switch.2.9", "switch.2.10"}));
}

TEST(Hostlist, LeadingZerosSetTheWidth) {
    EXPECT_EQ(expand("n[008-011]"), (Names{"n008", "n009", "n010", "n011"}));
    EXPECT_EQ(expand("n[8-11]"), (Names{"n8", "n9", "n10", "n11"}));
    EXPECT_EQ(expand("n[01,1]"), (Names{"n01", "n1"}));
    EXPECT_EQ(expand("n[098-101]"), (Names{"n098", "n099", "n100", "n101"}));
}

TEST(Hostlist, BracketsFormAProductWithTheLastVaryingFastest) {
    EXPECT_EQ(expand("rack[0-1]n[1-2]"), (Names{"rack0n1", "rack0n2", "rack1n1", "rack1n2"}));
    EXPECT_EQ(expand("r[0-1]-x[3]-ib,gw"), (Names{"r0-x3-ib", "r1-x3-ib", "gw"}));
}

TEST(Hostlist, RefusesMalformedLists) {
    for (const char* list :
         {"",      ",",      "a,",   ",a",     "a[",       "a]",  "a[1",     "a[1-]", "a[-1]",         "a[]",
          "a[1,]", "a[[1]]", "a[x]", "a[2-1]", "a[1-2-3]", "a b", "a[1 -2]", "a=b",   "a[1234567890]", "a\x01"}) {
        SCOPED_TRACE(list);
        const std::string message = refusal_of([&] { (void)expand(list); });
        EXPECT_EQ(message.rfind("f: line 1: Nodes: got '", 0), 0U) << message;
        EXPECT_NE(message.find("; allowed: "), std::string::npos) << message;
    }
}

TEST(Hostlist, RefusesTooManyNamesBeforeExpansion) {
    EXPECT_EQ(expand("n[1-1000]").size(), 1000U);
    EXPECT_NE(refusal_of([] { (void)expand("n[0-1000]"); }).find("at most 1000 names"), std::string::npos);
    EXPECT_NE(refusal_of([] { (void)expand("n[0-999999999]"); }).find("at most 1000 names"), std::string::npos);
    EXPECT_NE(refusal_of([] { (void)expand("n[1-600],m[1-600]"); }).find("at most 1000 names"), std::string::npos);
    std::string many = "n";
    for (int i = 0; i < 8; ++i) many += "[0-999999999]";
    EXPECT_NE(refusal_of([&] { (void)expand(many); }).find("at most 1000 names"), std::string::npos);
    EXPECT_NE(refusal_of([&] { (void)expand(many + "[1]", 1); }).find("allowed"), std::string::npos);
}

}  // namespace
}  // namespace orrery::topologies::test
