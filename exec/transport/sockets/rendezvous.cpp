#include "exec/transport/sockets/rendezvous.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "core/error.h"
#include "exec/faults/rank_page.h"
#include "exec/launch.h"
#include "exec/transport/sockets/newcomers.h"

namespace orrery::exec {
namespace {

/// Torchrun's default.
constexpr int kDefaultPort = 29500;
/// How many ports are tried besides MASTER_PORT.
constexpr int kMorePorts = 8;
constexpr int kHighestPort = 65535;
/// How long the owner of a port has to show that it is a rank 0 of this job, too.
constexpr std::chrono::milliseconds kProbeTime{1000};

std::string text_of_variable(const char* name) {
    const char* text = std::getenv(name);
    return text == nullptr ? "" : text;
}

/// FNV-1a, with which all ranks get the same number from the same text.
std::uint64_t hash_of(const std::string& text) {
    std::uint64_t hash = 14695981039346656037U;
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
    return hash;
}

sockaddr_in address_of(const std::string& host) {
    addrinfo hints{};
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (host.empty() || ::getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) {
        throw InputError("MASTER_ADDR: got '" + host + "'; allowed: the name or address of rank 0's machine");
    }
    sockaddr_in address{};
    std::memcpy(&address, found->ai_addr, sizeof address);
    ::freeaddrinfo(found);
    return address;
}

/// MASTER_PORT and the ports after it. Our own launcher holds MASTER_PORT for rank 0, so only that is tried, and the
/// store of torchrun's agent holds it otherwise.
std::vector<std::uint16_t> ports_from(int first) {
    std::vector<std::uint16_t> ports;
    const bool store_is_there = text_of_variable("TORCHELASTIC_USE_AGENT_STORE") == "True";
    if (launched_by_us() || !store_is_there) ports.push_back(static_cast<std::uint16_t>(first));
    for (int next = 1; next <= kMorePorts && !launched_by_us(); ++next) {
        const int port = first + next <= kHighestPort ? first + next : first - next;
        ports.push_back(static_cast<std::uint16_t>(port));
    }
    return ports;
}

std::string ports_text(const MeetingPoint& at) {
    if (at.ports.size() == 1) return "port " + std::to_string(at.ports.front());
    return "ports " + std::to_string(at.ports.front()) + " to " + std::to_string(at.ports.back());
}

std::string seconds_text(std::chrono::milliseconds time) {
    return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(time).count()) + " s";
}

[[noreturn]] void fail(int rank, const std::string& what) {
    throw JobError("rank " + std::to_string(rank) + ": " + what);
}

std::uint64_t random_number() {
    std::uint64_t number = 0;
    if (::getrandom(&number, sizeof number, 0) != sizeof number) number = static_cast<std::uint64_t>(::getpid());
    return number;
}

/// Listens at the port; a number below 0 if another process does.
FileDescriptor listen_at(const sockaddr_in& address, int connections) {
    FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    if (socket.get() < 0) fail(0, "socket: " + reason(errno));
    ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);  // connections of an earlier job may linger
    // Of two processes that have bound the same port only the first can listen.
    if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
        ::listen(socket.get(), connections) == 0) {
        return socket;
    }
    if (errno != EADDRINUSE && errno != EACCES) fail(0, "listen: " + reason(errno));
    return FileDescriptor();
}

/// The socket that the launcher has opened for rank 0; a number below 0 without one.
FileDescriptor inherited_listener() {
    const std::string text = text_of_variable(kListenerVariable);
    int file = -1;
    std::from_chars(text.data(), text.data() + text.size(), file);
    int listens = 0;
    socklen_t size = sizeof listens;
    if (file < 0 || ::getsockopt(file, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0) {
        return FileDescriptor();
    }
    ::fcntl(file, F_SETFD, FD_CLOEXEC);
    ::unsetenv(kListenerVariable);
    return FileDescriptor(file);
}

/// Throws if the process that listens at the port is rank 0 of this job.
void check_owner(const MeetingPoint& at, std::uint16_t port) {
    MeetingPoint there = at;
    there.ports = {port};
    there.patience = std::min(kProbeTime, at.patience);
    Seeker seeker(there, {.job = at.job, .process = random_number()});
    if (seeker.find().has_value() || seeker.is_refused()) {
        throw JobError("RANK: two processes have the number 0, the other one listens at port " + std::to_string(port));
    }
}

/// Listens at the first port of the list that is free.
Listener listen_in_list(const MeetingPoint& at, int connections) {
    sockaddr_in address = at.address;
    // The name may stand for another address here than on the other machines, such as one for this machine alone.
    if (address.sin_addr.s_addr != htonl(INADDR_LOOPBACK)) address.sin_addr.s_addr = htonl(INADDR_ANY);
    for (const std::uint16_t port : at.ports) {
        address.sin_port = htons(port);
        FileDescriptor socket = listen_at(address, connections);
        if (socket.get() >= 0) return {std::move(socket), port};
        check_owner(at, port);
    }
    fail(0,
         "cannot listen for the other ranks: " + ports_text(at) + " are taken; allowed: a MASTER_PORT near free ports");
}

}  // namespace

int launcher_variable(const char* name, int lowest, int absent) {
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

MeetingPoint meeting_point(int world_size) {
    MeetingPoint at{.host = text_of_variable("MASTER_ADDR")};
    at.address = address_of(at.host);
    const int port = launcher_variable("MASTER_PORT", 1, kDefaultPort);
    if (port > kHighestPort) {
        throw InputError("MASTER_PORT: got " + std::to_string(port) + "; allowed: 1 to " +
                         std::to_string(kHighestPort));
    }
    at.ports = ports_from(port);
    at.job = hash_of(text_of_variable("TORCHELASTIC_RUN_ID") + "\n" + at.host + "\n" + std::to_string(port) + "\n" +
                     std::to_string(world_size) + "\n" + text_of_variable(kPagesVariable));
    return at;
}

Listener listen_on_this_machine(int connections) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    Listener listener{.socket = listen_at(address, connections)};
    socklen_t size = sizeof address;
    if (::getsockname(listener.socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
        throw JobError("no free port for the ranks to meet: " + reason(errno));
    }
    listener.port = ntohs(address.sin_port);
    return listener;
}

std::vector<std::vector<FileDescriptor>> meet_all(const MeetingPoint& at, int world_size, int channels) {
    Listener listener{.socket = inherited_listener(), .port = at.ports.front()};
    if (listener.socket.get() < 0) listener = listen_in_list(at, channels * world_size);
    Reception reception(std::move(listener.socket), at.job, world_size, channels);
    if (reception.wait_for_all(at.patience)) return reception.take_connections();
    fail(0, "waited " + seconds_text(at.patience) + " at port " + std::to_string(listener.port) + " for " +
                reception.missing() + ", in vain");
}

std::vector<FileDescriptor> join(const MeetingPoint& at, int rank, int channels) {
    std::vector<FileDescriptor> connections;
    Greeting greeting{.job = at.job, .process = random_number(), .rank = rank};
    MeetingPoint there = at;
    for (; greeting.channel < channels; ++greeting.channel) {
        Seeker seeker(there, greeting);
        std::optional<Listener> found = seeker.find();
        if (seeker.is_refused()) {
            throw JobError("RANK: two processes have the number " + std::to_string(rank) + ", or it is out of range");
        }
        if (!found.has_value()) {
            fail(rank, "did not find rank 0 of this job at " + at.host + ", " + ports_text(there) + ", within " +
                           seconds_text(at.patience));
        }
        there.ports = {found->port};
        connections.push_back(std::move(found->socket));
    }
    return connections;
}

}  // namespace orrery::exec
