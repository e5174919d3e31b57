// Private to the lowerings: the segment lists of one rank class, and the bodies they call.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sim/program/access_order.h"
#include "sim/program/body_builder.h"
#include "sim/program/rank_layout.h"

namespace orrery::program {

/// The bodies of a Program. Equal bodies are stored once and shared by all layers and stages.
class BodyLibrary {
  public:
    explicit BodyLibrary(Program& program) : program_(program) {}
    [[nodiscard]] BodyId pass(const LoweredLayer& layer, Phase phase, const std::vector<BucketCut>& buckets);
    /// Adds the body unless an equal one exists, and returns its id.
    BodyId add(Body body);
    [[nodiscard]] const Body& body(BodyId id) const { return program_.bodies[id]; }
    // Properties that follow from a body alone, computed once.
    [[nodiscard]] const BodyOrder& order(BodyId id) const { return orders_[id.position()]; }
    [[nodiscard]] const BodyMemory& memory(const Segment& call);

  private:
    struct Known {
        const LoweredLayer* lowered = nullptr;
        Phase phase{};
        std::vector<BucketCut> buckets;
        BodyId body = 0;
    };
    Program& program_;
    std::vector<Known> known_;
    std::multimap<std::uint64_t, BodyId> by_hash_;
    std::deque<BodyOrder> orders_;  // by BodyId
    std::map<std::pair<BodyId, std::array<bool, 5>>, BodyMemory>
        memories_;  // by body and the call's properties that matter
};

inline constexpr SegmentListId kNoList = -1;

/// The lists of one chunk. `_first` and `_last` are those of the step's first forward and last backward.
struct ChunkLists {
    SegmentListId forward = kNoList, forward_first = kNoList;
    SegmentListId backward = kNoList, backward_last = kNoList;                // whole backward
    SegmentListId backward_input = kNoList;                                   // split backward: I
    SegmentListId backward_weight = kNoList, backward_weight_last = kNoList;  // split backward: W
    bool splits_backward = false;  // then whole backwards, too, write the input's gradient to a separate buffer
    SegmentListId recv_forward = kNoList, send_forward = kNoList;
    SegmentListId recv_backward = kNoList, send_backward = kNoList;
    bool receives = false, sends = false;  // the chunk receives activations from, or sends them to, other ranks
    bool output_stays = false;             // the next virtual stage is on this rank
    bool input_stays = false;              // the previous virtual stage is on this rank
    bool weight_reads_input = false;       // split backward: W reads the received input
    bool weight_reads_gradient = false;    // split backward: W reads the received gradient
    bool has_hidden_input = false;         // false: the embedding's chunk
    bool output_goes_everywhere = false;   // vocabulary parallelism: the last stage, whose output all ranks receive
    bool is_vocabulary = false;            // kOutputChunk or kInputChunk
    bool is_root = false;                  // this rank is the root of the vocabulary pass
    bool uses_side = false;                // the vocabulary pass uses Stream::side
    bool scatters_transfers = false;       // transfers are sharded over tp and gathered by the receivers
    Stream recv_forward_stream{}, send_forward_stream{}, recv_backward_stream{}, send_backward_stream{};
};

struct StageLists {
    IndexedVector<ChunkIndex, ChunkLists> chunks;
    SegmentListId sync = kNoList, optimizer = kNoList;
    bool gathers_units = false;
    /// The gradients are checked after the update. The next backward waits for the check, because rolling an update
    /// back needs its gradients.
    bool checks_update = false;
    IndexedVector<SegmentListId, ListOrder> orders;  // of all lists
};

[[nodiscard]] StageLists make_lists(const Program& program, const ScheduleShape& shape, RankLayout& layout,
                                    BodyLibrary& bodies, RankClass& result);

/// Builds the list of the gradient reductions after the last backward of a step: buckets that were not reduced inside
/// it, sums over tensor-parallel ranks, and the sum of the two copies of a tied embedding.
void list_gradient_sync(const Program& program, const RankLayout& layout, BodyLibrary& bodies, RankClass& result,
                        StageLists& lists);
/// Builds the optimizer's list: gradient norm or overflow check, the update, and the gather of updated parameters from
/// other ranks or their copy from the host.
void list_optimizer(const Program& program, const RankLayout& layout, BodyLibrary& bodies, RankClass& result,
                    StageLists& lists);

/// Whether a send and the next receive are one fused call. Never with a split backward, whose orders do not pair them:
/// waiting for a send whose receive the neighbour posts later would deadlock.
[[nodiscard]] bool fuses_transfers(const Plan& plan);

/// ZeRO-1 and 2: the all-gather of one bucket's parameters; `index` is the bucket's index in RankClass::buckets.
[[nodiscard]] Segment gather_bucket_segment(const RankLayout& layout, const Plan& plan, BodyLibrary& bodies,
                                            const RankClass& ranks, std::int64_t index);
/// Whether an fp32 copy of the parameters is kept; shards that are stored in fp32 need none.
[[nodiscard]] bool keeps_master(const Plan& plan, const RankLayout& layout);
/// Offset of the gradient norm in Space::scalars, after the loss.
inline constexpr std::int64_t kNormOffset = 8;

/// Builds one list of a class.
class ListBuilder {
  public:
    ListBuilder(RankClass& result, BodyLibrary& bodies, IndexedVector<SegmentListId, ListOrder>& orders)
        : result_(result), bodies_(bodies), orders_(orders) {}
    /// `after_all`: the segment waits for everything before it in the list, not only for conflicting uses of memory.
    void add(const Segment& segment, bool after_all = false) {
        list_.push_back({segment, &bodies_.order(segment.body), after_all});
    }
    /// Adds a call of the body, with the bases of `segment`, unless the body is empty.
    void add(Segment segment, Body body, bool after_all = false) {
        if (body.instructions.empty()) return;
        segment.body = bodies_.add(std::move(body));
        add(segment, after_all);
    }
    [[nodiscard]] bool is_empty() const { return list_.empty(); }
    [[nodiscard]] SegmentListId finish();

  private:
    RankClass& result_;
    BodyLibrary& bodies_;
    IndexedVector<SegmentListId, ListOrder>& orders_;
    IndexedVector<SegmentIndex, ListedSegment> list_;
};

}  // namespace orrery::program
