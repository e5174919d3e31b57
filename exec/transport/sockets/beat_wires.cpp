#include "exec/transport/sockets/beat_wires.h"

#include <sys/socket.h>

#include <cerrno>

namespace orrery::exec {

void BeatWires::add(int rank, FileDescriptor socket) {
    wires_[rank].socket = std::move(socket);
}

/// Sends what is held back, as far as the connection takes it. What cannot be sent any more is forgotten.
void BeatWires::flush(Wire& wire) {
    while (!wire.unsent.empty()) {
        const ssize_t sent =
            ::send(wire.socket.get(), wire.unsent.data(), wire.unsent.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        wire.unsent.erase(0, sent < 0 ? wire.unsent.size() : static_cast<std::size_t>(sent));
    }
}

void BeatWires::put(Wire& wire, const Beat& beat) {
    wire.unsent.append(reinterpret_cast<const char*>(&beat), sizeof beat);
    flush(wire);
}

bool BeatWires::send(const Beat& beat) {
    const std::lock_guard lock(sending_);
    bool all = true;
    for (auto& [rank, wire] : wires_) {
        flush(wire);
        const bool is_free = wire.unsent.empty();
        if (is_free && !wire.has_sent_last) {
            put(wire, beat);
            wire.has_sent_last = beat.kind == BeatKind::last;
        }
        all = all && is_free && wire.unsent.empty();
    }
    return all;
}

void BeatWires::send_last_words(int exit_code) {
    const std::lock_guard lock(sending_);
    for (auto& [rank, wire] : wires_) put(wire, {.kind = BeatKind::failed, .exit_code = exit_code});
}

std::optional<BeatLink::Arrival> BeatWires::receive() {
    for (auto& [rank, wire] : wires_) {
        while (!wire.is_over) {
            char* const bytes = reinterpret_cast<char*>(&wire.beat);
            const ssize_t more =
                ::recv(wire.socket.get(), bytes + wire.received, sizeof wire.beat - wire.received, MSG_DONTWAIT);
            if (more < 0 && errno == EINTR) continue;
            if (more < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
            if (more <= 0) {
                wire.is_over = true;
                return BeatLink::Arrival{rank, {.kind = BeatKind::ended}};
            }
            wire.received += static_cast<std::size_t>(more);
            if (wire.received < sizeof wire.beat) continue;
            wire.received = 0;
            wire.is_over = wire.beat.kind == BeatKind::last;
            return BeatLink::Arrival{rank, wire.beat};
        }
    }
    return {};
}

std::vector<int> BeatWires::ranks() const {
    std::vector<int> ranks;
    for (const auto& [rank, wire] : wires_) ranks.push_back(rank);
    return ranks;
}

std::vector<pollfd> BeatWires::files() const {
    std::vector<pollfd> files;
    for (const auto& [rank, wire] : wires_) {
        if (!wire.is_over) files.push_back({wire.socket.get(), POLLIN, 0});
    }
    return files;
}

}  // namespace orrery::exec
