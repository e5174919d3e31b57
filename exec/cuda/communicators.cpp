#include "exec/cuda/communicators.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <future>
#include <map>
#include <numeric>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "core/error.h"
#include "exec/cuda/check.h"
#include "exec/cuda/communicate.h"
#include "exec/cuda/nccl.h"

namespace orrery::exec {

using program::Stream;

struct Communicators::Impl {
    Transport& transport;
    std::unique_ptr<Nccl> nccl;
    std::vector<ncclComm_t> made;  // of all ranks first, then its parts
    std::map<std::vector<int>, ncclComm_t> by_members;
    IndexedVector<GroupIndex, NcclGroup> groups;
    program::PerStream<NcclGroup> links{};  // of pipeline streams: the sender and the receiver
    int exceptions = std::uncaught_exceptions();

    void make_world();
    void make_parts(const std::vector<std::vector<int>>& of_ranks, bool shares_buffers);
    void make_links(const program::PerStream<int>& peers);
    ncclComm_t split(int color, int key, bool shares_buffers);
    void connect(cudaStream_t stream, float* scratch);
    void wait_for(cudaEvent_t done) const;
    void check_health() const;
    void keep(ncclComm_t comm, const std::vector<int>& ranks);
    void abort_all();
};

namespace {

/// "0,1,2".
std::string text_of(const std::vector<int>& ranks) {
    std::string text;
    for (const int rank : ranks) text += std::to_string(rank) + ",";
    return text;
}
std::vector<int> ranks_of(const std::string& text) {
    std::vector<int> ranks;
    std::istringstream numbers(text);
    for (std::string one; std::getline(numbers, one, ',');) ranks.push_back(std::stoi(one));
    return ranks;
}

/// On every rank the texts of all ranks, which hold no line break.
std::vector<std::string> all_of(Transport& transport, const std::string& mine) {
    std::string all;
    for (const std::string& one : transport.gather(mine)) all += one + "\n";
    std::istringstream lines(transport.broadcast(all));
    std::vector<std::string> result;
    for (std::string line; std::getline(lines, line);) result.push_back(line);
    return result;
}

/// One direction of transfers between two pipeline ranks.
struct Link {
    program::GroupAxis axis{};
    int sender = -1, receiver = -1;
    friend bool operator<(const Link& a, const Link& b) {
        return std::tie(a.axis, a.sender, a.receiver) < std::tie(b.axis, b.sender, b.receiver);
    }
};

/// On every rank the links of all ranks, in the same order.
std::vector<Link> all_links(Transport& transport, const program::PerStream<int>& peers) {
    std::string mine;
    for (const Stream stream : program::kStreams) {
        if (!is_pipeline(stream) || !is_send(stream) || peers[stream] < 0) continue;
        mine += text_of({static_cast<int>(program::axis_of(stream)), transport.rank(), peers[stream]});
    }
    std::vector<Link> links;
    for (const std::string& of_rank : all_of(transport, mine)) {
        const std::vector<int> numbers = ranks_of(of_rank);
        for (std::size_t i = 0; i + 2 < numbers.size(); i += 3) {
            links.push_back({static_cast<program::GroupAxis>(numbers[i]), numbers[i + 1], numbers[i + 2]});
        }
    }
    std::sort(links.begin(), links.end());
    return links;
}

/// Removes links of which no two have a common rank, as many as come first.
std::vector<Link> take_disjoint(std::vector<Link>& links) {
    std::vector<Link> taken, left;
    std::set<int> ranks;
    for (const Link& one : links) {
        const bool is_free = !ranks.contains(one.sender) && !ranks.contains(one.receiver);
        (is_free ? taken : left).push_back(one);
        if (is_free) ranks.insert({one.sender, one.receiver});
    }
    links = std::move(left);
    return taken;
}

}  // namespace

void Communicators::Impl::keep(ncclComm_t comm, const std::vector<int>& ranks) {
    made.push_back(comm);
    by_members[ranks] = comm;
}

/// The communicator of all ranks.
void Communicators::Impl::make_world() {
    nccl = std::make_unique<Nccl>();
    ncclUniqueId id{};
    if (transport.rank() == 0) nccl->check(nccl->get_id(&id), "ncclGetUniqueId");
    const std::string bytes = transport.broadcast(std::string(id.internal, sizeof id.internal));
    std::memcpy(id.internal, bytes.data(), sizeof id.internal);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.splitShare = 1;
    ncclComm_t comm = nullptr;
    nccl->check(nccl->init_rank(&comm, transport.world_size(), id, transport.rank(), &config),
                "ncclCommInitRankConfig");
    std::vector<int> ranks(static_cast<std::size_t>(transport.world_size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    keep(comm, ranks);
    transport.recorder().count_instruction();
}

/// The part of the communicator of all ranks for those with this color, in the order of the keys; null for no color.
/// Collective over all ranks.
ncclComm_t Communicators::Impl::split(int color, int key, bool shares_buffers) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.splitShare = shares_buffers ? 1 : 0;
    ncclComm_t part = nullptr;
    nccl->check(nccl->split(made.front(), color, key, &part, &config), "ncclCommSplit");
    transport.recorder().count_instruction();
    return part;
}

/// The communicators of an axis, whose groups have no common rank. Groups that have one already are left out.
void Communicators::Impl::make_parts(const std::vector<std::vector<int>>& of_ranks, bool shares_buffers) {
    const std::vector<int>& mine = of_ranks[static_cast<std::size_t>(transport.rank())];
    const bool is_new = mine.size() > 1 && !by_members.contains(mine);
    // All ranks take part in a split, those without a new group as members of no part. Whether any has one is the same
    // question on all of them.
    if (transport.first_of(is_new ? "new" : "").empty()) return;
    const int color = is_new ? mine.front() : NCCL_SPLIT_NOCOLOR;
    const auto key = static_cast<int>(std::find(mine.begin(), mine.end(), transport.rank()) - mine.begin());
    const ncclComm_t part = split(color, key, shares_buffers);
    if (is_new) keep(part, mine);
}

/// The communicators of pipeline transfers. Each of several splits makes those of pairs without a common rank.
void Communicators::Impl::make_links(const program::PerStream<int>& peers) {
    const int me = transport.rank();
    std::vector<Link> links_of_all = all_links(transport, peers);
    while (!links_of_all.empty()) {
        const std::vector<Link> now = take_disjoint(links_of_all);
        const auto mine = std::find_if(now.begin(), now.end(),
                                       [&](const Link& one) { return one.sender == me || one.receiver == me; });
        if (mine == now.end()) {
            split(NCCL_SPLIT_NOCOLOR, 0, false);
            continue;
        }
        const bool sends = mine->sender == me;
        const ncclComm_t comm = split(mine->sender, sends ? 0 : 1, false);
        made.push_back(comm);
        for (const Stream stream : program::kStreams) {
            if (is_pipeline(stream) && program::axis_of(stream) == mine->axis && is_send(stream) == sends) {
                links[stream] = {.comm = comm, .members = 2, .me = sends ? 0 : 1};
            }
        }
    }
}

/// Waits by asking, because a communicator that has failed never completes its operation.
void Communicators::Impl::wait_for(cudaEvent_t done) const {
    constexpr std::chrono::microseconds kPollInterval{100};
    for (cudaError_t state = cudaErrorNotReady; state == cudaErrorNotReady;) {
        check_health();
        state = cudaEventQuery(done);
        if (state != cudaErrorNotReady) check_cuda(state, "cudaEventQuery");
        std::this_thread::sleep_for(kPollInterval);
    }
    static_cast<void>(cudaGetLastError());  // of the queries that were not ready
}

/// Runs an operation on every communicator, in the order in which they were made, which also shows that each works.
void Communicators::Impl::connect(cudaStream_t stream, float* scratch) {
    cudaEvent_t done = nullptr;
    check_cuda(cudaEventCreate(&done), "cudaEventCreate");
    for (const ncclComm_t comm : made) {
        const auto link =
            std::find_if(links.begin(), links.end(), [&](const NcclGroup& one) { return one.comm == comm; });
        if (link == links.end()) {
            nccl->check(nccl->all_reduce(scratch, scratch, 1, ncclFloat32, ncclSum, comm, stream), "ncclAllReduce");
        } else if (link->me == 0) {
            nccl->check(nccl->send(scratch, 1, ncclFloat32, 1, comm, stream), "ncclSend");
        } else {
            nccl->check(nccl->receive(scratch, 1, ncclFloat32, 0, comm, stream), "ncclRecv");
        }
        check_cuda(cudaEventRecord(done, stream), "cudaEventRecord");
        wait_for(done);
        transport.recorder().count_instruction();
    }
    check_cuda(cudaEventDestroy(done), "cudaEventDestroy");
}

void Communicators::Impl::check_health() const {
    for (const ncclComm_t comm : made) {
        ncclResult_t state = ncclSuccess;
        nccl->check(nccl->async_error(comm, &state), "ncclCommGetAsyncError");
        if (state != ncclInProgress) nccl->check(state, "NCCL");
    }
}

Communicators::Communicators(const Partners& partners, Transport& transport, kernels::cuda::StreamHandle stream,
                             float* scratch)
    : impl_(new Impl{.transport = transport}) {
    const AxisMembers& members = partners.members;
    program::PerAxis<std::vector<std::string>> texts;  // by rank: its group on the axis, "" if that has no other member
    for (const program::GroupAxis axis : program::kAxes) {
        texts[axis] = all_of(transport, members[axis].size() > 1 ? text_of(members[axis]) : "");
    }
    const bool any_group = std::any_of(texts.begin(), texts.end(), [](const std::vector<std::string>& of_axis) {
        return std::any_of(of_axis.begin(), of_axis.end(), [](const std::string& one) { return !one.empty(); });
    });
    const bool transfers = std::any_of(partners.peers.begin(), partners.peers.end(), [](int one) { return one >= 0; });
    const bool any = any_group || !transport.first_of(transfers ? "transfers" : "").empty();
    if (any) impl_->make_world();
    const auto make_parts = [&](program::GroupAxis axis, bool shares_buffers) {
        std::vector<std::vector<int>> of_ranks;
        for (const std::string& one : texts[axis]) of_ranks.push_back(ranks_of(one));
        if (any) impl_->make_parts(of_ranks, shares_buffers);
    };
    make_parts(program::GroupAxis::pipeline, false);  // first, since axes with the same members share a communicator
    for (const program::GroupAxis axis : program::kAxes) {
        make_parts(axis, true);
        const GroupIndex group = impl_->groups.add({});
        if (members[axis].empty()) continue;
        groups_[axis].index = group;
        if (members[axis].size() < 2) continue;
        const auto me = std::find(members[axis].begin(), members[axis].end(), transport.rank());
        impl_->groups.back() = {.comm = impl_->by_members.at(members[axis]),
                                .members = static_cast<int>(members[axis].size()),
                                .me = static_cast<int>(me - members[axis].begin())};
    }
    if (!any) return;
    impl_->make_links(partners.peers);
    impl_->connect(static_cast<cudaStream_t>(stream.stream), scratch);
}

/// Ends communication that other ranks will never complete. NCCL may itself wait forever here, so a thread of its own
/// does it, which the process does not wait for long: it is about to end.
void Communicators::Impl::abort_all() {
    constexpr std::chrono::seconds kPatience{5};
    std::promise<void> done;
    std::future<void> ended = done.get_future();
    std::thread([comms = made, abort = nccl->abort, done = std::move(done)]() mutable {
        for (const ncclComm_t comm : comms) abort(comm);
        done.set_value();
    }).detach();
    static_cast<void>(ended.wait_for(kPatience));
}

Communicators::~Communicators() {
    if (impl_->made.empty()) return;
    if (std::uncaught_exceptions() > impl_->exceptions) {
        impl_->abort_all();
        return;
    }
    // Parts before the whole. All ranks come here, since each has run the whole Program.
    for (const ncclComm_t comm : impl_->made) impl_->nccl->finalize(comm);
    for (auto comm = impl_->made.rbegin(); comm != impl_->made.rend(); ++comm) impl_->nccl->destroy(*comm);
}

std::int64_t Communicators::communicate(kernels::cuda::StreamHandle stream, Stream on, const Operation& operation) {
    const NcclGroup& group = is_pipeline(on) ? impl_->links[on] : impl_->groups[operation.group.index];
    return queue_communication(impl_->nccl.get(), group, stream, operation);
}

void Communicators::check_health() const {
    impl_->check_health();
}

}  // namespace orrery::exec
