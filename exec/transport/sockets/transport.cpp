// The Transport of builds without MPI. Ranks started by a launcher such as torchrun connect over TCP to rank 0, through
// which all host exchanges go. Without a launcher the world is this process.
#include "exec/transport/transport.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string_view>
#include <thread>

#include "core/error.h"

namespace orrery::exec {
namespace {

// How long ranks wait for each other at the rendezvous.
constexpr std::chrono::seconds kMeetingPatience{120};
constexpr std::chrono::milliseconds kRetryInterval{100};
constexpr std::size_t kExchanges = 0, kOffers = 1;  // channels

/// The first message of a rank on each of its connections.
struct Greeting {
    std::int32_t rank = 0, channel = 0;
};

int integer_variable(const char* name, int lowest, int absent) {
    const char* text = std::getenv(name);
    if (text == nullptr) return absent;
    const std::string_view view(text);
    int value = 0;
    const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), value);
    if (error != std::errc() || end != view.data() + view.size() || value < lowest) {
        throw InputError(std::string(name) + ": got '" + text + "'; allowed: an integer from " +
                         std::to_string(lowest) + " on, as launchers such as torchrun set it");
    }
    return value;
}

}  // namespace

struct Transport::Impl {
    int rank = 0;
    int world_size = 1;
    int ranks_on_host = 1;
    /// By channel: on rank 0 the connections to the other ranks, by rank; on the others the connection to rank 0.
    /// kExchanges carries the exchanges that all ranks make in the same order. kOffers carries the offers, which
    /// another thread makes at any time.
    std::array<std::vector<int>, 2> sockets;
    IndexedVector<GroupIndex, std::vector<int>> groups;
    std::int64_t offered = 0;

    [[noreturn]] void fail(const std::string& call) const {
        throw JobError("rank " + std::to_string(rank) + ": " + call + ": " + std::strerror(errno));
    }
    void send_bytes(int socket, const void* data, std::size_t bytes) const;
    void receive_bytes(int socket, void* data, std::size_t bytes) const;
    [[nodiscard]] std::vector<std::string> gather(std::size_t channel, const std::string& mine) const;
    [[nodiscard]] std::string broadcast(std::size_t channel, const std::string& from_rank_0) const;
    void send_text(int socket, const std::string& text) const;
    [[nodiscard]] std::string receive_text(int socket) const;
    void listen_for_all(const sockaddr_in& address);
    void join(const sockaddr_in& address);
};

void Transport::Impl::send_bytes(int socket, const void* data, std::size_t bytes) const {
    const char* at = static_cast<const char*>(data);
    while (bytes > 0) {
        const ssize_t sent = ::send(socket, at, bytes, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) fail("send to another rank");
        at += sent;
        bytes -= static_cast<std::size_t>(sent);
    }
}

void Transport::Impl::receive_bytes(int socket, void* data, std::size_t bytes) const {
    char* at = static_cast<char*>(data);
    while (bytes > 0) {
        const ssize_t received = ::recv(socket, at, bytes, 0);
        if (received < 0 && errno == EINTR) continue;
        if (received == 0) throw JobError("rank " + std::to_string(rank) + ": another rank has ended");
        if (received < 0) fail("receive from another rank");
        at += received;
        bytes -= static_cast<std::size_t>(received);
    }
}

void Transport::Impl::send_text(int socket, const std::string& text) const {
    const std::uint64_t size = text.size();
    send_bytes(socket, &size, sizeof size);
    send_bytes(socket, text.data(), text.size());
}

std::string Transport::Impl::receive_text(int socket) const {
    std::uint64_t size = 0;
    receive_bytes(socket, &size, sizeof size);
    if (size > std::uint64_t{1} << 31U)
        throw JobError("rank " + std::to_string(rank) + ": received a message that is not from a rank of this job");
    std::string text(size, '\0');
    receive_bytes(socket, text.data(), text.size());
    return text;
}

void Transport::Impl::listen_for_all(const sockaddr_in& address) {
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    if (listener < 0) fail("socket");
    ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    timeval patience{.tv_sec = kMeetingPatience.count(), .tv_usec = 0};
    ::setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);  // bounds accept()
    if (::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) fail("bind to MASTER_PORT");
    const int channels = static_cast<int>(sockets.size());
    if (::listen(listener, channels * world_size) != 0) fail("listen");
    for (std::vector<int>& channel : sockets) channel.assign(static_cast<std::size_t>(world_size), -1);
    for (int left = channels * (world_size - 1); left > 0; --left) {
        const int socket = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
        if (socket < 0) fail("waiting for " + std::to_string((left + channels - 1) / channels) + " more ranks");
        ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        Greeting other;
        receive_bytes(socket, &other, sizeof other);
        if (other.channel < 0 || other.channel >= channels) {
            throw JobError("MASTER_PORT: a process that is not a rank of this job has connected");
        }
        std::vector<int>& channel = sockets[static_cast<std::size_t>(other.channel)];
        if (other.rank < 1 || other.rank >= world_size || channel[static_cast<std::size_t>(other.rank)] >= 0) {
            throw JobError("RANK: two processes have the number " + std::to_string(other.rank) +
                           ", or it is out of range");
        }
        channel[static_cast<std::size_t>(other.rank)] = socket;
    }
    ::close(listener);
}

