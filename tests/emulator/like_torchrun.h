// Starts ranks as torchrun does: each with its variables, while a store of the launcher holds MASTER_PORT.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <string>
#include <vector>

#include "core/file_descriptor.h"

namespace orrery::test {

class LikeTorchrun {
  public:
    LikeTorchrun() {
        EXPECT_EQ(listen(store_.get(), 16), 0);  // at any free port
        sockaddr_in address{};
        socklen_t size = sizeof address;
        EXPECT_EQ(getsockname(store_.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
        port_ = std::to_string(ntohs(address.sin_port));
    }
    /// NAME=value, for a rank of a job on this machine alone.
    [[nodiscard]] std::vector<std::string> variables(std::size_t rank, std::size_t ranks) const {
        const std::string number = std::to_string(rank), size = std::to_string(ranks);
        return {"RANK=" + number,
                "LOCAL_RANK=" + number,
                "WORLD_SIZE=" + size,
                "LOCAL_WORLD_SIZE=" + size,
                "MASTER_ADDR=127.0.0.1",
                "MASTER_PORT=" + port_,
                "TORCHELASTIC_USE_AGENT_STORE=True"};
    }

  private:
    FileDescriptor store_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    std::string port_;
};

}  // namespace orrery::test
