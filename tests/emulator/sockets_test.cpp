// The Transport of builds without MPI: processes that connect over TCP, and strangers that connect to them.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "exec/transport/sockets/greeting.h"
#include "exec/transport/sockets/rendezvous.h"
#include "exec/transport/transport.h"
#include "tests/unit/core/test_folder.h"

namespace orrery::exec {
namespace {

constexpr int kAsExpected = 0, kJobError = 1, kNotInTime = 98;
constexpr unsigned kSoon_s = 60;  // generous, for a busy machine

sockaddr_in loopback(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    return address;
}

/// A socket bound to this port of the machine; below 0 if it is taken.
FileDescriptor bound_to(int port) {
    FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in address = loopback(port);
    const int on = 1;
    ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return FileDescriptor();
    return socket;
}

/// The first of a few ports in a row that were free a moment ago. The system gives none of them to a connection.
int free_ports() {
    constexpr int kInARow = 4, kFirst = 20'000, kLast = 32'000;
    static int next = kFirst + getpid() % 1000 * 12;
    for (; next < kLast; next += kInARow) {
        bool all = true;
        for (int i = 0; i < kInARow; ++i) all = all && bound_to(next + i).get() >= 0;
        if (!all) continue;
        next += kInARow;
        return next - kInARow;
    }
    throw std::runtime_error("no free ports");
}

/// Something else that listens at a port, and never accepts or answers.
FileDescriptor occupy(int port) {
    FileDescriptor socket = bound_to(port);
    EXPECT_GE(socket.get(), 0);
    EXPECT_EQ(::listen(socket.get(), 16), 0);
    return socket;
}

FileDescriptor connected_to(int port) {
    const sockaddr_in address = loopback(port);
    for (;;) {  // the test's limit of time ends it
        FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return socket;
        usleep(10'000);
    }
}

/// True if the other side closes the connection, within a generous time.
bool is_dropped(const FileDescriptor& socket) {
    const timeval patience{.tv_sec = kSoon_s, .tv_usec = 0};
    ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    char byte = 0;
    const ssize_t got = ::recv(socket.get(), &byte, 1, 0);
    return got == 0 || (got < 0 && errno == ECONNRESET);
}

using Variables = std::vector<std::pair<std::string, std::string>>;

/// Runs rank_main in a process of its own, as a launcher does.
pid_t start_rank(int rank, int ranks, int port, const std::function<int(Transport&)>& rank_main,
                 const Variables& more = {}) {
    const pid_t child = fork();
    if (child != 0) return child;
    alarm(kSoon_s);  // ends a process that hangs
    setenv("RANK", std::to_string(rank).c_str(), 1);
    setenv("WORLD_SIZE", std::to_string(ranks).c_str(), 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
    for (const auto& [name, value] : more) setenv(name.c_str(), value.c_str(), 1);
    int code = 99;
    try {
        Transport transport;
        code = rank_main(transport);
    } catch (const JobError& error) {
        std::fprintf(stderr, "%s\n", error.what());
        code = kJobError;
    }
    _exit(code);
}

std::vector<int> codes_of(const std::vector<pid_t>& children) {
    std::vector<int> codes;
    for (const pid_t child : children) {
        int status = 0;
        EXPECT_EQ(waitpid(child, &status, 0), child);
        codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : kNotInTime);
    }
    return codes;
}

/// Runs rank_main in a process per rank; returns the exit codes.
std::vector<int> run_ranks(int ranks, const std::function<int(Transport&)>& rank_main, const Variables& more = {},
                           int port = free_ports()) {
    std::vector<pid_t> children;
    for (int rank = 0; rank < ranks; ++rank) children.push_back(start_rank(rank, ranks, port, rank_main, more));
    return codes_of(children);
}

/// Whether all ranks are those of one job, called `name` by all.
int meet(Transport& transport, const std::string& name) {
    const std::vector<std::string> all = transport.gather(name + std::to_string(transport.rank()));
    bool is_right = true;
    for (std::size_t rank = 0; rank < all.size(); ++rank)
        is_right = is_right && all[rank] == name + std::to_string(rank);
    return transport.broadcast(is_right ? "yes" : "no") == "yes" ? kAsExpected : 2;
}
int meet_here(Transport& transport) {
    return meet(transport, "");
}

const Variables kTorchrun{{"TORCHELASTIC_USE_AGENT_STORE", "True"},
                          {"TORCHELASTIC_RUN_ID", "3f0c"},
                          {"TORCHELASTIC_RESTART_COUNT", "0"},
                          {"TORCHELASTIC_MAX_RESTARTS", "0"},
                          {"LOCAL_WORLD_SIZE", "3"}};

TEST(Sockets, RanksConnectAndExchange) {
    const std::vector<int> codes = run_ranks(3, [](Transport& transport) {
        if (transport.world_size() != 3 || transport.ranks_on_host() != 3) return 2;
        const std::string mine(static_cast<std::size_t>(transport.rank()) * 100'000, 'x');
        const std::vector<std::string> all = transport.gather(mine);
        if (transport.rank() == 0 && (all.size() != 3 || all[1].size() != 100'000 || all[2].size() != 200'000))
            return 3;
        if (transport.rank() != 0 && !all.empty()) return 4;
        transport.barrier();
        return transport.broadcast(transport.rank() == 0 ? "from 0" : "ignored") == "from 0" ? 0 : 5;
    });
    EXPECT_EQ(codes, (std::vector<int>{0, 0, 0}));
}

TEST(Sockets, OffersRunConcurrentlyWithOtherExchanges) {
    const std::vector<int> codes = run_ranks(3, [](Transport& transport) {
        std::optional<std::int64_t> greatest;
        std::thread agree([&] {
            usleep(static_cast<useconds_t>(10'000 * transport.rank()));
            transport.offer(40 + transport.rank());
            while (!(greatest = transport.greatest_offer())) usleep(1000);
        });
        bool all_there = true;
        for (int exchange = 0; exchange < 200; ++exchange) {
            const std::vector<std::string> all = transport.gather(std::to_string(transport.rank()));
            if (transport.rank() == 0) all_there = all_there && all == std::vector<std::string>{"0", "1", "2"};
        }
        agree.join();
        return all_there && greatest == 42 ? 0 : 2;
    });
    EXPECT_EQ(codes, (std::vector<int>{0, 0, 0}));
}

TEST(Sockets, ExchangeFailsWhenAnotherRankHasEnded) {
    testing::internal::CaptureStderr();
    const std::vector<int> codes = run_ranks(3, [](Transport& transport) {
        if (transport.rank() == 2) transport.abort(7, "rank 2 gives up");
        static_cast<void>(transport.gather(""));
        return transport.rank() == 0 ? 2 : 0;
    });
    EXPECT_EQ(codes, (std::vector<int>{kJobError, 0, 7}));
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("rank 2 has ended"), std::string::npos) << said;
}

/// Only the first rank of a machine reports, and all ranks end with its exit code.
TEST(Sockets, FailureIsReportedOnce) {
    testing::internal::CaptureStderr();
    const std::vector<int> codes = run_ranks(3, [](Transport& transport) -> int {
        transport.barrier();
        if (transport.rank() != 1) usleep(200'000);
        transport.abort(7 + transport.rank(), "rank " + std::to_string(transport.rank()) + " gives up");
    });
    EXPECT_EQ(codes, (std::vector<int>{8, 8, 8}));
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "orrery: rank 1 gives up\n");
}

TEST(Sockets, InvalidLauncherVariablesAreRefused) {
    for (const auto& [rank, size] : {std::pair{"zero", "2"}, {"2", "2"}, {"0", "0"}, {"0", "many"}}) {
        setenv("RANK", rank, 1);
        setenv("WORLD_SIZE", size, 1);
        EXPECT_THROW(Transport{}, InputError) << rank << " of " << size;
    }
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "2", 1);
    unsetenv("MASTER_ADDR");
    EXPECT_THROW(Transport{}, InputError);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", "65536", 1);
    EXPECT_THROW(Transport{}, InputError);
    for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) unsetenv(name);
    EXPECT_EQ(Transport().world_size(), 1);
}

/// The agent of torchrun listens at MASTER_PORT, for its own protocol.
TEST(Sockets, RanksMeetBesideTorchrunsStore) {
    const int port = free_ports();
    const FileDescriptor store = occupy(port);
    EXPECT_EQ(run_ranks(3, meet_here, kTorchrun, port), (std::vector<int>{0, 0, 0}));
    pollfd visitors{store.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&visitors, 1, 0), 0) << "a rank has talked to the store";
}

TEST(Sockets, RanksMeetBesideAnotherServer) {
    const int port = free_ports();
    {
        const FileDescriptor silent = occupy(port);
        EXPECT_EQ(run_ranks(3, meet_here, {}, port), (std::vector<int>{0, 0, 0}));
    }
    // One that answers whoever connects, and closes: as an HTTP server does.
    const FileDescriptor server = occupy(port);
    std::thread serve([&] {
        for (;;) {
            const FileDescriptor visitor(::accept4(server.get(), nullptr, nullptr, SOCK_CLOEXEC));
            if (visitor.get() < 0) return;
            const std::string answer = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            (void)::send(visitor.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
        }
    });
    EXPECT_EQ(run_ranks(3, meet_here, {}, port), (std::vector<int>{0, 0, 0}));
    ::shutdown(server.get(), SHUT_RDWR);
    serve.join();
}

TEST(Sockets, StrangersNeitherEndNorBlockTheRendezvous) {
    const int port = free_ports();
    std::vector<pid_t> ranks{start_rank(0, 3, port, meet_here)};
    const FileDescriptor silent = connected_to(port);
    const FileDescriptor slow = connected_to(port);
    EXPECT_EQ(::send(slow.get(), "O", 1, MSG_NOSIGNAL), 1);
    (void)connected_to(port);  // leaves at once, as a port scanner does
    const FileDescriptor http = connected_to(port);
    const std::string request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    EXPECT_EQ(::send(http.get(), request.data(), request.size(), MSG_NOSIGNAL), std::ssize(request));
    EXPECT_TRUE(is_dropped(http));
    const FileDescriptor other_job = connected_to(port);
    const Greeting greeting{.job = 1, .process = 2, .rank = 1, .channel = 0};
    EXPECT_EQ(::send(other_job.get(), &greeting, sizeof greeting, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof greeting));
    EXPECT_TRUE(is_dropped(other_job));
    for (int rank = 1; rank < 3; ++rank) ranks.push_back(start_rank(rank, 3, port, meet_here));
    EXPECT_EQ(codes_of(ranks), (std::vector<int>{0, 0, 0}));
    EXPECT_TRUE(is_dropped(silent));
}

TEST(Sockets, JobsWithTheSamePortsDoNotMix) {
    const int port = free_ports();
    std::vector<pid_t> all;
    for (int rank = 2; rank >= 0; --rank) {
        for (const std::string job : {"a", "b", "c"}) {
            all.push_back(start_rank(rank, 3, port, [job](Transport& transport) { return meet(transport, job); },
                                     {{"TORCHELASTIC_RUN_ID", job}}));
        }
    }
    EXPECT_EQ(codes_of(all), std::vector<int>(9, 0));
}

TEST(Sockets, TwoProcessesWithOneNumberAreAnError) {
    for (const int twice : {0, 1}) {
        testing::internal::CaptureStderr();
        const int port = free_ports();
        std::vector<pid_t> ranks;
        for (const int rank : {0, twice, 1}) ranks.push_back(start_rank(rank, 3, port, meet_here));
        // Rank 2 is missing. Whoever is neither of the two cannot know why rank 0 has ended.
        if (twice == 0) {
            int status = 0;
            EXPECT_EQ(waitpid(ranks[0], &status, 0), ranks[0]);
            EXPECT_EQ(waitpid(ranks[1], &status, 0), ranks[1]);
            kill(ranks[2], SIGKILL);
            waitpid(ranks[2], &status, 0);
        } else {
            const std::vector<int> codes = codes_of({ranks[0]});
            EXPECT_EQ(codes, std::vector<int>{kJobError});
            for (const pid_t rank : {ranks[1], ranks[2]}) {
                kill(rank, SIGKILL);
                waitpid(rank, nullptr, 0);
            }
        }
        const std::string said = testing::internal::GetCapturedStderr();
        EXPECT_NE(said.find("RANK: two processes have the number " + std::to_string(twice)), std::string::npos) << said;
    }
}

MeetingPoint impatient(int port) {
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
    MeetingPoint at = meeting_point(3);
    unsetenv("MASTER_ADDR");
    unsetenv("MASTER_PORT");
    EXPECT_EQ(at.patience, std::chrono::seconds(120));
    at.patience = std::chrono::milliseconds(300);
    return at;
}

TEST(Sockets, PatienceEndsWithThePortAndTheMissingRanks) {
    const int port = free_ports();
    const MeetingPoint at = impatient(port);
    std::string said = message_of<JobError>([&] { (void)meet_all(at, 3, 2); });
    EXPECT_NE(said.find("at port " + std::to_string(port) + " for ranks 1, 2"), std::string::npos) << said;
    const pid_t rank_1 = fork();
    if (rank_1 == 0) {
        const std::vector<FileDescriptor> connections = join(impatient(port), 1, 2);
        _exit(connections.size() == 2 ? 0 : 2);
    }
    MeetingPoint longer = at;
    longer.patience = std::chrono::seconds(2);
    said = message_of<JobError>([&] { (void)meet_all(longer, 3, 2); });
    EXPECT_NE(said.find("for rank 2, in vain"), std::string::npos) << said;
    waitpid(rank_1, nullptr, 0);
    said = message_of<JobError>([&] { (void)join(at, 1, 2); });
    EXPECT_NE(said.find("rank 1: did not find rank 0 of this job at 127.0.0.1, ports " + std::to_string(port) + " to "),
              std::string::npos)
        << said;
}

TEST(Sockets, AListOfTakenPortsIsAnError) {
    const int port = free_ports();
    const FileDescriptor taken = occupy(port);
    MeetingPoint at = impatient(port);
    at.ports = {static_cast<std::uint16_t>(port)};
    const std::string said = message_of<JobError>([&] { (void)meet_all(at, 3, 2); });
    EXPECT_NE(said.find("port " + std::to_string(port) + " are taken"), std::string::npos) << said;
}

TEST(Sockets, PortsFollowMasterPort) {
    const MeetingPoint low = impatient(29500);
    EXPECT_EQ(low.ports.front(), 29500);
    EXPECT_EQ(low.ports.back(), 29508);
    const MeetingPoint high = impatient(65534);
    EXPECT_EQ(high.ports[1], 65535);
    EXPECT_EQ(high.ports[2], 65532);
    setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
    EXPECT_EQ(impatient(29500).ports.front(), 29501);
    setenv("TORCHELASTIC_USE_AGENT_STORE", "False", 1);
    EXPECT_EQ(impatient(29500).ports.front(), 29500);
    unsetenv("TORCHELASTIC_USE_AGENT_STORE");
}

}  // namespace
}  // namespace orrery::exec
