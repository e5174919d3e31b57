// SimGrid on the platform of fat_tree.h: prints simulated picoseconds, CPU seconds and peak memory of this process.
// Network model CM02 with factors of 1 and no cross traffic: a flow waits for its latency once and then shares links
// max-min fairly, with weight 1 / latency. The ring is implemented in two ways: callbacks are faster up to some hundred
// hosts, actors beyond. SimGrid 3.32 keeps the Comms of an issuer in a list that it walks whenever one ends, and all
// Comms started in callbacks have the same issuer.
#include <cstdlib>
#include <iostream>
#include <simgrid/s4u.hpp>
#include <string>
#include <vector>

#include "tests/peers/fat_tree.h"
#include "tests/peers/ring_order.h"
#include "tests/peers/worker.h"

namespace s4u = simgrid::s4u;
namespace peers = orrery::peers;

namespace orrery::peers {
namespace {

std::vector<s4u::Host*> make_hosts(const FatTree& tree) {
    std::vector<s4u::Host*> hosts;
    const auto width = static_cast<unsigned>(tree.hosts_of_leaf);
    const s4u::FatTreeParams shape(2, {width, static_cast<unsigned>(tree.leaves())}, {1, width}, {1, 1});
    const s4u::ClusterCallbacks callbacks([&](s4u::NetZone* zone, const std::vector<unsigned long>&, unsigned long id) {
        s4u::Host* host = zone->create_host("host-" + std::to_string(id), 1e9);
        hosts.push_back(host);
        return std::make_pair(host->get_netpoint(), static_cast<simgrid::kernel::routing::NetPoint*>(nullptr));
    });
    s4u::create_fatTree_zone("tree", nullptr, shape, callbacks, kLinkBytesPerSecond,
                             static_cast<double>(kLinkLatency_ps) / kPicosecondsPerSecond,
                             s4u::Link::SharingPolicy::SPLITDUPLEX)
        ->seal();
    return hosts;
}

/// The ring without actors: a Comm starts in the completion callback of its last predecessor.
class RingOfCallbacks {
  public:
    RingOfCallbacks(std::vector<s4u::Host*> hosts, std::int64_t bytes)
        : hosts_(std::move(hosts)),
          order_(static_cast<std::int64_t>(hosts_.size()), bytes),
          running_(hosts_.size() * 4) {}

    void run(const s4u::Engine& engine) {
        s4u::Activity::on_completion_cb([this](const s4u::Activity& ended) {
            const Running& slot = *static_cast<const s4u::Comm&>(ended).get_data<Running>();
            order_.ended(slot.flow, [this](std::int64_t next) { start(next); });
        });
        for (std::int64_t host = 0; host < order_.hosts(); ++host) start(host);
        engine.run();
    }

  private:
    struct Running {
        std::int64_t flow = 0;
        s4u::CommPtr comm;
    };
    void start(std::int64_t flow) {
        const auto rank = static_cast<std::size_t>(flow % order_.hosts());
        s4u::CommPtr comm = s4u::Comm::sendto_init(hosts_[rank], hosts_[(rank + 1) % hosts_.size()]);
        comm->set_payload_size(static_cast<std::uint64_t>(order_.chunk()));
        Running& slot = running_[static_cast<std::size_t>(flow) % running_.size()];
        slot = {flow, comm};
        comm->set_data(&slot);
        comm->start();
    }

    std::vector<s4u::Host*> hosts_;
    RingOrder order_;
    std::vector<Running> running_;  // of the last four steps; a rank has one Comm in flight and one that is ending
};

/// The ring with an actor on each host, which sends to the next host's mailbox and receives from its own.
void ring_of_actors(const s4u::Engine& engine, const std::vector<s4u::Host*>& hosts, std::int64_t bytes) {
    const RingOrder order(static_cast<std::int64_t>(hosts.size()), bytes);
    static int payload = 0;
    for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
        s4u::Actor::create("rank", hosts[rank],
                           [rank, count = hosts.size(), steps = order.steps(), chunk = order.chunk()] {
                               s4u::Mailbox* own = s4u::Mailbox::by_name(std::to_string(rank));
                               s4u::Mailbox* next = s4u::Mailbox::by_name(std::to_string((rank + 1) % count));
                               for (std::int64_t step = 0; step < steps; ++step) {
                                   int* received = nullptr;
                                   const s4u::CommPtr receive = own->get_async<int>(&received);
                                   next->put_async(&payload, static_cast<std::uint64_t>(chunk))->wait();
                                   receive->wait();
                               }
                           });
    }
    engine.run();
}

/// An actor on each host starts all of the host's Comms.
void all_to_all(const s4u::Engine& engine, const std::vector<s4u::Host*>& hosts, std::int64_t bytes) {
    const std::uint64_t part = static_cast<std::uint64_t>(bytes) / hosts.size();
    for (s4u::Host* from : hosts) {
        s4u::Actor::create("rank", from, [&hosts, from, part] {
            std::vector<s4u::CommPtr> comms;
            for (s4u::Host* to : hosts) {
                if (from != to) comms.push_back(s4u::Comm::sendto_async(from, to, part));
            }
            s4u::Comm::wait_all(comms);
        });
    }
    engine.run();
}

}  // namespace
}  // namespace orrery::peers

int main(int argc, char** argv) {
    const double begin_cpu_s = peers::cpu_seconds();
    const peers::WorkerCase work = peers::read_case(argc, argv, {"ring-of-callbacks", "ring-of-actors", "all-to-all"});
    int one = 1;
    s4u::Engine engine(&one, argv);
    for (const char* setting :
         {"network/model:CM02", "network/crosstraffic:0", "network/latency-factor:1", "network/bandwidth-factor:1",
          "network/weight-S:0", "network/TCP-gamma:0", "contexts/stack-size:64"}) {
        s4u::Engine::set_config(setting);
    }
    const peers::FatTree tree(work.hosts);
    const std::vector<s4u::Host*> hosts = peers::make_hosts(tree);
    if (work.kind == "ring-of-callbacks") peers::RingOfCallbacks(hosts, work.bytes).run(engine);
    if (work.kind == "ring-of-actors") peers::ring_of_actors(engine, hosts, work.bytes);
    if (work.kind == "all-to-all") peers::all_to_all(engine, hosts, work.bytes);
    peers::print_result(s4u::Engine::get_clock() * orrery::kPicosecondsPerSecond, begin_cpu_s);
}
