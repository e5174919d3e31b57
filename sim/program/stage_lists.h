// Private to the lowerings: the segment lists of one rank class, and the bodies they call.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sim/program/access_order.h"
#include "sim/program/body_builder.h"
#include "sim/program/layer_cache.h"
#include "sim/program/rank_layout.h"
#include "sim/program/schedule.h"

namespace orrery::program {

/// The bodies of a Program. Equal bodies are stored once and shared by all layers and stages.
class BodyLibrary {
  public:
    explicit BodyLibrary(Program& program, LayerCache* cache = nullptr) : program_(program), cache_(cache) {}
    [[nodiscard]] BodyId pass(const LoweredLayer& layer, Phase phase, const std::vector<BucketCut>& buckets);
    /// Adds the body unless an equal one exists, and returns its id.
    BodyId add(Body body) { return add(std::move(body), nullptr); }
    /// The instructions [first, end) of the body as a body of their own.
    BodyId part(BodyId whole, InstructionIndex first, InstructionIndex end);
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
    /// `order`: of the body, if it is known.
    BodyId add(Body body, const BodyOrder* order);

    Program& program_;
    LayerCache* cache_ = nullptr;
    std::vector<Known> known_;
    std::multimap<std::uint64_t, BodyId> by_hash_;
    std::deque<BodyOrder> orders_;  // by BodyId
    std::map<std::pair<BodyId, std::array<bool, 5>>, BodyMemory>
        memories_;  // by body and the call's properties that matter
};

inline constexpr SegmentListId kNoList = -1;

/// The list of a transfer, and the pipeline stream that it uses.
struct Transfer {
    SegmentListId list = kNoList;
    Stream stream{};
};
/// The stream of a kind of transfer; `up`: activations go from pipeline rank r to r - 1.
[[nodiscard]] constexpr Stream stream_of(ActionKind transfer, bool up) {
    const auto first = up ? Stream::pp_up_recv_forward : Stream::pp_recv_forward;
    // Streams and actions list the four kinds in the same order.
    const int kind = static_cast<int>(transfer) - static_cast<int>(ActionKind::recv_forward);
    return static_cast<Stream>(static_cast<int>(first) + kind);
}
static_assert(stream_of(ActionKind::send_forward, false) == Stream::pp_send_forward);
static_assert(stream_of(ActionKind::recv_backward, true) == Stream::pp_up_recv_backward);
static_assert(stream_of(ActionKind::send_backward, true) == Stream::pp_up_send_backward);

/// The lists of one chunk. `_first` and `_last` are those of the step's first forward and last backward.
struct ChunkLists {
    SegmentListId forward = kNoList, forward_first = kNoList;
    SegmentListId backward = kNoList, backward_last = kNoList;                // whole backward
    SegmentListId backward_input = kNoList;                                   // split backward: I
    SegmentListId backward_weight = kNoList, backward_weight_last = kNoList;  // split backward: W
    Transfer recv_forward, send_forward, recv_backward, send_backward;
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
    /// Then whole backwards, too, write the input's gradient to a separate buffer.
    [[nodiscard]] bool splits_backward() const { return backward_input != kNoList; }
};

struct StageLists {
    IndexedVector<ChunkIndex, ChunkLists> chunks;
    SegmentListId sync = kNoList, optimizer = kNoList;
    bool gathers_units = false;
    /// The gradients are checked after the update. The next backward waits for the check, because rolling an update
    /// back needs its gradients.
    bool checks_update = false;
    IndexedVector<SegmentListId, ListOrder> orders;  // of all lists
    /// The two passes of a block take turns (Parallelism::overlaps_experts).
    bool takes_turns = false;
    std::map<SegmentListId, std::vector<SegmentListId>> parts;  // of the lists of passes that take turns
};

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
    /// Adds a pass over the layer, which reduces these buckets.
    void pass(const LaidLayer& layer, Phase phase, const std::vector<BucketCut>& buckets = {});
    /// Adds the pass that makes fp8 copies of the layer's weights, if it has any.
    void prepare(const LaidLayer& layer) {
        if (!layer.lowered->prepare.empty()) pass(layer, Phase::prepare);
    }
    /// Adds the copies of reduced buckets from the staging buffers into the gradients.
    void copy_back(Phase phase, const std::vector<BucketCut>& buckets);
    [[nodiscard]] bool is_empty() const { return list_.empty(); }
    /// Adds the list to the class. The builder is empty afterwards.
    [[nodiscard]] SegmentListId finish();

  private:
    RankClass& result_;
    BodyLibrary& bodies_;
    IndexedVector<SegmentListId, ListOrder>& orders_;
    IndexedVector<SegmentIndex, ListedSegment> list_;
};

/// What the lists of a rank class are made from, and where they go.
struct ListParts {
    const Program& program;
    const RankLayout& layout;
    BodyLibrary& bodies;
    RankClass& result;
    StageLists& lists;
    const Plan& plan = *program.plan;

    [[nodiscard]] const Precision& precision() const { return plan.training.precision; }
    [[nodiscard]] ListBuilder new_list() const { return {result, bodies, lists.orders}; }
    /// ZeRO-1 and 2: the parameters of buckets are gathered during the next forward pass, not after the update.
    [[nodiscard]] bool gathers_buckets_ahead() const {
        return layout.rules.gathers_buckets() && plan.implementation.data_parallel.gathers_parameters_ahead;
    }
    /// The parameter with which the bucket begins.
    [[nodiscard]] const Parameter& first_of(const Bucket& bucket) const;
    /// ZeRO-1 and 2: adds the all-gather of a bucket's parameters.
    void gather_bucket(ListBuilder& list, const Bucket& bucket) const;
};

/// Makes all lists of the class, whose tasks are `order`.
void make_lists(const ListParts& parts, const ScheduleShape& shape, const std::vector<ComputeTask>& order);
/// Cuts the lists of passes that take turns where a pass waits for its tokens (StageLists::parts).
void cut_lists(const ListParts& parts, const std::vector<ComputeTask>& order);
/// Makes the list of the gradient reductions after the last backward of a step: buckets that were not reduced inside
/// it, sums over tensor-parallel ranks, and the sum of the two copies of a tied embedding.
void list_gradient_sync(const ListParts& parts);
/// Makes the optimizer's list: gradient norm or overflow check, the update, and the gather of updated parameters from
/// other ranks or their copy from the host.
void list_optimizer(const ListParts& parts);

/// Offset of the gradient norm in Space::scalars, after the loss.
inline constexpr std::int64_t kNormOffset = 8;

}  // namespace orrery::program
