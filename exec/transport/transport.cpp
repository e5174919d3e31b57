#include "exec/transport/transport.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <limits>
#include <set>
#include <thread>

#include "core/error.h"
#include "exec/faults/injection.h"
#include "exec/launch.h"
#include "exec/transport/mpi_state.h"

namespace orrery::exec {
namespace {

// Between two polls of a host exchange. Host exchanges happen at the start and the end of a run, never in a measured
// step, so a waiting rank leaves its core to the ranks that are still working.
constexpr std::chrono::microseconds kHostPollInterval{50};
constexpr int kPollsBeforeSleep = 200;
// How long abort() waits for the progress thread to leave MPI, and for the rank that failed first to end the job.
constexpr std::chrono::milliseconds kAbortPatience{2000};
// How long a failing rank still exists, so that other ranks can finish reading its memory and learn that the job is
// ending.
constexpr std::chrono::milliseconds kLastReads{20};

/// The number of cores that at least one rank of the machine may use; a launcher may have bound each rank to its own.
int usable_cores(MPI_Comm host) {
    cpu_set_t mine;
    CPU_ZERO(&mine);
    if (sched_getaffinity(0, sizeof mine, &mine) != 0)
        return std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
    cpu_set_t all;
    MPI_Allreduce(&mine, &all, static_cast<int>(sizeof mine), MPI_BYTE, MPI_BOR, host);
    return std::max(1, CPU_COUNT(&all));
}

}  // namespace

void Transport::Impl::check(int code, const char* call) const {
    if (code == MPI_SUCCESS) return;
    char reason[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(code, reason, &length);
    throw JobError("rank " + std::to_string(rank) + ": " + call + ": " +
                   std::string(reason, static_cast<std::size_t>(length)));
}

void Transport::Impl::wait_politely(MPI_Request request, const char* call) {
    recorder.exchange(true);
    for (int polls = 0;; ++polls) {
        int done = 0;
        {
            const std::lock_guard lock(mpi);
            check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), call);
        }
        if (done != 0) break;
        if (polls < kPollsBeforeSleep) {
            std::this_thread::yield();
        } else {
            std::this_thread::sleep_for(kHostPollInterval);
        }
    }
    recorder.exchange(false);
}

Transport::Transport() : impl_(std::make_unique<Impl>(recorder_)) {
    strike_at_init(std::max(0, launched_rank()));
    recorder_.exchange(true);
    int provided = MPI_THREAD_SINGLE;
    // Errors in MPI_Init_thread itself end the process inside MPI, because no error handler is set yet.
    impl_->check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
    if (provided < MPI_THREAD_SERIALIZED) {
        MPI_Finalize();
        throw JobError("MPI supports thread level " + std::to_string(provided) + "; allowed: MPI_THREAD_SERIALIZED (" +
                       std::to_string(MPI_THREAD_SERIALIZED) + ") or higher");
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);  // inherited by all communicators derived from it
    MPI_Comm_rank(MPI_COMM_WORLD, &impl_->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &impl_->world_size);
    impl_->check(MPI_Comm_dup(MPI_COMM_WORLD, &impl_->host_exchange), "MPI_Comm_dup");
    impl_->check(MPI_Comm_dup(MPI_COMM_WORLD, &impl_->point_to_point), "MPI_Comm_dup");
    impl_->check(MPI_Comm_dup(MPI_COMM_WORLD, &impl_->offers), "MPI_Comm_dup");
    MPI_Comm host = MPI_COMM_NULL;
    impl_->check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host),
                 "MPI_Comm_split_type");
    MPI_Comm_size(host, &impl_->ranks_on_host);
    impl_->cores = usable_cores(host);
    MPI_Comm_free(&host);
    impl_->abort_flag.share(*this);
    recorder_.note_signals();
    recorder_.exchange(false);
    recorder_.enter(RankStage::preparing);
}

Transport::~Transport() {
    const bool others_wait = std::uncaught_exceptions() > 0 && impl_->world_size > 1;
    if (impl_->broken || others_wait) {
        abort(kExitJobFailed, "rank " + std::to_string(impl_->rank) + " stopped before its work was done");
    }
    recorder_.enter(RankStage::done);
    for (Group& group : impl_->groups) {
        if (group.comm != MPI_COMM_NULL) MPI_Comm_free(&group.comm);
    }
    MPI_Comm_free(&impl_->offers);
    MPI_Comm_free(&impl_->point_to_point);
    MPI_Comm_free(&impl_->host_exchange);
    MPI_Finalize();
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
    return impl_->cores;
}

GroupHandle Transport::create_group(const std::vector<int>& ranks) {
    const std::set<int> distinct(ranks.begin(), ranks.end());
    ORRERY_CHECK(distinct.size() == ranks.size(), "a rank is in a group twice");
    const auto mine = std::find(ranks.begin(), ranks.end(), impl_->rank);
    ORRERY_CHECK(mine != ranks.end(), "rank " + std::to_string(impl_->rank) + " creates a group that it is not in");
    ORRERY_CHECK(*distinct.begin() >= 0 && *distinct.rbegin() < impl_->world_size, "rank out of range");
    Group group;
    group.ranks = ranks;
    group.me = static_cast<int>(mine - ranks.begin());
    if (ranks.size() > 1) {
        const std::lock_guard lock(impl_->mpi);
        MPI_Group world = MPI_GROUP_NULL;
        MPI_Group subset = MPI_GROUP_NULL;
        MPI_Comm_group(MPI_COMM_WORLD, &world);
        impl_->check(MPI_Group_incl(world, static_cast<int>(ranks.size()), ranks.data(), &subset), "MPI_Group_incl");
        impl_->check(MPI_Comm_create_group(MPI_COMM_WORLD, subset, 0, &group.comm), "MPI_Comm_create_group");
        MPI_Group_free(&subset);
        MPI_Group_free(&world);
    }
    return {impl_->groups.add(std::move(group))};
}

