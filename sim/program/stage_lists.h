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

/// Bodies are shared by all layers and stages that need the same one: two that are equal are one.
class BodyLibrary {
  public:
    explicit BodyLibrary(Program& program) : program_(program) {}
    [[nodiscard]] BodyId pass(const LayerForm& form, Phase phase, const std::vector<BucketCut>& buckets);
    /// The number of the body; bodies are numbered as they first appear.
    BodyId add(Body body);
    [[nodiscard]] const Body& body(BodyId id) const { return program_.bodies[id]; }
    // What follows from a body alone, worked out once.
    [[nodiscard]] const BodyOrder& order(BodyId id) const { return orders_[id.position()]; }
    [[nodiscard]] const BodyMemory& memory(const Segment& call);

  private:
    struct Known {
        const LayerForm* form = nullptr;
        Phase phase{};
        std::vector<BucketCut> buckets;
        BodyId body = 0;
    };
    Program& program_;
    std::vector<Known> known_;
    std::multimap<std::uint64_t, BodyId> by_hash_;
    std::deque<BodyOrder> orders_;                                           // by BodyId
    std::map<std::pair<BodyId, std::array<bool, 5>>, BodyMemory> memories_;  // by what of a call matters
};

inline constexpr SegmentListId kNoList = -1;

/// The lists of one chunk. `first` and `last`: of the step, where they differ from the others.
struct ChunkLists {
    SegmentListId forward = kNoList, forward_first = kNoList;
    SegmentListId backward = kNoList, backward_last = kNoList;  // whole, or
    SegmentListId backward_input = kNoList;                     //   split in two
    SegmentListId backward_weight = kNoList, backward_weight_last = kNoList;
    bool splits_backward = false;  // then a whole backward leaves its gradient in another buffer than it came in
    SegmentListId recv_forward = kNoList, send_forward = kNoList;
    SegmentListId recv_backward = kNoList, send_backward = kNoList;
    bool receives = false, sends = false;  // activations, from and to other ranks
    bool output_stays = false;             // the next virtual stage is on this rank
    bool input_stays = false;              // the one before is
    bool weight_reads_input = false;       // split: W needs the received input
    bool weight_reads_gradient = false;    //   and the received gradient
    bool has_hidden_input = false;         // not the embedding's chunk
    bool output_goes_everywhere = false;   // the last stage, whose output the vocabulary passes take
    bool is_vocabulary = false;            // kOutputChunk, kInputChunk
    bool is_root = false;                  // of the vocabulary pass
    bool uses_side = false;                // something of the vocabulary pass runs beside the computation
    bool scatters_transfers = false;       // they are cut over tp and gathered where they arrive
    Stream recv_forward_stream{}, send_forward_stream{}, recv_backward_stream{}, send_backward_stream{};
};

struct StageLists {
    IndexedVector<ChunkIndex, ChunkLists> chunks;
    SegmentListId sync = kNoList, optimizer = kNoList;
    bool gathers_units = false;
    /// The update is checked after it, and gradients of one that is taken back must still be there.
    bool checks_update = false;
    IndexedVector<SegmentListId, ListOrder> orders;  // of all lists
};

[[nodiscard]] StageLists make_lists(const Program& program, const ScheduleShape& shape, RankLayout& layout,
                                    BodyLibrary& bodies, RankClass& result);

/// What is reduced once a step, after the last backward: buckets that were not reduced inside it, sums over
/// tensor-parallel ranks, the two copies of a tied embedding.
void list_gradient_sync(const Program& program, const RankLayout& layout, BodyLibrary& bodies, RankClass& result,
                        StageLists& lists);
/// Norm and overflow check, the update, and what brings it to the other ranks or back from the host.
void list_optimizer(const Program& program, const RankLayout& layout, BodyLibrary& bodies, RankClass& result,
                    StageLists& lists);

/// Whether a send and the next receive are one fused call. It exists where each rank's order pairs them: elsewhere,
/// waiting for a send whose receive the neighbour posts later would not end.
[[nodiscard]] bool fuses_transfers(const Plan& plan);

/// ZeRO-1 and 2: the all-gather of one bucket's parameters; `index` in the class's buckets.
[[nodiscard]] Segment gather_bucket_segment(const RankLayout& layout, const Plan& plan, BodyLibrary& bodies,
                                            const RankClass& ranks, std::int64_t index);
/// Whether an fp32 copy is kept beside the parameters; shards that are fp32 themselves need none.
[[nodiscard]] bool keeps_master(const Plan& plan, const RankLayout& layout);
/// In Space::scalars, behind the loss.
inline constexpr std::int64_t kNormOffset = 8;
[[nodiscard]] models::SlotDecl flat_slot(const std::string& name, models::SlotRole role, DType dtype,
                                         std::int64_t elements);
[[nodiscard]] Slot slot_at(Space space, models::SlotDecl decl, std::int64_t offset = 0,
                           ParameterRange range = ParameterRange::dense);

/// Builds one list of a class.
class ListBuilder {
  public:
    ListBuilder(RankClass& result, BodyLibrary& bodies, IndexedVector<SegmentListId, ListOrder>& orders)
        : result_(result), bodies_(bodies), orders_(orders) {}
    /// `after_all`: it waits for everything before it in the list, else for what its use of memory asks.
    void add(const Segment& segment, bool after_all = false) {
        list_.push_back({segment, &bodies_.order(segment.body), after_all});
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
