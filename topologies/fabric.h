// The switches between nodes: how many of each tier a ClusterSpec asks for, which one each NIC is connected to, and the
// cables among them. Switches are numbered leaves (or routers) first, then spines, then cores.
#pragma once

#include <cstdint>
#include <functional>

#include "topologies/cluster_spec.h"
#include "topologies/graph.h"

namespace orrery::topologies {

class Fabric {
  public:
    /// Throws InputError naming the key, its value and what is allowed when the fabric has no room for the nodes. A
    /// single node has no fabric, whatever the kind.
    explicit Fabric(const ClusterSpec& spec);

    [[nodiscard]] FabricKind kind() const { return kind_; }  // none for one node
    [[nodiscard]] std::int64_t leaves() const { return leaves_; }
    [[nodiscard]] std::int64_t spines() const { return spines_; }
    [[nodiscard]] std::int64_t cores() const { return cores_; }
    [[nodiscard]] std::int64_t routers() const { return routers_; }
    [[nodiscard]] std::int64_t switch_count() const { return leaves_ + spines_ + cores_ + routers_; }
    /// Pairs of switches that are joined; parallel cables count once.
    [[nodiscard]] std::int64_t trunk_count() const;

    /// The switch that NIC `rail` of the node is connected to.
    [[nodiscard]] std::int64_t edge_switch(std::int64_t node, std::int64_t rail) const;
    /// Nodes of one unit share their leaves or their router.
    [[nodiscard]] std::int64_t unit_of(std::int64_t node) const;
    /// The pod (3 tiers) or group (dragonfly): traffic within one crosses no core and no global link. 0 in other
    /// fabrics.
    [[nodiscard]] std::int64_t pod_of(std::int64_t node) const;
    /// Whether equality of node, unit, pod and rail determines how far apart two NICs are.
    [[nodiscard]] bool coordinates_tell_distance() const;
    [[nodiscard]] bool is_clos() const;

    /// The switch with this number.
    [[nodiscard]] Vertex vertex(std::int64_t number) const;
    /// Calls connect(a, b, kind, cables) once for each pair of joined switches.
    using Connect = std::function<void(std::int64_t a, std::int64_t b, LinkKind kind, std::int64_t cables)>;
    void for_each_trunk(const Connect& connect) const;

    /// The counts that define a Clos; units_per_pod is 0 with two tiers.
    struct Clos {
        std::int64_t units = 0, leaves_per_unit = 1, nodes_per_unit = 1;
        std::int64_t uplinks_per_leaf = 0;
        std::int64_t units_per_pod = 0, pods = 1, uplinks_per_spine = 0;
        bool spines_of_one_rail = false;
    };
    [[nodiscard]] const Clos& clos() const { return clos_; }
    /// The lengths of a torus.
    [[nodiscard]] const std::vector<std::int64_t>& dimensions() const { return shape_.dimensions; }

  private:
    void set_rails(const ClusterSpec& spec);
    void set_fat_tree(const ClusterSpec& spec);
    void set_rail_pods(const ClusterSpec& spec);
    void set_dragonfly(const ClusterSpec& spec);
    void set_torus(const ClusterSpec& spec);
    void count_clos();
    void connect_clos(const Connect& connect) const;
    void connect_dragonfly(const Connect& connect) const;
    void connect_torus(const Connect& connect) const;

    FabricKind kind_ = FabricKind::none;
    std::int64_t leaves_ = 0, spines_ = 0, cores_ = 0, routers_ = 0;
    std::int64_t nodes_per_router_ = 1;
    std::int64_t rails_ = 0;
    Clos clos_;
    FabricShape shape_;
};

}  // namespace orrery::topologies
