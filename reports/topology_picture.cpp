#include "reports/topology_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <vector>

#include "core/error.h"
#include "core/index.h"
#include "reports/table.h"
#include "reports/xml.h"

namespace orrery::reports {
namespace {

using topologies::Cluster;
using topologies::Link;
using topologies::LinkKind;
using topologies::Vertex;
using topologies::VertexId;
using topologies::VertexKind;

constexpr std::int64_t kMostNodes = 4;
constexpr std::size_t kMostInRow = 16;  // of one node, or of one tier

// Pixels.
constexpr double kBoxWidth = 68, kBoxHeight = 20, kColumn = 74, kRow = 54, kFabricRow = 90, kMargin = 24, kNodeGap = 28,
                 kTitle = 40;
constexpr double kLegendLine = 18;

struct KindLook {
    const char* label;
    const char* plural;
    const char* colour;
    int row;  // from the top; the fabric's tiers, then a node's insides
};
constexpr int kRows = 8, kFirstInnerRow = 3;
constexpr EnumArray<VertexKind, KindLook, 10> kKinds{{{{"GPU", "GPUs", "#cfe8cf", 6},
                                                       {"NVSwitch", "NVSwitches", "#a9d4a9", 7},
                                                       {"memory", "memories", "#e4e4e4", 7},
                                                       {"NIC", "NICs", "#f6d9c0", 3},
                                                       {"leaf", "leaves", "#c3d5e7", 2},
                                                       {"spine", "spines", "#9fbfdd", 1},
                                                       {"core", "cores", "#7ea8d0", 0},
                                                       {"router", "routers", "#c3d5e7", 2},
                                                       {"PCIe", "PCIe switches", "#f4e4ba", 4},
                                                       {"CPU", "CPUs", "#ddd3e7", 5}}}};
constexpr EnumArray<LinkKind, const char*, 6> kLinkColours{
    {{"#3a923a", "#d9a520", "#e1812c", "#3b75af", "#1f4e79", "#8e6bb0"}}};

const KindLook& look_of(VertexKind kind) {
    return kKinds[kind];
}
const char* colour_of(LinkKind kind) {
    return kLinkColours[kind];
}

struct Box {
    VertexId vertex = 0;
    std::string label;
    VertexKind kind{};
    std::int64_t node = -1;  // -1: of the fabric
    double x = 0, y = 0;     // its centre
};

/// The part of the graph that is drawn.
class Selection {
  public:
    explicit Selection(const Cluster& cluster) : cluster_(cluster) {
        nodes_ = std::min(cluster.spec().nodes, kMostNodes);
        select_inner();
        select_fabric();
        for (std::size_t i = 0; i < boxes_.size(); ++i) at_[boxes_[i].vertex] = i;
    }

    [[nodiscard]] std::int64_t nodes() const { return nodes_; }
    [[nodiscard]] std::vector<Box>& boxes() { return boxes_; }
    /// Counts of what is not drawn, such as "56 more GPUs", by (node or -1, row).
    [[nodiscard]] const std::map<std::pair<std::int64_t, int>, std::string>& left_out() const { return left_out_; }

    struct Line {
        std::size_t a = 0, b = 0;  // boxes
        const Link* link = nullptr;
    };
    [[nodiscard]] std::vector<Line> lines() const {
        std::vector<Line> lines;
        for (std::size_t i = 0; i < boxes_.size(); ++i) {
            for (const Link& link : cluster_.links_from(boxes_[i].vertex)) {
                const auto other = at_.find(link.to);
                if (other != at_.end() && link.from < link.to) lines.push_back({i, other->second, &link});
            }
        }
        return lines;
    }

  private:
    void add(VertexId id, std::int64_t node) {
        const Vertex& vertex = cluster_.vertex(id);
        boxes_.push_back({id, fmt::format("{} {}", look_of(vertex.kind).label, vertex.index), vertex.kind, node, 0, 0});
    }

