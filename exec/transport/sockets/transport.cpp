// The Transport of builds without MPI. Ranks connect over TCP to rank 0, through which all host exchanges go. Without a
// launcher the world is this process.
#include "exec/transport/transport.h"

#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <thread>

#include "core/error.h"
#include "exec/faults/injection.h"
#include "exec/transport/sockets/rendezvous.h"
#include "exec/transport/sockets/socket_state.h"

namespace orrery::exec {
namespace {

// How long a rank that has lost another one waits to be ended by whoever watches the ranks and can say why: the
// launcher or the heartbeats.
constexpr std::chrono::seconds kLauncherPatience{10}, kHeartbeatPatience{3};

/// Marks that this rank waits for others, for whoever watches it.
class Waiting {
  public:
    explicit Waiting(FlightRecorder& recorder) : recorder_(recorder) { recorder_.exchange(true); }
    ~Waiting() { recorder_.exchange(false); }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

  private:
    FlightRecorder& recorder_;
};

}  // namespace

int Transport::Impl::socket_to(int other, Channel channel) const {
    const std::vector<FileDescriptor>& all = connections[channel];
    return (rank == 0 ? all[static_cast<std::size_t>(other)] : all.front()).get();
}

void Transport::Impl::lose(int other) const {
    if (recorder.is_watched()) {
        std::this_thread::sleep_for(kLauncherPatience);
    } else if (is_heard) {
        std::this_thread::sleep_for(kHeartbeatPatience);
    }
    throw JobError("rank " + std::to_string(other) + " has ended");
}

void Transport::Impl::send_bytes(int other, Channel channel, const void* data, std::size_t bytes) const {
    const char* at = static_cast<const char*>(data);
    while (bytes > 0) {
        const ssize_t sent = ::send(socket_to(other, channel), at, bytes, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) lose(other);
        at += sent;
        bytes -= static_cast<std::size_t>(sent);
    }
}

void Transport::Impl::receive_bytes(int other, Channel channel, void* data, std::size_t bytes) const {
    char* at = static_cast<char*>(data);
    while (bytes > 0) {
        const ssize_t received = ::recv(socket_to(other, channel), at, bytes, 0);
        if (received < 0 && errno == EINTR) continue;
        if (received <= 0) lose(other);
        at += received;
        bytes -= static_cast<std::size_t>(received);
    }
}

void Transport::Impl::send_text(int other, Channel channel, const std::string& text) const {
    const std::uint64_t size = text.size();
    send_bytes(other, channel, &size, sizeof size);
    send_bytes(other, channel, text.data(), text.size());
}

std::string Transport::Impl::receive_text(int other, Channel channel) const {
    std::uint64_t size = 0;
    receive_bytes(other, channel, &size, sizeof size);
    ORRERY_CHECK(size <= std::uint64_t{1} << 31U, "a message of another rank is too long");
    std::string text(size, '\0');
    receive_bytes(other, channel, text.data(), text.size());
    return text;
}

void Transport::Impl::connect() {
    const MeetingPoint at = meeting_point(world_size);
    const int channels = static_cast<int>(kChannels);
    if (rank == 0) {
        std::vector<std::vector<FileDescriptor>> all = meet_all(at, world_size, channels);
        for (int other = 1; other < world_size; ++other) {
            beats.add(other, std::move(all[kBeats][static_cast<std::size_t>(other)]));
        }
        for (const Channel channel : {kExchanges, kOffers}) connections[channel] = std::move(all[channel]);
    } else {
        std::vector<FileDescriptor> mine = join(at, rank, channels);
        for (const Channel channel : {kExchanges, kOffers}) connections[channel].push_back(std::move(mine[channel]));
        beats.add(0, std::move(mine[kBeats]));
    }
}

std::vector<std::string> Transport::Impl::gather(Channel channel, const std::string& mine) const {
    if (world_size == 1) return {mine};
    if (rank != 0) {
        send_text(0, channel, mine);
        return {};
    }
    std::vector<std::string> all{mine};
    for (int other = 1; other < world_size; ++other) all.push_back(receive_text(other, channel));
    return all;
}

std::string Transport::Impl::broadcast(Channel channel, const std::string& from_rank_0) const {
    if (rank != 0) return receive_text(0, channel);
    for (int other = 1; other < world_size; ++other) send_text(other, channel, from_rank_0);
    return from_rank_0;
}

Transport::Transport() : impl_(std::make_unique<Impl>(recorder_)) {
    impl_->world_size = launcher_variable("WORLD_SIZE", 1, 1);
    impl_->rank = launcher_variable("RANK", 0, 0);
    impl_->ranks_on_host = launcher_variable("LOCAL_WORLD_SIZE", 1, impl_->world_size);
    if (impl_->rank >= impl_->world_size) {
        throw InputError("RANK: got " + std::to_string(impl_->rank) + "; allowed: less than WORLD_SIZE");
    }
    strike_at_init(impl_->rank);
    if (impl_->world_size > 1) {
        const Waiting waiting(recorder_);
        impl_->connect();
        impl_->abort_flag.share(*this);
    }
    recorder_.note_signals();
    recorder_.enter(RankStage::preparing);
}

Transport::~Transport() {
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
    const Waiting waiting(recorder_);
    return impl_->gather(kExchanges, mine);
}

std::string Transport::broadcast(const std::string& from_rank_0) {
    const Waiting waiting(recorder_);
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
    impl_->aborting.lock();  // another thread of this rank may be about to end it
    const std::string place = recorder_.place();
    recorder_.fail(exit_code);
    const std::optional<int> first = impl_->abort_flag.raise(exit_code);
    if (!first.has_value() && !message.empty()) {
        std::fflush(stdout);
        std::fprintf(stderr, "orrery: %s%s%s\n", message.c_str(), place.empty() ? "" : ": ", place.c_str());
        std::fflush(stderr);
    }
    impl_->beats.send_last_words(first.value_or(exit_code));
    std::_Exit(first.value_or(exit_code));
}

}  // namespace orrery::exec
