#include "topologies/graph.h"

#include <algorithm>
#include <boost/graph/compressed_sparse_row_graph.hpp>
#include <cmath>
#include <limits>
#include <utility>

#include "core/enum_names.h"
#include "core/error.h"

namespace orrery::topologies {
namespace {

/// Vertices are ids; an edge holds only its index among the links in the order they were added.
using SparseGraph = boost::compressed_sparse_row_graph<boost::directedS, boost::no_property, LinkId, boost::no_property,
                                                       VertexId, LinkId>;

std::string coordinates_of(const Vertex& vertex) {
    const std::string word = name_of(vertex.kind);
    const std::string number = word + " " + std::to_string(vertex.index);
    return is_fabric_switch(vertex.kind) ? number : "node " + std::to_string(vertex.group) + " " + number;
}

}  // namespace

std::string name_of(VertexKind kind) {
    static constexpr auto kNames = name_table<VertexKind::cpu>(
        {"device", "switch", "memory", "nic", "leaf", "spine", "core", "router", "pcie", "cpu"});
    return std::string(kNames[kind]);
}

bool is_fabric_switch(VertexKind kind) {
    return kind == VertexKind::leaf || kind == VertexKind::spine || kind == VertexKind::core ||
           kind == VertexKind::router;
}

std::string name_of(LinkKind kind) {
    static constexpr auto kNames =
        name_table<LinkKind::socket>({"intra_node", "host", "nic", "trunk", "core_trunk", "socket"});
    return std::string(kNames[kind]);
}

std::span<const Link> Graph::links_from(VertexId vertex) const {
    const LinkId first = first_link(vertex);
    return std::span(links_).subspan(static_cast<std::size_t>(first),
                                     static_cast<std::size_t>(first_link(vertex + 1) - first));
}

std::optional<LinkId> Graph::link_between(VertexId from, VertexId to) const {
    const std::span<const Link> out = links_from(from);
    const auto found =
        std::lower_bound(out.begin(), out.end(), to, [](const Link& link, VertexId v) { return link.to < v; });
    if (found == out.end() || found->to != to) return std::nullopt;
    return first_link(from) + static_cast<LinkId>(found - out.begin());
}

std::string Graph::name(VertexId id) const {
    const Vertex& known = vertex(id);
    if (!names_.empty() && !names_[static_cast<std::size_t>(id)].empty()) return names_[static_cast<std::size_t>(id)];
    return coordinates_of(known);
}

std::optional<VertexId> Graph::find(const std::string& name) const {
    for (VertexId id = 0; id < vertex_count(); ++id) {
        if (this->name(id) == name) return id;
    }
    return std::nullopt;
}

struct GraphBuilder::Pending {
    std::vector<Vertex> vertices;
    std::vector<std::string> names;
    std::vector<Link> links;

