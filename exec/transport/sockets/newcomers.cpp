#include "exec/transport/sockets/newcomers.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "core/error.h"

namespace orrery::exec {
namespace {

/// How long whoever connects has for its greeting. Ranks send it at once.
constexpr std::chrono::seconds kGreetingTime{10};
/// How long whoever listens has for its answer. A machine may be busy.
constexpr std::chrono::seconds kAnswerPatience{30};
constexpr std::chrono::milliseconds kRetryInterval{100};
constexpr int kLook_ms = 100;
/// So many strangers are listened to at a time; the oldest is dropped for another.
constexpr std::size_t kMostGuests = 256;

void become_a_connection(const FileDescriptor& socket) {
    const int on = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ::fcntl(socket.get(), F_SETFL, 0);  // blocking from now on
}

bool sends_whole(const FileDescriptor& socket, const void* data, std::size_t bytes) {
    return ::send(socket.get(), data, bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes);  // a new connection has room
}

/// Receives into the rest of a message. False if the connection is closed or broken.
template <typename Message>
bool receives(const FileDescriptor& socket, Message& message, std::size_t& received) {
    char* const bytes = reinterpret_cast<char*>(&message);
    while (received < sizeof message) {
        const ssize_t more = ::recv(socket.get(), bytes + received, sizeof message - received, 0);
        if (more < 0 && errno == EINTR) continue;
        if (more <= 0) return more < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
        received += static_cast<std::size_t>(more);
    }
    return true;
}

}  // namespace

Reception::Reception(FileDescriptor listener, std::uint64_t job, int world_size, int channels)
    : listener_(std::move(listener)),
      job_(job),
      processes_(static_cast<std::size_t>(world_size), 0),
      left_(channels * (world_size - 1)) {
    for (int channel = 0; channel < channels; ++channel) connections_.emplace_back(processes_.size());
    ::fcntl(listener_.get(), F_SETFL, O_NONBLOCK);
}

bool Reception::wait_for_all(std::chrono::milliseconds patience) {
    const Clock::time_point end = Clock::now() + patience;
    while (left_ > 0) {
        if (Clock::now() >= end) return false;
        std::vector<pollfd> files{{listener_.get(), POLLIN, 0}};
        for (const Guest& guest : guests_) files.push_back({guest.socket.get(), POLLIN, 0});
        ::poll(files.data(), files.size(), kLook_ms);
        for (std::size_t i = 0; i < guests_.size(); ++i) {
            if (files[i + 1].revents != 0) listen_to(guests_[i]);
            if (Clock::now() >= guests_[i].deadline) guests_[i].is_gone = true;
        }
        std::erase_if(guests_, [](const Guest& guest) { return guest.is_gone; });
        if (files.front().revents != 0) accept_all();
    }
    return true;
}

void Reception::accept_all() {
    for (;;) {
        FileDescriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (socket.get() >= 0) {
            if (guests_.size() == kMostGuests) guests_.erase(guests_.begin());
            guests_.push_back({.socket = std::move(socket), .deadline = Clock::now() + kGreetingTime});
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) throw JobError("rank 0: accept: " + reason(errno));
        return;  // there is none, or it has broken before it was accepted
    }
}

void Reception::listen_to(Guest& guest) {
    if (!receives(guest.socket, guest.greeting, guest.received)) {
        guest.is_gone = true;
        return;
    }
    // A stranger's message may be shorter than a greeting; its first bytes tell.
    if (guest.received >= sizeof guest.greeting.magic && guest.greeting.magic != Greeting::kMagic) guest.is_gone = true;
    if (guest.is_gone || guest.received < sizeof guest.greeting) return;
    admit(guest);
    guest.is_gone = true;
}

void Reception::admit(Guest& guest) {
    const Greeting& from = guest.greeting;
    if (from.job != job_ || from.channel < 0 || from.channel >= static_cast<int>(connections_.size())) return;
    Welcome welcome{.job = job_, .process = from.process};
    const auto rank = static_cast<std::size_t>(from.rank);
    if (from.rank < 1 || rank >= processes_.size() || (processes_[rank] != 0 && processes_[rank] != from.process)) {
        welcome.is_refused = 1;
        (void)sends_whole(guest.socket, &welcome, sizeof welcome);
        throw JobError("RANK: two processes have the number " + std::to_string(from.rank) + ", or it is out of range");
    }
    if (!sends_whole(guest.socket, &welcome, sizeof welcome)) return;
    become_a_connection(guest.socket);
    processes_[rank] = from.process;
    FileDescriptor& connection = connections_[static_cast<std::size_t>(from.channel)][rank];
    if (connection.get() < 0) --left_;  // else the rank has given up that connection and tries again
    connection = std::move(guest.socket);
}

std::string Reception::missing() const {
    std::string ranks;
    int count = 0;
    for (std::size_t rank = 1; rank < processes_.size(); ++rank) {
        const bool is_here = std::all_of(connections_.begin(), connections_.end(),
                                         [&](const auto& channel) { return channel[rank].get() >= 0; });
        if (!is_here) ranks += (count++ == 0 ? "" : ", ") + std::to_string(rank);
    }
    return (count == 1 ? "rank " : "ranks ") + ranks;
}

Seeker::Seeker(const MeetingPoint& at, const Greeting& greeting) : at_(at), greeting_(greeting) {
    for (const std::uint16_t port : at.ports) attempts_.push_back({.port = port});
}

std::optional<Listener> Seeker::find() {
    const Clock::time_point end = Clock::now() + at_.patience;
    while (Clock::now() < end) {
        std::vector<pollfd> files;
        for (Attempt& attempt : attempts_) {
            if (attempt.socket.get() >= 0 && Clock::now() >= attempt.next) drop(attempt);
            if (attempt.socket.get() < 0 && Clock::now() >= attempt.next) begin(attempt);
            files.push_back({attempt.socket.get(), static_cast<short>(attempt.is_connected ? POLLIN : POLLOUT), 0});
        }
        ::poll(files.data(), files.size(), kLook_ms);
        for (std::size_t i = 0; i < attempts_.size(); ++i) {
            Attempt& attempt = attempts_[i];
            if (attempt.socket.get() < 0 || files[i].revents == 0) continue;
            if (!attempt.is_connected) {
                greet(attempt);
            } else if (is_welcomed(attempt)) {
                become_a_connection(attempt.socket);
                return Listener{std::move(attempt.socket), attempt.port};
            }
            if (is_refused_) return {};
        }
    }
    return {};
}

void Seeker::begin(Attempt& attempt) const {
    attempt.socket = FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (attempt.socket.get() < 0) throw JobError("socket: " + reason(errno));
    attempt.next = Clock::now() + kAnswerPatience;
    sockaddr_in address = at_.address;
    address.sin_port = htons(attempt.port);
    const int failed = ::connect(attempt.socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
    if (failed != 0 && errno != EINPROGRESS) drop(attempt);
}

void Seeker::greet(Attempt& attempt) const {
    int failed = 0;
    socklen_t size = sizeof failed;
    ::getsockopt(attempt.socket.get(), SOL_SOCKET, SO_ERROR, &failed, &size);
    if (failed != 0 || !sends_whole(attempt.socket, &greeting_, sizeof greeting_)) {
        drop(attempt);
        return;
    }
    attempt.is_connected = true;
}

bool Seeker::is_welcomed(Attempt& attempt) {
    Welcome& welcome = attempt.welcome;
    const bool lives = receives(attempt.socket, welcome, attempt.received);
    if (lives && attempt.received < sizeof welcome) return false;
    const bool is_rank_0 = attempt.received == sizeof welcome && welcome.magic == Welcome::kMagic &&
                           welcome.job == greeting_.job && welcome.process == greeting_.process;
    if (is_rank_0 && welcome.is_refused == 0) return true;
    is_refused_ = is_rank_0;
    drop(attempt);
    return false;
}

void Seeker::drop(Attempt& attempt) {
    attempt = {.port = attempt.port, .next = Clock::now() + kRetryInterval};
}

}  // namespace orrery::exec
