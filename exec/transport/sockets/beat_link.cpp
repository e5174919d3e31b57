// Heartbeats over TCP: a star. Rank 0 hears all ranks, and the others hear rank 0, which passes bad news on. A
// connection that closes shows at once that a process has ended.
#include "exec/transport/beat_link.h"

#include "exec/transport/sockets/socket_state.h"

namespace orrery::exec {
namespace {

class SocketBeatLink : public BeatLink {
  public:
    explicit SocketBeatLink(Transport::Impl& sockets) : sockets_(sockets) { sockets_.is_heard = true; }
    [[nodiscard]] std::vector<int> sources() const override { return sockets_.beats.ranks(); }
    bool send(const Beat& beat) override { return sockets_.beats.send(beat); }
    [[nodiscard]] std::optional<Arrival> receive() override { return sockets_.beats.receive(); }
    [[nodiscard]] std::vector<pollfd> files() const override { return sockets_.beats.files(); }
    [[nodiscard]] bool shows_ends() const override { return true; }
    void close() override { sockets_.is_heard = false; }

  private:
    Transport::Impl& sockets_;
};

}  // namespace

std::unique_ptr<BeatLink> make_beat_link(Transport& transport) {
    return std::make_unique<SocketBeatLink>(transport.impl());
}

}  // namespace orrery::exec
