#include "topologies/graph.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "core/error.h"

namespace orrery::topologies {
namespace {

Link cable(VertexId from, VertexId to, double bytes_per_second = 1e9) {
    Link link;
    link.from = from;
    link.to = to;
    link.kind = LinkKind::trunk;
    link.bandwidth = BytesPerSecond(bytes_per_second);
    link.latency = Picoseconds(5);
    return link;
}

std::string message_of(const std::function<void(GraphBuilder&)>& build) {
    GraphBuilder builder("test");
    builder.add_vertex({VertexKind::device, -1, 3, 2});
    builder.add_vertex({VertexKind::leaf, 1, 0, 7});
    builder.add_vertex({VertexKind::spine, -1, 0, 4}, "top");
    try {
        build(builder);
        (void)builder.freeze();
    } catch (const InputError& error) {
        return error.what();
    }
    return "";
}

TEST(Graph, LinksAreSortedByTailAndHead) {
    GraphBuilder builder("test");
    for (std::int32_t i = 0; i < 5; ++i) builder.add_vertex({VertexKind::router, -1, 0, i});
    builder.connect(cable(3, 1, 3e9));
    builder.connect(cable(3, 0, 2e9));
    builder.add_link(cable(0, 4));
    builder.connect(cable(1, 2));
    const Graph graph = builder.freeze();
    ASSERT_EQ(graph.vertex_count(), 5);
    ASSERT_EQ(graph.link_count(), 7);
    LinkId id = 0;
    for (VertexId v = 0; v < graph.vertex_count(); ++v) {
        EXPECT_EQ(graph.first_link(v), id);
        VertexId previous = -1;
        for (const Link& link : graph.links_from(v)) {
            EXPECT_EQ(link.from, v);
            EXPECT_GT(link.to, previous);
            previous = link.to;
            EXPECT_EQ(graph.link_between(v, link.to), id);
            EXPECT_EQ(&graph.link(id++), &link);
        }
    }
    EXPECT_EQ(graph.link(*graph.link_between(3, 0)).bandwidth.value(), 2e9);
    EXPECT_EQ(graph.link(*graph.link_between(1, 3)).bandwidth.value(), 3e9);
    EXPECT_EQ(graph.link_between(4, 0), std::nullopt);
    EXPECT_TRUE(graph.links_from(4).empty());
}

TEST(Graph, NamesComeFromCoordinatesUnlessGiven) {
    GraphBuilder builder("test");
    builder.add_vertex({VertexKind::device, -1, 3, 2});
    builder.add_vertex({VertexKind::leaf, 1, 0, 7}, "MF0;leaf:MQM9701/U1");
    builder.add_vertex({VertexKind::core, -1, 0, 5});
    const Graph graph = builder.freeze();
    EXPECT_EQ(graph.name(0), "node 3 device 2");
    EXPECT_EQ(graph.name(1), "MF0;leaf:MQM9701/U1");
    EXPECT_EQ(graph.name(2), "core 5");
    EXPECT_EQ(graph.find("core 5"), 2);
    EXPECT_EQ(graph.find("MF0;leaf:MQM9701/U1"), 1);
    EXPECT_EQ(graph.find("leaf 7"), std::nullopt);
}

TEST(Graph, ErrorsNameTheEndsOfTheLink) {
    const double nan = std::nan("");
    const double infinite = std::numeric_limits<double>::infinity();
    struct Case {
        std::function<void(GraphBuilder&)> build;
        const char* expected;
    };
    const std::vector<Case> cases{
        {[](GraphBuilder& b) { b.add_link(cable(1, 1)); }, "leaf 7 - leaf 7: ends: got a self-loop"},
        {[](GraphBuilder& b) { b.connect(cable(0, 3)); }, "node 3 device 2 - vertex 3: ends: got 0 and 3"},
        {[](GraphBuilder& b) { b.connect(cable(-1, 0)); }, "allowed: vertices 0 to 2"},
        {[](GraphBuilder& b) { b.connect(cable(0, 1, 0)); }, "node 3 device 2 - leaf 7: bandwidth: got 0.0"},
        {[](GraphBuilder& b) { b.connect(cable(0, 1, -2)); }, "bandwidth: got -2.0"},
        {[nan](GraphBuilder& b) { b.connect(cable(0, 1, nan)); }, "bandwidth: got "},
        {[infinite](GraphBuilder& b) { b.connect(cable(0, 1, infinite)); }, "bandwidth: got inf"},
        {[](GraphBuilder& b) {
             Link link = cable(0, 1);
             link.latency = Picoseconds(-1);
             b.connect(link);
         },
         "latency: got -1 ps"},
        {[](GraphBuilder& b) {
             Link link = cable(0, 1);
             link.efficiency = 1.5;
             b.connect(link);
         },
         "efficiency: got 1.5"},
        {[](GraphBuilder& b) {
             b.connect(cable(1, 2));
             b.add_link(cable(2, 1));
         },
         "link top - leaf 7: got two of this direction"},
        {[](GraphBuilder& b) {
             b.add_vertex({VertexKind::core, -1, 0, 0}, "top");
         },
         "vertex top: got two of this name"},
    };
    for (const Case& bad : cases) {
        const std::string message = message_of(bad.build);
        EXPECT_TRUE(message.starts_with("test: ")) << message;
        EXPECT_NE(message.find(bad.expected), std::string::npos) << bad.expected << " in: " << message;
    }
    EXPECT_EQ(message_of([](GraphBuilder& b) { b.connect(cable(0, 1)); }), "");
}

TEST(Graph, MayBeEmpty) {
    const Graph graph = GraphBuilder("test").freeze();
    EXPECT_EQ(graph.vertex_count(), 0);
    EXPECT_EQ(graph.link_count(), 0);
}

}  // namespace
}  // namespace orrery::topologies
