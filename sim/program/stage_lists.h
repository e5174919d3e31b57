// Private to the lowerings: the segment lists of one rank class, what each does to the buffers that outlive an action,
// and the bodies they call.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sim/program/body_builder.h"
#include "sim/program/buffer_tracker.h"
#include "sim/program/rank_layout.h"

namespace orrery::program {

/// Bodies are shared by all layers and stages that need the same one.
class BodyLibrary {
  public:
    explicit BodyLibrary(Program& program) : program_(program) {}
    [[nodiscard]] BodyId pass(const LayerForm& form, Phase phase, const std::vector<BucketCut>& buckets);
    BodyId add(Body body);
    [[nodiscard]] const Body& body(BodyId id) const { return program_.bodies[static_cast<std::size_t>(id)]; }

  private:
    struct Known {
        const LayerForm* form = nullptr;
        Phase phase{};
        std::vector<BucketCut> buckets;
        BodyId body = 0;
    };
    Program& program_;
    std::vector<Known> known_;
};

/// A list, and its accesses to what other actions use too.
struct ListedPass {
    SegmentListId list = -1;
    AccessList shared{};
    [[nodiscard]] bool exists() const { return list >= 0; }
};

/// The lists of one chunk. `first` and `last`: of the step, where they differ from the others.
struct ChunkLists {
    ListedPass forward, forward_first;
    ListedPass backward, backward_last;  // whole, or
    ListedPass backward_input;           //   split in two
    ListedPass backward_weight, backward_weight_last;
    bool splits_backward = false;  // then a whole backward leaves its gradient in another buffer than it came in
    ListedPass recv_forward, send_forward, recv_backward, send_backward;
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
    std::vector<ChunkLists> chunks;
    ListedPass sync, optimizer;
};

[[nodiscard]] StageLists make_lists(const Program& program, const ScheduleShape& shape, RankLayout& layout,
                                    BodyLibrary& bodies, RankClass& result);

/// Takes away accesses on streams on which the list puts nothing.
void drop_idle_streams(ListedPass& pass, const RankClass& result, const BodyLibrary& bodies);

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
/// Whether the bucket holds a parameter of that layer of the chunk.
[[nodiscard]] bool holds_part_of(const RankClass& result, const Bucket& bucket, std::int32_t layer, std::int32_t chunk);

[[nodiscard]] models::SlotDecl flat_slot(const std::string& name, models::SlotRole role, DType dtype,
                                         std::int64_t elements);
[[nodiscard]] Slot slot_at(Space space, models::SlotDecl decl, std::int64_t offset = 0,
                           ParameterRange range = ParameterRange::dense);

/// Builds one list: finds, for what its segments use in common, which segment has to wait for which stream of which
/// earlier one.
class ListBuilder {
  public:
    /// Something that segments of a list take turns with: a place in a window, a staging buffer.
    enum class Thing : std::uint8_t {
        unit_parameters,
        unit_gradients,
        staging,
        offload_window,
        weight_copies,
        bucket,
        gradients,  // at the end of a step; 0: whole, 1: shards
    };
    struct Use {
        Thing thing{};
        std::int32_t index = 0;
        Stream stream{};
        bool write = false;
    };
    explicit ListBuilder(RankClass& result) : result_(result) {}
    void add(Segment segment, const std::vector<Use>& uses);
    /// What the whole list does to a buffer that other actions use.
    void shares(Buffer buffer, std::int32_t index, Stream stream, bool write, bool beside = false);
    [[nodiscard]] ListedPass finish();

  private:
    struct Last {
        std::int32_t segment = -1;
        Stream stream{};
    };
    struct History {
        Last writer;
        std::vector<Last> readers;
    };
    RankClass& result_;
    std::vector<Segment> segments_;
    std::map<std::pair<Thing, std::int32_t>, History> histories_;
    AccessList shared_{};
};

}  // namespace orrery::program
