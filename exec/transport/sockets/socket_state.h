// Internal state of the transport over sockets.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "core/file_descriptor.h"
#include "exec/transport/sockets/beat_wires.h"
#include "exec/transport/transport.h"
#include "exec/transport/transport_state.h"

namespace orrery::exec {

/// The connections between two ranks. kExchanges carries the exchanges that all ranks make in the same order, kOffers
/// the offers, which another thread makes at any time, and kBeats the heartbeats.
enum Channel : std::size_t { kExchanges, kOffers, kBeats, kChannels };

struct Transport::Impl : TransportState {
    using TransportState::TransportState;
    /// Of kExchanges and kOffers: on rank 0 the connections to all ranks, by rank; on the others the connection to rank
    /// 0.
    std::array<std::vector<FileDescriptor>, kBeats> connections;
    BeatWires beats;
    std::atomic<bool> is_heard = false;  // heartbeats are exchanged, which explain why another rank has ended
    std::mutex aborting;                 // taken by the thread that ends this process, and never released
    IndexedVector<GroupIndex, std::vector<int>> groups;
    std::int64_t offered = 0;

    void connect();
    [[nodiscard]] std::vector<std::string> gather(Channel channel, const std::string& mine) const;
    [[nodiscard]] std::string broadcast(Channel channel, const std::string& from_rank_0) const;

  private:
    void send_bytes(int other, Channel channel, const void* data, std::size_t bytes) const;
    void receive_bytes(int other, Channel channel, void* data, std::size_t bytes) const;
    void send_text(int other, Channel channel, const std::string& text) const;
    [[nodiscard]] std::string receive_text(int other, Channel channel) const;
    [[nodiscard]] int socket_to(int other, Channel channel) const;
    [[noreturn]] void lose(int other) const;
};

}  // namespace orrery::exec