    void leave_out(std::int64_t node, VertexKind kind, std::int64_t count) {
        left_out_[{node, look_of(kind).row}] =
            fmt::format("{} more {}", format_integer(count), count == 1 ? look_of(kind).label : look_of(kind).plural);
    }

    void select_inner() {
        std::map<std::pair<std::int64_t, VertexKind>, std::vector<VertexId>> inner;
        for (VertexId id = 0; id < cluster_.vertex_count(); ++id) {
            const Vertex& vertex = cluster_.vertex(id);
            if (!is_fabric_switch(vertex.kind) && vertex.group < nodes_)
                inner[{vertex.group, vertex.kind}].push_back(id);
        }
        for (const auto& [place, ids] : inner) {
            const std::size_t shown = std::min(ids.size(), kMostInRow);
            for (std::size_t i = 0; i < shown; ++i) add(ids[i], place.first);
            if (ids.size() > shown) leave_out(place.first, place.second, static_cast<std::int64_t>(ids.size() - shown));
        }
    }

    /// Selects switches tier by tier, upwards from the selected NICs.
    void select_fabric() {
        std::map<VertexKind, std::int64_t> all;
        for (VertexId id = 0; id < cluster_.vertex_count(); ++id) {
            if (is_fabric_switch(cluster_.vertex(id).kind)) ++all[cluster_.vertex(id).kind];
        }
        std::map<VertexKind, std::set<VertexId>> chosen;
        for (std::size_t at = 0; at < boxes_.size(); ++at) {
            const bool carries = boxes_[at].kind == VertexKind::nic || is_fabric_switch(boxes_[at].kind);
            if (!carries) continue;
            for (const Link& link : cluster_.links_from(boxes_[at].vertex)) {
                const VertexKind kind = cluster_.vertex(link.to).kind;
                if (!is_fabric_switch(kind) || chosen[kind].size() >= kMostInRow) continue;
                if (chosen[kind].insert(link.to).second) add(link.to, -1);
            }
        }
        for (const auto& [kind, count] : all) {
            const auto shown = static_cast<std::int64_t>(chosen[kind].size());
            if (count > shown) leave_out(-1, kind, count - shown);
        }
        std::stable_sort(boxes_.begin(), boxes_.end(), [](const Box& a, const Box& b) {
            return std::tuple(a.node, look_of(a.kind).row, a.vertex) <
                   std::tuple(b.node, look_of(b.kind).row, b.vertex);
        });
    }

    const Cluster& cluster_;
    std::int64_t nodes_ = 0;
    std::vector<Box> boxes_;
    std::map<VertexId, std::size_t> at_;
    std::map<std::pair<std::int64_t, int>, std::string> left_out_;
};

std::string title_of(const Cluster& cluster) {
    return fmt::format("{}: {} nodes of {} {}, fabric {}", cluster.spec().name, format_integer(cluster.spec().nodes),
                       cluster.spec().devices_per_node, cluster.spec().device.name, name_of(cluster.spec().fabric));
}

/// Kind and bandwidth of a link: "nic 50 GB/s".
std::string figures_of(const Link& link) {
    return fmt::format("{} {:.4g} GB/s{}", name_of(link.kind), link.bandwidth.value() / kGigabyte,
                       link.failed ? " failed" : "");
}

class TopologyPicture {
  public:
    explicit TopologyPicture(const Cluster& cluster) : cluster_(cluster), selection_(cluster) { lay_out(); }

    std::string text() {
        std::string svg = fmt::format(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
            "{1:.0f}\" "
            "font-family=\"sans-serif\" font-size=\"10\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
            "<text x=\"{2}\" y=\"22\" font-size=\"14\">{3}</text>\n",
            width_, height_, kMargin, xml_text(title_of(cluster_)));
        for (std::int64_t node = 0; node < selection_.nodes(); ++node) svg += frame(node);
        std::map<std::string, std::string> legend;  // figures -> colour
        for (const Selection::Line& line : selection_.lines()) {
            svg += line_text(line);
            legend[figures_of(*line.link)] = colour_of(line.link->kind);
        }
        for (const Box& box : selection_.boxes()) svg += box_text(box);
        return svg + left_out_text() + legend_text(legend) + "</svg>\n";
    }

