// The Transport of builds without MPI: processes that connect over TCP.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
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
#include "exec/transport/transport.h"

namespace orrery::exec {
namespace {

/// A port that was free a moment ago.
std::string free_port() {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), size), 0);
    EXPECT_EQ(::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size), 0);
    ::close(socket);
    return std::to_string(ntohs(address.sin_port));
}

/// Runs `rank_main` in a process per rank; returns the exit codes.
std::vector<int> run_ranks(int ranks, const std::function<int(Transport&)>& rank_main) {
    const std::string port = free_port();
    std::vector<pid_t> children;
    for (int rank = 0; rank < ranks; ++rank) {
        const pid_t child = fork();
        if (child == 0) {
            setenv("RANK", std::to_string(rank).c_str(), 1);
            setenv("WORLD_SIZE", std::to_string(ranks).c_str(), 1);
            setenv("MASTER_ADDR", "127.0.0.1", 1);
            setenv("MASTER_PORT", port.c_str(), 1);
            int code = 99;
            try {
                Transport transport;
                code = rank_main(transport);
            } catch (const JobError&) {
                code = 1;
            }
            _exit(code);
        }
        children.push_back(child);
    }
    std::vector<int> codes;
    for (const pid_t child : children) {
        int status = 0;
        EXPECT_EQ(waitpid(child, &status, 0), child);
        codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    }
    return codes;
}

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
    const std::vector<int> codes = run_ranks(2, [](Transport& transport) {
        if (transport.rank() == 1) transport.abort(7, "rank 1 gives up");
        static_cast<void>(transport.gather(""));
        return 0;
    });
    EXPECT_EQ(codes, (std::vector<int>{1, 7}));
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
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    EXPECT_EQ(Transport().world_size(), 1);
}

}  // namespace
}  // namespace orrery::exec
