// Heartbeats over MPI: a ring, in which each rank hears its left neighbour. Who ends a job whose ranks die is mpirun.
#include "core/error.h"
#include "exec/transport/beat_link.h"
#include "exec/transport/mpi_state.h"

namespace orrery::exec {
namespace {

class MpiBeatLink : public BeatLink {
  public:
    explicit MpiBeatLink(Transport& transport)
        : mpi_(transport.impl()),
          left_((mpi_.rank + mpi_.world_size - 1) % mpi_.world_size),
          right_((mpi_.rank + 1) % mpi_.world_size) {
        const std::lock_guard lock(mpi_.mpi);
        mpi_.check(MPI_Comm_dup(mpi_.host_exchange, &comm_), "MPI_Comm_dup");
    }
    [[nodiscard]] std::vector<int> sources() const override { return {left_}; }
    bool send(const Beat& beat) override;
    [[nodiscard]] std::optional<Arrival> receive() override;
    [[nodiscard]] std::vector<pollfd> files() const override { return {}; }
    [[nodiscard]] bool shows_ends() const override { return false; }
    void close() override;

  private:
    Transport::Impl& mpi_;
    const int left_, right_;
    MPI_Comm comm_ = MPI_COMM_NULL;
    MPI_Request sending_ = MPI_REQUEST_NULL, receiving_ = MPI_REQUEST_NULL;
    Beat sent_, received_;
    bool left_has_finished_ = false;
};

bool MpiBeatLink::send(const Beat& beat) {
    const std::lock_guard lock(mpi_.mpi);
    int done = 0;
    mpi_.check(MPI_Test(&sending_, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done == 0) return false;
    sent_ = beat;
    mpi_.check(MPI_Isend(&sent_, static_cast<int>(sizeof sent_), MPI_BYTE, right_, 0, comm_, &sending_), "MPI_Isend");
    return true;
}

std::optional<BeatLink::Arrival> MpiBeatLink::receive() {
    if (left_has_finished_) return {};
    const std::lock_guard lock(mpi_.mpi);
    if (receiving_ == MPI_REQUEST_NULL) {
        mpi_.check(MPI_Irecv(&received_, static_cast<int>(sizeof received_), MPI_BYTE, left_, 0, comm_, &receiving_),
                   "MPI_Irecv");
    }
    int done = 0;
    mpi_.check(MPI_Test(&receiving_, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done == 0) return {};
    left_has_finished_ = received_.kind == BeatKind::last;
    return Arrival{left_, received_};
}

void MpiBeatLink::close() {
    mpi_.wait_politely(sending_, "MPI_Isend");
    const std::lock_guard lock(mpi_.mpi);
    MPI_Comm_free(&comm_);
}

}  // namespace

std::unique_ptr<BeatLink> make_beat_link(Transport& transport) {
    return std::make_unique<MpiBeatLink>(transport);
}

}  // namespace orrery::exec