    [[nodiscard]] std::string name(VertexId id) const {
        if (id < 0 || static_cast<std::size_t>(id) >= vertices.size()) return "vertex " + std::to_string(id);
        const auto i = static_cast<std::size_t>(id);
        return i < names.size() && !names[i].empty() ? names[i] : coordinates_of(vertices[i]);
    }
    [[nodiscard]] std::string name(const Link& link) const { return name(link.from) + " - " + name(link.to); }
};

GraphBuilder::GraphBuilder(std::string source) : source_(std::move(source)), pending_(std::make_unique<Pending>()) {}
GraphBuilder::~GraphBuilder() = default;

VertexId GraphBuilder::add_vertex(const Vertex& vertex, std::string name) {
    const std::size_t id = pending_->vertices.size();
    if (id >= static_cast<std::size_t>(std::numeric_limits<VertexId>::max())) {
        throw InputError(source_, "vertices", "more than 2^31 - 1", "fewer");
    }
    pending_->vertices.push_back(vertex);
    if (!name.empty()) {
        pending_->names.resize(id + 1);
        pending_->names.back() = std::move(name);
    }
    return static_cast<VertexId>(id);
}

const Vertex& GraphBuilder::vertex(VertexId id) const {
    return pending_->vertices.at(static_cast<std::size_t>(id));
}

void GraphBuilder::add_link(const Link& link) {
    const auto known = [this](VertexId id) {
        return id >= 0 && static_cast<std::size_t>(id) < pending_->vertices.size();
    };
    const auto refuse = [&](const std::string& what, const std::string& value, const std::string& allowed) {
        throw InputError(source_, "link " + pending_->name(link) + ": " + what, value, allowed);
    };
    const auto text = [](double value) { return std::to_string(value); };
    if (!known(link.from) || !known(link.to)) {
        refuse("ends", std::to_string(link.from) + " and " + std::to_string(link.to),
               "vertices 0 to " + std::to_string(static_cast<std::int64_t>(pending_->vertices.size()) - 1));
    }
    if (link.from == link.to) refuse("ends", "a self-loop", "two different ends");
    const double bandwidth = link.bandwidth.value();
    if (!(bandwidth > 0) || std::isinf(bandwidth)) {
        refuse("bandwidth", text(bandwidth) + " bytes/s", "positive and finite");
    }
    if (!(link.efficiency > 0 && link.efficiency <= 1)) refuse("efficiency", text(link.efficiency), "above 0, up to 1");
    if (link.latency.value() < 0) refuse("latency", std::to_string(link.latency.value()) + " ps", "0 or more");
    if (pending_->links.size() >= static_cast<std::size_t>(std::numeric_limits<LinkId>::max())) {
        throw InputError(source_, "links", "more than 2^31 - 1", "fewer");
    }
    pending_->links.push_back(link);
}

void GraphBuilder::connect(Link link) {
    add_link(link);
    std::swap(link.from, link.to);
    add_link(link);
}

Graph GraphBuilder::freeze() {
    std::vector<std::pair<VertexId, VertexId>> ends;
    std::vector<LinkId> positions;
    ends.reserve(pending_->links.size());
    positions.reserve(pending_->links.size());
    for (const Link& link : pending_->links) {
        positions.push_back(static_cast<LinkId>(ends.size()));
        ends.emplace_back(link.from, link.to);
    }
    const SparseGraph sparse(boost::edges_are_unsorted_multi_pass, ends.begin(), ends.end(), positions.begin(),
                             static_cast<VertexId>(pending_->vertices.size()));
    Graph graph;
    graph.links_.reserve(pending_->links.size());
    graph.first_link_.reserve(pending_->vertices.size() + 1);
    for (VertexId v = 0; v < static_cast<VertexId>(pending_->vertices.size()); ++v) {
        graph.first_link_.push_back(static_cast<LinkId>(graph.links_.size()));
        const auto [begin, end] = boost::out_edges(v, sparse);
        for (auto edge = begin; edge != end; ++edge) {
            graph.links_.push_back(pending_->links[static_cast<std::size_t>(sparse[*edge])]);
        }
        const auto first = graph.links_.begin() + graph.first_link_.back();
        std::sort(first, graph.links_.end(), [](const Link& a, const Link& b) { return a.to < b.to; });
        const auto twice =
            std::adjacent_find(first, graph.links_.end(), [](const Link& a, const Link& b) { return a.to == b.to; });
        if (twice != graph.links_.end()) {
            throw InputError(source_, "link " + pending_->name(*twice), "two of this direction",
                             "one, with the bandwidth of both");
        }
    }
    graph.first_link_.push_back(static_cast<LinkId>(graph.links_.size()));
    std::vector<std::string> sorted;
    for (const std::string& name : pending_->names) {
        if (!name.empty()) sorted.push_back(name);
    }
    std::sort(sorted.begin(), sorted.end());
    if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end()) {
        throw InputError(source_, "vertex " + *twice, "two of this name", "one");
    }
    if (!pending_->names.empty()) pending_->names.resize(pending_->vertices.size());
    graph.vertices_ = std::move(pending_->vertices);
    graph.names_ = std::move(pending_->names);
    *pending_ = {};
    return graph;
}

}  // namespace orrery::topologies