void Transport::Impl::join(const sockaddr_in& address) {
    const auto deadline = std::chrono::steady_clock::now() + kMeetingPatience;
    const int on = 1;
    for (std::size_t channel = 0; channel < sockets.size();) {
        const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (socket < 0) fail("socket");
        if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
            ::close(socket);
            if (std::chrono::steady_clock::now() > deadline) fail("connect to MASTER_ADDR:MASTER_PORT");
            std::this_thread::sleep_for(kRetryInterval);
            continue;
        }
        ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        const Greeting mine{rank, static_cast<std::int32_t>(channel)};
        send_bytes(socket, &mine, sizeof mine);
        sockets[channel++].push_back(socket);
    }
}

std::vector<std::string> Transport::Impl::gather(std::size_t channel, const std::string& mine) const {
    const std::vector<int>& connected = sockets[channel];
    if (rank != 0) {
        send_text(connected.front(), mine);
        return {};
    }
    std::vector<std::string> all{mine};
    for (std::size_t other = 1; other < connected.size(); ++other) all.push_back(receive_text(connected[other]));
    return all;
}

std::string Transport::Impl::broadcast(std::size_t channel, const std::string& from_rank_0) const {
    const std::vector<int>& connected = sockets[channel];
    if (rank != 0) return receive_text(connected.front());
    for (std::size_t other = 1; other < connected.size(); ++other) send_text(connected[other], from_rank_0);
    return from_rank_0;
}

Transport::Transport() : impl_(std::make_unique<Impl>()) {
    impl_->world_size = integer_variable("WORLD_SIZE", 1, 1);
    impl_->rank = integer_variable("RANK", 0, 0);
    impl_->ranks_on_host = integer_variable("LOCAL_WORLD_SIZE", 1, impl_->world_size);
    if (impl_->rank >= impl_->world_size) {
        throw InputError("RANK: got " + std::to_string(impl_->rank) + "; allowed: less than WORLD_SIZE");
    }
    recorder_.enter(RankStage::preparing);
    if (impl_->world_size == 1) return;
    const char* name = std::getenv("MASTER_ADDR");
    addrinfo hints{};
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (name == nullptr || ::getaddrinfo(name, nullptr, &hints, &found) != 0) {
        throw InputError(std::string("MASTER_ADDR: got '") + (name == nullptr ? "" : name) +
                         "'; allowed: the name or address of rank 0's machine");
    }
    sockaddr_in address{};
    std::memcpy(&address, found->ai_addr, sizeof address);
    ::freeaddrinfo(found);
    constexpr int kPort = 29500;  // torchrun's default
    address.sin_port = htons(static_cast<std::uint16_t>(integer_variable("MASTER_PORT", 1, kPort)));
    if (impl_->rank == 0) {
        impl_->listen_for_all(address);
    } else {
        impl_->join(address);
    }
}

Transport::~Transport() {
    for (const std::vector<int>& channel : impl_->sockets) {
        for (const int socket : channel) {
            if (socket >= 0) ::close(socket);
        }
    }
    recorder_.enter(RankStage::done);
}

int Transport::rank() const {
    return impl_->rank;
}
int Transport::world_size() const {
    return impl_->world_size;
}
int Transport::ranks_on_host() const {
    return impl_->ranks_on_host;
}
int Transport::cores() const {
    cpu_set_t mine;
    CPU_ZERO(&mine);
    if (sched_getaffinity(0, sizeof mine, &mine) != 0) return 1;
    return std::max(1, CPU_COUNT(&mine));
}

GroupHandle Transport::create_group(const std::vector<int>& ranks) {
    const std::set<int> distinct(ranks.begin(), ranks.end());
    ORRERY_CHECK(distinct.size() == ranks.size() && distinct.contains(impl_->rank),
                 "a group without this rank, or with a rank twice");
    return {impl_->groups.add(ranks)};
}
const std::vector<int>& Transport::members(GroupHandle group) const {
    return impl_->groups.at(group.index);
}

void Transport::barrier() {
    static_cast<void>(gather(""));
    static_cast<void>(broadcast(""));
}

std::vector<std::string> Transport::gather(const std::string& mine) {
    return impl_->gather(kExchanges, mine);
}

std::string Transport::broadcast(const std::string& from_rank_0) {
    return impl_->broadcast(kExchanges, from_rank_0);
}

void Transport::offer(std::int64_t value) {
    impl_->offered = value;
}

// Blocks until all ranks have made their offers.
std::optional<std::int64_t> Transport::greatest_offer() {
    std::int64_t greatest = impl_->offered;
    for (const std::string& one : impl_->gather(kOffers, std::to_string(impl_->offered))) {
        greatest = std::max<std::int64_t>(greatest, std::stoll(one));
    }
    return std::stoll(impl_->broadcast(kOffers, std::to_string(greatest)));
}

void Transport::abort(int exit_code, const std::string& message) {
    const std::string place = recorder_.place();
    recorder_.fail(exit_code);
    std::fflush(stdout);
    std::fprintf(stderr, "orrery: %s%s%s\n", message.c_str(), place.empty() ? "" : ": ", place.c_str());
    std::fflush(stderr);
    std::_Exit(exit_code);  // the other ranks see the closed sockets, or their launcher ends them
}

}  // namespace orrery::exec