const std::vector<int>& Transport::members(GroupHandle group) const {
    ORRERY_CHECK(group.valid() && group.index < impl_->groups.next_index(), "no such group");
    return impl_->groups[group.index].ranks;
}

void Transport::barrier() {
    MPI_Request request = MPI_REQUEST_NULL;
    {
        const std::lock_guard lock(impl_->mpi);
        impl_->check(MPI_Ibarrier(impl_->host_exchange, &request), "MPI_Ibarrier");
    }
    impl_->wait_politely(request, "MPI_Ibarrier");
}

std::vector<std::string> Transport::gather(const std::string& mine) {
    constexpr auto kLargest = static_cast<std::size_t>(std::numeric_limits<int>::max());
    ORRERY_CHECK(mine.size() <= kLargest, "too much to gather");
    const bool root = impl_->rank == 0;
    const auto size = static_cast<std::size_t>(impl_->world_size);
    const int count = static_cast<int>(mine.size());
    std::vector<int> counts(root ? size : 0);
    std::vector<int> offsets(counts.size());
    MPI_Request request = MPI_REQUEST_NULL;
    {
        const std::lock_guard lock(impl_->mpi);
        impl_->check(MPI_Igather(&count, 1, MPI_INT, counts.data(), 1, MPI_INT, 0, impl_->host_exchange, &request),
                     "MPI_Igather");
    }
    impl_->wait_politely(request, "MPI_Igather");
    std::size_t total = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
        offsets[i] = static_cast<int>(total);
        total += static_cast<std::size_t>(counts[i]);
        ORRERY_CHECK(total <= kLargest, "too much to gather");
    }
    std::string all(total, '\0');
    {
        const std::lock_guard lock(impl_->mpi);
        impl_->check(MPI_Igatherv(mine.data(), count, MPI_CHAR, all.data(), counts.data(), offsets.data(), MPI_CHAR, 0,
                                  impl_->host_exchange, &request),
                     "MPI_Igatherv");
    }
    impl_->wait_politely(request, "MPI_Igatherv");
    std::vector<std::string> parts;
    for (std::size_t i = 0; i < counts.size(); ++i) {
        parts.push_back(all.substr(static_cast<std::size_t>(offsets[i]), static_cast<std::size_t>(counts[i])));
    }
    return parts;
}

std::string Transport::broadcast(const std::string& from_rank_0) {
    ORRERY_CHECK(from_rank_0.size() <= static_cast<std::size_t>(std::numeric_limits<int>::max()),
                 "too much to broadcast");
    int count = static_cast<int>(from_rank_0.size());
    MPI_Request request = MPI_REQUEST_NULL;
    {
        const std::lock_guard lock(impl_->mpi);
        impl_->check(MPI_Ibcast(&count, 1, MPI_INT, 0, impl_->host_exchange, &request), "MPI_Ibcast");
    }
    impl_->wait_politely(request, "MPI_Ibcast");
    std::string text = impl_->rank == 0 ? from_rank_0 : std::string(static_cast<std::size_t>(count), '\0');
    {
        const std::lock_guard lock(impl_->mpi);
        impl_->check(MPI_Ibcast(text.data(), count, MPI_CHAR, 0, impl_->host_exchange, &request), "MPI_Ibcast");
    }
    impl_->wait_politely(request, "MPI_Ibcast");
    return text;
}

void Transport::offer(std::int64_t value) {
    const std::lock_guard lock(impl_->mpi);
    impl_->offered = value;
    impl_->check(
        MPI_Iallreduce(&impl_->offered, &impl_->greatest_offer, 1, MPI_INT64_T, MPI_MAX, impl_->offers, &impl_->offer),
        "MPI_Iallreduce");
}

std::optional<std::int64_t> Transport::greatest_offer() {
    const std::lock_guard lock(impl_->mpi);
    int done = 0;
    impl_->check(MPI_Test(&impl_->offer, &done, MPI_STATUS_IGNORE), "MPI_Iallreduce");
    return done != 0 ? std::optional(impl_->greatest_offer) : std::nullopt;
}

void Transport::abort(int exit_code, const std::string& message) {
    const std::string place = recorder_.place();
    recorder_.fail(exit_code);
    const bool is_first = !impl_->abort_flag.raise(exit_code).has_value();
    if (is_first && !message.empty()) {
        std::fflush(stdout);
        std::fprintf(stderr, "orrery: %s%s%s\n", message.c_str(), place.empty() ? "" : ": ", place.c_str());
        std::fflush(stderr);
    }
    if (!is_first) {
        std::this_thread::sleep_for(kAbortPatience);  // the first failing rank ends the job, with its own exit code
    }
    // The progress thread may be inside MPI. If it does not leave soon it is stuck there; the process then exits
    // without MPI, and the launcher sees a failed rank.
    const auto give_up = std::chrono::steady_clock::now() + kAbortPatience;
    while (!impl_->mpi.try_lock()) {
        if (std::chrono::steady_clock::now() > give_up) std::_Exit(exit_code);
        std::this_thread::sleep_for(kHostPollInterval);
    }
    if (impl_->world_size == 1) {  // no other rank to stop, and MPI_Abort would print a banner
        MPI_Finalize();
    } else {
        std::this_thread::sleep_for(kLastReads);
        MPI_Abort(MPI_COMM_WORLD, exit_code);
    }
    std::_Exit(exit_code);
}

}  // namespace orrery::exec