  private:
    [[nodiscard]] static std::size_t widest_row(const std::vector<Box>& boxes, std::int64_t node) {
        std::map<int, std::size_t> rows;
        for (const Box& box : boxes) {
            if (box.node == node) ++rows[look_of(box.kind).row];
        }
        std::size_t widest = 1;
        for (const auto& [row, count] : rows) widest = std::max(widest, count);
        return widest;
    }

    void lay_out() {
        std::vector<Box>& boxes = selection_.boxes();
        node_width_ = kColumn * static_cast<double>(widest_row(boxes, 0)) + kNodeGap / 2;
        const double nodes = static_cast<double>(selection_.nodes());
        const double fabric = kColumn * static_cast<double>(widest_row(boxes, -1));
        width_ = 2 * kMargin + std::max({nodes * (node_width_ + kNodeGap) - kNodeGap, fabric, 560.0});
        std::set<int> used;
        for (const Box& box : boxes) used.insert(look_of(box.kind).row);
        double y = kTitle + kRow / 2;
        for (int row = 0; row < kRows; ++row) {
            if (row == kFirstInnerRow) y += kRow / 4;
            row_y_.at(static_cast<std::size_t>(row)) = y;
            if (used.count(row) > 0) y += row < kFirstInnerRow ? kFabricRow : kRow;
        }
        bottom_ = y;
        height_ = bottom_ + kMargin + kLegendLine * 9;
        std::map<std::pair<std::int64_t, int>, std::vector<Box*>> rows;
        for (Box& box : boxes) rows[{box.node, look_of(box.kind).row}].push_back(&box);
        for (const auto& [place, members] : rows) {
            const double left = place.first < 0 ? kMargin : node_left(place.first);
            const double room = place.first < 0 ? width_ - 2 * kMargin : node_width_;
            for (std::size_t i = 0; i < members.size(); ++i) {
                members[i]->x = left + room * (static_cast<double>(i) + 0.5) / static_cast<double>(members.size());
                members[i]->y = row_y(place.second);
            }
        }
    }

    [[nodiscard]] double row_y(int row) const { return row_y_.at(static_cast<std::size_t>(row)); }
    [[nodiscard]] double node_left(std::int64_t node) const {
        return kMargin + static_cast<double>(node) * (node_width_ + kNodeGap);
    }

    [[nodiscard]] std::string frame(std::int64_t node) const {
        const double top = row_y(kFirstInnerRow) - kRow / 2;
        return fmt::format(
            "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"#fafafa\" stroke=\"#999999\"/>\n"
            "<text x=\"{:.1f}\" y=\"{:.1f}\" fill=\"#555555\">node {}</text>\n",
            node_left(node), top, node_width_, bottom_ - top, node_left(node) + 4, bottom_ - 4, node);
    }

    [[nodiscard]] std::string line_text(const Selection::Line& line) {
        const Box& a = selection_.boxes()[line.a];
        const Box& b = selection_.boxes()[line.b];
        const char* dashes = line.link->failed ? " stroke-dasharray=\"3 3\"" : "";
        if (a.y == b.y) {  // in one row: an arc above it
            return fmt::format(
                "<path d=\"M{0:.1f} {1:.1f}Q{2:.1f} {3:.1f} {4:.1f} {1:.1f}\" fill=\"none\" stroke=\"{5}\" "
                "stroke-opacity=\"0.6\"{6}/>\n",
                a.x, a.y, (a.x + b.x) / 2, a.y - kRow * 0.7, b.x, colour_of(line.link->kind), dashes);
        }
        return fmt::format("<path d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\" stroke=\"{}\" stroke-opacity=\"0.6\"{}/>\n", a.x,
                           a.y, b.x, b.y, colour_of(line.link->kind), dashes);
    }

