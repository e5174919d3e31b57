// Checks the sources against the house rules, and each rule against an example that breaks it.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "tests/house/source_rules.h"

namespace orrery::house {
namespace {

std::string joined(const std::vector<std::string>& lines) {
    std::string text;
    for (const std::string& line : lines) text += "\n  " + line;
    return text;
}

template <typename Check>
std::vector<std::string> over_all_sources(Check check) {
    std::vector<std::string> violations;
    for (const SourceFile& file : read_sources(ORRERY_SOURCE_DIR)) {
        for (std::string& violation : check(file)) violations.push_back(std::move(violation));
    }
    return violations;
}

TEST(House, SourcesAreFound) {
    const std::vector<SourceFile> files = read_sources(ORRERY_SOURCE_DIR);
    bool has_program = false, has_kernel = false;
    for (const SourceFile& file : files) {
        has_program = has_program || file.path == "sim/program/program.h";
        has_kernel = has_kernel || file.path == "kernels/cuda/attention.cu";
        EXPECT_EQ(file.path.rfind("build/", 0), std::string::npos) << file.path;
    }
    EXPECT_TRUE(has_program);
    EXPECT_TRUE(has_kernel);
}

TEST(House, IncludeEdges) {
    const auto violations = over_all_sources(check_include_edges);
    EXPECT_TRUE(violations.empty()) << joined(violations);
}

TEST(House, PublicHeadersHoldNoForeignTypes) {
    const auto violations = check_foreign_types(read_sources(ORRERY_SOURCE_DIR));
    EXPECT_TRUE(violations.empty()) << joined(violations);
}

/// Builds without MPI, such as those for GPUs and for fuzzing, leave out the sources that include it.
TEST(House, BuildsWithoutMpiLeaveOutItsSources) {
    std::ifstream file(ORRERY_SOURCE_DIR "/exec/CMakeLists.txt");
    const std::string build{std::istreambuf_iterator<char>(file), {}};
    const std::size_t list = build.find("set(with_mpi ");
    ASSERT_NE(list, std::string::npos);
    const std::string left_out = build.substr(list, build.find(')', list) - list);
    const std::vector<SourceFile> files = read_sources(ORRERY_SOURCE_DIR);
    std::set<std::string> headers{"<mpi.h>"};  // MPI's, and those that include it
    const auto includes_mpi = [&](const SourceFile& one) {
        return std::any_of(headers.begin(), headers.end(), [&](const std::string& header) {
            return one.text.find("#include " + header) != std::string::npos;
        });
    };
    for (std::size_t known = 0; known != headers.size();) {
        known = headers.size();
        for (const SourceFile& one : files) {
            if (one.is_header() && includes_mpi(one)) headers.insert('"' + one.path + '"');
        }
    }
    EXPECT_GT(headers.size(), 1U);
    for (const SourceFile& one : files) {
        const bool concerns = room_of(one.path) == "exec" && !one.is_header() && includes_mpi(one);
        if (!concerns) continue;
        EXPECT_NE(left_out.find(one.path.substr(std::string("exec/").size())), std::string::npos) << one.path;
    }
}

TEST(House, Tidiness) {
    const auto violations = over_all_sources(check_tidiness);
    EXPECT_TRUE(violations.empty()) << joined(violations);
}

TEST(House, FunctionLengths) {
    const auto violations = over_all_sources(check_function_lengths);
    EXPECT_TRUE(violations.empty()) << joined(violations);
}

TEST(HouseRules, RoomOfPath) {
    EXPECT_EQ(room_of("sim/program/plan.h"), "sim/program");
    EXPECT_EQ(room_of("exec/cpu/rank.cpp"), "exec");
    EXPECT_EQ(room_of("sim/network/collectives.h"), "sim/network");
    EXPECT_EQ(room_of("sim/network/algorithms/group.h"), "sim/network/algorithms");
    EXPECT_EQ(room_of("sim/stray.h"), "");
    EXPECT_EQ(room_of("vector"), "");
}

TEST(HouseRules, ForbiddenEdgesAreReported) {
    const auto count = [](const std::string& path, const std::string& text) {
        return check_include_edges({path, text}).size();
    };
    EXPECT_EQ(count("exec/run.cpp", "#include \"sim/engine/engine.h\"\n"), 1U);
    EXPECT_EQ(count("exec/run.cpp", "#include \"sim/cost/cost.h\"\n"), 1U);
    EXPECT_EQ(count("exec/run.cpp", "#include \"sim/program/program.h\"\n#include \"kernels/cpu/gemm.h\"\n"), 0U);
    EXPECT_EQ(count("reports/table.h", "#include \"sim/planner/planner.h\"\n"), 1U);
    EXPECT_EQ(count("reports/table.h", "#include \"exec/run.h\"\n"), 1U);
    EXPECT_EQ(count("kernels/gemm.h", "#include \"models/operator.h\"\n"), 1U);
    EXPECT_EQ(count("models/layer.cpp", "#include \"topologies/profile.h\"\n"), 1U);
    EXPECT_EQ(count("core/units.h", "#include \"models/operator.h\"\n"), 1U);
    EXPECT_EQ(count("sim/cost/cost.h", "#include \"sim/network/network.h\"\n"), 1U);
    EXPECT_EQ(count("sim/network/network.h", "#include \"sim/cost/cost.h\"\n"), 1U);
    EXPECT_EQ(count("sim/network/algorithms/group.cpp", "#include \"sim/network/collectives.h\"\n"), 1U);
    EXPECT_EQ(count("sim/network/collectives.cpp", "#include \"sim/network/algorithms/group.h\"\n"), 0U);
    EXPECT_EQ(count("sim/engine/engine.cpp", "#include \"sim/network/algorithms/group.h\"\n"), 0U);
    EXPECT_EQ(count("sim/program/lower.cpp", "#include \"sim/cost/cost.h\"\n"), 1U);
    EXPECT_EQ(count("sim/engine/engine.cpp", "#include \"sim/cost/cost.h\"\n#include \"sim/network/network.h\"\n"), 0U);
    EXPECT_EQ(count("sim/engine/engine.cpp", "#include \"sim/planner/planner.h\"\n"), 1U);
    EXPECT_EQ(count("sim/planner/planner.cpp", "#include \"sim/engine/engine.h\"\n"), 0U);
    EXPECT_EQ(count("sim/published/plan_of.cpp", "#include \"sim/program/plan.h\"\n"), 0U);
    EXPECT_EQ(count("sim/published/plan_of.cpp", "#include \"sim/cost/cost_model.h\"\n"), 1U);
    EXPECT_EQ(count("sim/planner/planner.cpp", "#include \"sim/published/published_run.h\"\n"), 1U);
    EXPECT_EQ(count("sim/program/lower.cpp", "#include \"sim/published/published_run.h\"\n"), 1U);
    EXPECT_EQ(count("cli/main.cpp", "#include \"exec/run.h\"\n"), 0U);
    EXPECT_EQ(count("exec/run.cpp", "#include \"tests/house/json_schema.h\"\n"), 1U);
}

TEST(HouseRules, EveryIncludeNamesARoomFromTheRoot) {
    EXPECT_EQ(check_include_edges({"exec/run.cpp", "#include \"run.h\"\n"}).size(), 1U);
    EXPECT_EQ(check_include_edges({"exec/run.cpp", "#include <core/units.h>\n"}).size(), 1U);
    EXPECT_EQ(check_include_edges({"stray.cpp", ""}).size(), 1U);
    EXPECT_EQ(check_include_edges({"exec/run.cpp", "  #  include   \"sim/engine/engine.h\"\n"}).size(), 1U);
    EXPECT_TRUE(
        check_include_edges({"exec/run.cpp", "// #include \"sim/engine/engine.h\"\n#include <vector>\n"}).empty());
    const auto messages = check_include_edges({"exec/run.cpp", "\n#include \"sim/engine/engine.h\"\n"});
    ASSERT_EQ(messages.size(), 1U);
    EXPECT_EQ(messages[0], "exec/run.cpp:2: exec may not include sim/engine (sim/engine/engine.h)");
}

TEST(HouseRules, ForeignTypesInHeaders) {
    for (const std::string header :
         {"nlohmann/json.hpp", "boost/graph/adjacency_list.hpp", "mpi.h", "cuda_runtime.h", "nccl.h", "cublas_v2.h"}) {
        SCOPED_TRACE(header);
        const SourceFile holder = {"exec/transport/state.h", "#pragma once\n#include <" + header + ">\n"};
        const SourceFile wrapper = {"exec/transport/wrapper.h", "#include \"exec/transport/state.h\"\n"};
        const SourceFile inside = {"exec/transport/a.cpp", "#include \"exec/transport/wrapper.h\"\n"};
        const SourceFile outside = {"exec/run.cpp", "#include \"exec/transport/wrapper.h\"\n"};
        const SourceFile test = {"tests/unit/exec/a.cpp", "#include \"exec/transport/wrapper.h\"\n"};
        EXPECT_TRUE(check_foreign_types({holder, wrapper, inside, test}).empty());
        EXPECT_EQ(check_foreign_types({outside, wrapper, holder}).size(), 1U);
        EXPECT_TRUE(check_foreign_types({outside, wrapper, {"exec/transport/state.h", "#include <vector>\n"}}).empty());
    }
}

TEST(HouseRules, TidinessRules) {
    const std::string once = "#pragma once\n";
    EXPECT_EQ(check_tidiness({"core/a.h", once + "using namespace std;\n"}).size(), 1U);
    EXPECT_TRUE(check_tidiness({"core/a.cpp", "using namespace std::chrono_literals;\n"}).empty());
    EXPECT_EQ(check_tidiness({"core/a.h", "int x();\n"}).size(), 1U);
    EXPECT_EQ(check_tidiness({"kernels/cuda/a.cuh", "int x();\n"}).size(), 1U);
    EXPECT_EQ(check_tidiness({"core/a.cpp", "int x = std::rand();\n"}).size(), 1U);
    EXPECT_TRUE(check_tidiness({"core/a.cpp", "int x = operand(1); // std::rand()\n"}).empty());
    EXPECT_EQ(check_tidiness({"core/a.cpp", "for (int x : std::views::reverse(v)) f(x);\n"}).size(), 1U);
    EXPECT_EQ(check_tidiness({"core/a.cpp", "#include <ranges>\n"}).size(), 1U);
    EXPECT_EQ(check_tidiness({"sim/cost/a.cpp", "std::unordered_map<int, int> m;\n"}).size(), 1U);
    EXPECT_TRUE(check_tidiness({"sim/cost/a.cpp", "/* no unordered_map\n here */ const char* s = \"unordered_map\";\n"})
                    .empty());
    EXPECT_TRUE(check_tidiness({"exec/a.cpp", "std::unordered_map<int, int> m;\n"}).empty());
    EXPECT_EQ(check_tidiness({"exec/a.cpp", std::string("// TO") + "DO: later\n"}).size(), 1U);
    EXPECT_EQ(check_tidiness({"exec/a.cpp", std::string("// FIX") + "ME\n"}).size(), 1U);
    EXPECT_EQ(check_tidiness({"sim/a.cpp", "constexpr IntegerRange kAny{};\n"}).size(), 1U);
    EXPECT_EQ(check_tidiness({"sim/a.cpp", "x = json.number_or(\"key\", {}, 1);\n"}).size(), 1U);
    EXPECT_TRUE(check_tidiness({"sim/a.cpp", "x = json.numbers(\"key\", {0, 1});\n"}).empty());
    EXPECT_EQ(check_tidiness({"tests/unit/exec/a.cpp", "auto path = testing::TempDir() + \"a\";\n"}).size(), 1U);
    std::string lines;
    for (int i = 0; i < kMaximumLines; ++i) lines += ";\n";
    EXPECT_TRUE(check_tidiness({"exec/a.cpp", lines}).empty());
    EXPECT_EQ(check_tidiness({"exec/a.cpp", lines + ";\n"}).size(), 1U);
    EXPECT_TRUE(check_tidiness({"tests/unit/exec/a.cpp", lines + ";\n"}).empty());
}

std::vector<std::string> long_functions(const std::string& text, const std::string& path = "exec/a.cpp") {
    return check_function_lengths({path, text});
}

/// A body of this many lines, including a comment and a string with unbalanced braces.
std::string body_of(int lines) {
    std::string text = "// {\nf(\"{\");\n";
    for (int i = 2; i < lines; ++i) text += "g();\n";
    return text;
}

TEST(HouseRules, LongFunctionsAreReported) {
    const std::string fits = body_of(kMaximumFunctionLines - 2), is_long = body_of(kMaximumFunctionLines - 1);
    struct Frame {
        std::string before, after;
    };
    for (const Frame& frame :
         std::vector<Frame>{{"int f() {\n", "}\n"},
                            {"namespace a {\nnamespace {\n\n/// Says.\nint f() {\n", "}\n}\n}\n"},
                            {"class A : public B<int> {\n  public:\n    int f() const {\n", "}\n};\n"},
                            {"struct alignas(64) A {\n    int f() {\n", "}\n};\n"},
                            {"extern \"C\" {\nint f() {\n", "}\n}\n"},
                            {"A::A(int x) : a_(x), b_{x, {1}}, c_([&] { return x; }()) {\n", "}\n"},
                            {"int f(const A& a = {}, int b = 1) {\n", "}\n"},
                            {"bool operator==(A a, A b) {\n", "}\n"},
                            {"const auto f = [](int x) {\n", "};\n"},
                            {"#define OPEN {\n#if 1\nint f() {\n#endif\n", "}\n"}}) {
        SCOPED_TRACE(frame.before);
        const bool ends_inside = frame.before.find("#endif") != std::string::npos;  // one line more
        EXPECT_EQ(long_functions(frame.before + fits + frame.after).size(), ends_inside ? 1U : 0U);
        EXPECT_EQ(long_functions(frame.before + is_long + frame.after).size(), 1U);
    }
    EXPECT_EQ(long_functions("\n\nint f(int a,\n      int b) {\n" + fits + "}\n"),
              std::vector<std::string>{"exec/a.cpp:3: the function has 71 lines; at most 70"});
    EXPECT_EQ(long_functions("A::A(int x)\n    : a_{x},\n      b_{x} {\n" + fits + "}\n").size(), 1U);
    EXPECT_EQ(long_functions("int f() {\n" + is_long + "}\n", "kernels/cuda/a.cu").size(), 1U);
    EXPECT_TRUE(long_functions("int f() {\n" + is_long + "}\n", "tests/unit/exec/a.cpp").empty());
}

TEST(HouseRules, OnlyFunctionsAreLimitedInLength) {
    const std::string is_long = body_of(2 * kMaximumFunctionLines);
    // A lambda counts as part of its function.
    EXPECT_EQ(long_functions("void f() {\nconst auto g = [&](int x) {\n" + is_long + "};\n}\n").size(), 1U);
    std::string rows;
    for (int i = 0; i < 2 * kMaximumFunctionLines; ++i) rows += "    {1, [](int x) { return x; }},\n";
    EXPECT_TRUE(long_functions("const Row kRows[] = {\n" + rows + "};\n").empty());
    EXPECT_TRUE(long_functions("constexpr std::array kRows{\n" + rows + "};\n").empty());
    EXPECT_TRUE(long_functions("const std::map<int, std::function<int(int)>> kRows = {\n" + rows + "};\n").empty());
    std::string members;
    for (int i = 0; i < 2 * kMaximumFunctionLines; ++i) members += "    int f() { return 1; }\n    int a{};\n";
    EXPECT_TRUE(long_functions("template <class T>\nstruct A {\n" + members + "};\n").empty());
    EXPECT_TRUE(long_functions("namespace a {\n" + members + "}\n").empty());
}

TEST(HouseRules, CommentsAndLiterals) {
    EXPECT_EQ(without_comments("a// b\nc", true), "a    \nc");
    EXPECT_EQ(without_comments("a/*b\nc*/d", true), "a   \n   d");
    EXPECT_EQ(without_comments("f(\"// x\") // y", false), "f(\"// x\")     ");
    EXPECT_EQ(without_comments("f(\"a\\\"b\");", true), "f(      );");
    EXPECT_EQ(without_comments("1'000'000 + 'a'", true), "1'000'000 +    ");
    EXPECT_EQ(without_comments("R\"x(\" // )x\";", false), "R\"x(\" // )x\";");
}

}  // namespace
}  // namespace orrery::house
