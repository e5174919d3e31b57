// Starts ranks without MPI, as torchrun would.
#include "exec/launch.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "exec/faults/rank_page.h"
#include "exec/faults/supervisor.h"
#include "exec/transport/sockets/rendezvous.h"
#include "exec/transport/sockets/socket_state.h"

namespace orrery::exec {
namespace {

/// Of other launchers, in which this one may run: a rank would take them for its own.
constexpr std::array kForeignVariables{"OMPI_COMM_WORLD_LOCAL_RANK", "TORCHELASTIC_RUN_ID",
                                       "TORCHELASTIC_USE_AGENT_STORE"};

std::string name_in(const std::string& assignment) {
    return assignment.substr(0, assignment.find('='));
}

/// This process's environment, changed for a rank. `added` are assignments.
std::vector<std::string> environment_with(const std::vector<std::string>& added) {
    std::vector<std::string> all = added;
    for (char** one = environ; *one != nullptr; ++one) {
        const std::string name = name_in(*one);
        const bool is_replaced =
            std::any_of(added.begin(), added.end(), [&](const std::string& other) { return name_in(other) == name; });
        const bool is_foreign = std::find(kForeignVariables.begin(), kForeignVariables.end(), std::string_view(name)) !=
                                kForeignVariables.end();
        if (!is_replaced && !is_foreign) all.emplace_back(*one);
    }
    return all;
}

}  // namespace

int launch_ranks(const LaunchOptions& options) {
    ORRERY_CHECK(options.ranks >= 1, "ranks " + std::to_string(options.ranks));
    JobPages pages(options.ranks);
    const Listener listener = listen_on_this_machine(options.ranks * static_cast<int>(kChannels));
    const std::string size = std::to_string(options.ranks);
    RankProcesses ranks{.program = own_path(), .arguments = options.arguments, .file_of_rank_0 = listener.socket.get()};
    for (int rank = 0; rank < options.ranks; ++rank) {
        const std::string number = std::to_string(rank);
        std::vector<std::string> added{"RANK=" + number,
                                       "LOCAL_RANK=" + number,
                                       "WORLD_SIZE=" + size,
                                       "LOCAL_WORLD_SIZE=" + size,
                                       "MASTER_ADDR=127.0.0.1",
                                       "MASTER_PORT=" + std::to_string(listener.port),
                                       std::string(kPagesVariable) + "=" + pages.path()};
        if (rank == 0) added.push_back(std::string(kListenerVariable) + "=" + std::to_string(listener.socket.get()));
        ranks.variables.push_back(environment_with(added));
    }
    return supervise(starter_of(std::move(ranks)), pages,
                     {.timeout_s = options.timeout_s, .program = options.program, .show = options.show});
}

}  // namespace orrery::exec