    [[nodiscard]] static std::string box_text(const Box& box) {
        return fmt::format(
            "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\" rx=\"3\" fill=\"{}\" stroke=\"#666666\"/>\n"
            "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
            box.x - kBoxWidth / 2, box.y - kBoxHeight / 2, kBoxWidth, kBoxHeight, look_of(box.kind).colour, box.x,
            box.y + 3.5, xml_text(box.label));
    }

    [[nodiscard]] std::string left_out_text() const {
        std::string svg;
        for (const auto& [place, text] : selection_.left_out()) {
            const double right = place.first < 0 ? width_ - kMargin : node_left(place.first) + node_width_ - 4;
            svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\" fill=\"#555555\">{}</text>\n",
                               right, row_y(place.second) + kBoxHeight, xml_text(text));
        }
        return svg;
    }

    [[nodiscard]] std::string legend_text(const std::map<std::string, std::string>& legend) const {
        std::string svg;
        double y = bottom_ + kMargin;
        if (const std::int64_t more = cluster_.spec().nodes - selection_.nodes(); more > 0) {
            svg +=
                fmt::format("<text x=\"{}\" y=\"{:.1f}\">and {} more nodes</text>\n", kMargin, y, format_integer(more));
            y += kLegendLine;
        }
        for (const auto& [figures, colour] : legend) {
            if (y > height_ - kLegendLine / 2) break;
            svg += fmt::format(
                "<path d=\"M{0} {1:.1f}h24\" stroke=\"{2}\" stroke-width=\"3\"/><text x=\"{3}\" y=\"{4:.1f}\">{5} each "
                "way"
                "</text>\n",
                kMargin, y - 3, colour, kMargin + 30, y, xml_text(figures));
            y += kLegendLine;
        }
        return svg;
    }

    const Cluster& cluster_;
    Selection selection_;
    double width_ = 0, height_ = 0, node_width_ = 0, bottom_ = 0;
    std::array<double, kRows> row_y_{};
};

std::string dot_quoted(const std::string& text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    }
    return out + "\"";
}

}  // namespace

std::string topology_dot(const Cluster& cluster) {
    Selection selection(cluster);
    std::string dot = "graph cluster {\n  graph [label=" + dot_quoted(title_of(cluster)) +
                      ", labelloc=t, ranksep=1];\n  node [shape=box, style=filled];\n";
    const auto vertex = [](const Box& box) {
        return fmt::format("v{} [label={}, fillcolor=\"{}\"];\n", box.vertex, dot_quoted(box.label),
                           look_of(box.kind).colour);
    };
    for (std::int64_t node = 0; node < selection.nodes(); ++node) {
        dot += fmt::format("  subgraph cluster_node{0} {{\n    label=\"node {0}\";\n", node);
        for (const Box& box : selection.boxes()) {
            if (box.node == node) dot += "    " + vertex(box);
        }
        dot += "  }\n";
    }
    for (const Box& box : selection.boxes()) {
        if (box.node < 0) dot += "  " + vertex(box);
    }
    for (const Selection::Line& line : selection.lines()) {
        dot += fmt::format("  v{} -- v{} [color=\"{}\", tooltip={}{}];\n", selection.boxes()[line.a].vertex,
                           selection.boxes()[line.b].vertex, colour_of(line.link->kind),
                           dot_quoted(figures_of(*line.link)), line.link->failed ? ", style=dashed" : "");
    }
    int number = 0;
    for (const auto& [place, text] : selection.left_out()) {
        dot += fmt::format("  more{} [shape=plaintext, style=\"\", label={}];\n", number++,
                           dot_quoted(place.first < 0 ? text : fmt::format("node {}: {}", place.first, text)));
    }
    if (const std::int64_t more = cluster.spec().nodes - selection.nodes(); more > 0) {
        dot += fmt::format("  more{} [shape=plaintext, style=\"\", label={}];\n", number,
                           dot_quoted(fmt::format("and {} more nodes", format_integer(more))));
    }
    return dot + "}\n";
}

std::string topology_svg(const Cluster& cluster) {
    return TopologyPicture(cluster).text();
}

}  // namespace orrery::reports
