// The Program: what each rank does, in the order its host issues it. Both interpreters (simulator and executor) read
// this and nothing else; whatever it does not say, neither may do.
//
// Three levels. A rank class has one list of actions. An action runs a segment list: for each layer of its chunk, one
// body with the bases at which the body's slots lie. A body is written once for all layers that look alike; its
// instructions are cut where another stream needs an event.
//
// Ordering. Every stream of a rank is a FIFO: instructions complete in issue order. So an event is (stream, how many
// instructions of that stream have completed), and a dependency costs two integers. Within a body a dependency names an
// earlier instruction of the same body; across actions a Wait names (action, stream): everything that the action put
// on that stream.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/index.h"
#include "models/layer.h"
#include "models/operator.h"
#include "sim/program/mesh.h"
#include "sim/program/plan.h"

namespace orrery::program {

enum class Stream : std::uint8_t {
    compute,
    host,      // waits of the host and work that it does itself (offloaded optimizer)
    copy_out,  // device -> host memory
    copy_in,
    side,  // small computations that wait for other ranks while the computation goes on
    tp,
    cp,
    ep,
    dp,            // gradients
    dp_gather,     // parameters
    dp_replicate,  // gradient shards between sets of shards
    // Activations from the previous and to the next virtual stage, gradients from the next and to the previous; for
    // stages whose forward goes down the ranks, and for those whose forward goes up.
    pp_recv_forward,
    pp_send_forward,
    pp_recv_backward,
    pp_send_backward,
    pp_up_recv_forward,
    pp_up_send_forward,
    pp_up_recv_backward,
    pp_up_send_backward,
};
inline constexpr int kStreamCount = static_cast<int>(Stream::pp_up_send_backward) + 1;
template <typename T>
using PerStream = EnumArray<Stream, T, kStreamCount>;
inline constexpr auto kStreams = enum_values<Stream, kStreamCount>();
[[nodiscard]] std::string_view name_of(Stream stream);
[[nodiscard]] constexpr bool is_pipeline(Stream s) {
    return s >= Stream::pp_recv_forward;
}
/// Streams whose instructions concern their own rank only: operators, no communication.
[[nodiscard]] constexpr bool is_local(Stream s) {
    return s <= Stream::side;
}
/// Whether the host's own thread works off the stream: where it runs the computation, it makes the copies too.
[[nodiscard]] constexpr bool runs_on_host(Stream s, bool host_runs_compute) {
    return s == Stream::host || (host_runs_compute && is_local(s));
}
inline constexpr int kLocalStreams = static_cast<int>(Stream::side) + 1;

/// Message size S: all-reduce, broadcast, reduce, send, recv: the buffer; all-gather, reduce-scatter, scatter, gather:
/// the total over the ranks; all-to-all: the total that one rank holds (and sends, its own part included); exchange:
/// what each rank sends to the next one of the ring while it receives as much from the one before.
enum class CommKind : std::uint8_t {
    all_reduce,
    all_gather,
    reduce_scatter,
    all_to_all,
    broadcast,
    reduce,
    scatter,
    gather,
    exchange,
    send,
    recv,
};
inline constexpr std::size_t kCommKinds = static_cast<std::size_t>(CommKind::recv) + 1;
[[nodiscard]] std::string_view name_of(CommKind kind);
/// mean: the sum over the group's ranks by their number; an all-reduce of floating-point numbers.
enum class ReduceOp : std::uint8_t { sum, max, mean };

/// Ranges of the flat parameter and gradient buffers, by what becomes of their gradients.
enum class ParameterRange : std::uint8_t {
    dense,       // complete on each rank, data parallelism apart
    tensor_sum,  // parts of a sum over tp
    kv_sum,      // parts of a sum over the neighbours that hold copies of one key/value head
    expert,      // on the expert mesh: reduced over edp
};
inline constexpr std::size_t kParameterRanges = 4;
template <typename T>
using PerRange = EnumArray<ParameterRange, T, kParameterRanges>;
inline constexpr auto kRanges = enum_values<ParameterRange, kParameterRanges>();
[[nodiscard]] std::string_view name_of(ParameterRange range);

/// Where a slot's memory lies. Offsets are relative to the base that the segment or action binds.
enum class Space : std::uint8_t {
    parameter,        // from Segment::parameter_base[range] (elements): the rank's parameters, or, where they are
                      //   sharded at rest, the window into which units are gathered
    gradient,         // from Segment::gradient_base[range] (elements): all, or a window of units
    parameter_shard,  // from Segment::shard_base[range] (elements): this rank's shard
    gradient_shard,   //   the same offsets
    reduction,        // from Segment::reduction_base (bytes): gradients on their way across ranks, in their type there
    weight_copy,      // from Segment::weight_copy_base (bytes): fp8 copies of weights
    tied_parameter,   // parameter at RankClass::tied_parameter_base: head weight living in the embedding layer
    tied_gradient,
    hidden_in,            // Segment::hidden_in_offset in the frame, or the action's input boundary buffer
    activation,           // this micro-batch's frame, from Segment::activation_base (bytes)
    hidden_out,           // Segment::hidden_out: next layer's input in the frame, or the forward boundary buffer
    hidden_gradient,      // the action's backward boundary buffer, or Segment::gradient_in_offset in the frame
    hidden_gradient_out,  // split backward: the action's gradient_out boundary, or Segment::gradient_out_offset
    transient,            // the rank's transient arena (bytes)
    scalars,              // loss accumulator
    optimizer,            // the flat optimizer state
    host,                 // host memory: offloaded activations, states, shards
};

enum class Phase : std::uint8_t {
    forward,
    backward,         // input and weight gradients
    backward_input,   // I of a split backward
    backward_weight,  // W
    optimizer,
    gradient_sync,
    transfer,
    gather,    // parameters of a unit or bucket
    reduce,    // gradients of a unit
    offload,   // to host memory and back
    prepare,   // weight copies
    exchange,  // of torch DataParallel
};
[[nodiscard]] std::string_view name_of(Phase phase);

struct Slot {
    models::SlotDecl decl;
    Space space{};
    std::int64_t offset = 0;  // elements for parameter, gradient and shard spaces, else bytes
    std::int64_t bytes = 0;
    ParameterRange range = ParameterRange::dense;  // parameter, gradient and shard spaces
    // What lies in a frame: the pass that first writes it and the one that last needs it.
    Phase born = Phase::forward;
    Phase dies = Phase::backward;
    // Of the slot's equal blocks, as many as the group has ranks, this rank's own is meant; size and place are of all.
    std::optional<GroupAxis> own_block{};
    bool operator==(const Slot&) const = default;
};

struct Communication {
    CommKind kind{};
    GroupAxis axis{};
    ReduceOp reduce = ReduceOp::sum;
    DType dtype = DType::fp32;
    std::int64_t elements = 0;  // of the message size S of its kind; what is expected where sizes are bounded
    models::SlotIndex in = models::kNoSlot;
    models::SlotIndex out = models::kNoSlot;  // same as `in` when in place
    bool accumulates = false;                 // reduce-scatter: added to what `out` holds
    bool consumes = false;                    // reduce-scatter in place: zeros are left in the others' blocks of `in`
    std::int32_t root = 0;                    // broadcast, reduce, scatter, gather: index in the group
    // Of parts that differ, as models::Boundary has them; otherwise kNoSlot.
    models::SlotIndex send_counts = models::kNoSlot;
    models::SlotIndex receive_counts = models::kNoSlot;
    std::int64_t row_elements = 0;
    bool operator==(const Communication&) const = default;
    [[nodiscard]] std::int64_t bytes() const { return elements * size_of(dtype); }
    /// kNoSlot among them; what accumulates reads `out` too.
    [[nodiscard]] std::array<models::SlotIndex, 3> slots_read() const { return {in, send_counts, receive_counts}; }
};

/// Of a body. As an event: the instruction has completed.
using OperatorIndex = Index<struct OperatorTag>;  // of a body
using InstructionIndex = Index<struct InstructionTag>;

struct Instruction {
    std::string name;  // unique in the body: "attention.qkv", "tp.reduce.1", "dp.bucket.0"
    Stream stream{};
    bool is_communication = false;
    Communication communication;          // when is_communication
    OperatorIndex first_operator = 0;     // otherwise: operators[first, first + count)
    std::int32_t operator_count = 0;      // 0: only an event, to which another stream's instruction ties itself
    std::vector<InstructionIndex> after;  // earlier instructions of other streams that must have completed
    bool operator==(const Instruction&) const = default;
};

struct Body {
    Phase phase{};
    models::LayerKind layer_kind{};
    IndexedVector<models::SlotIndex, Slot> slots;
    IndexedVector<OperatorIndex, models::Operator> operators;
    IndexedVector<InstructionIndex, Instruction> instructions;
    std::int64_t transient_bytes = 0;         // arena this body needs for its transients
    std::int64_t transient_live_peak = 0;     // most transient bytes alive at once by the issue-order walk
    PerStream<std::int32_t> stream_counts{};  // instructions on each stream
    bool operator==(const Body&) const = default;
};
using BodyId = Index<struct BodyTag>;
/// Fills in Body::stream_counts.
void count_streams(Body& body);

using Bases = PerRange<std::int64_t>;

/// One call of a body.
struct Segment {
    BodyId body = 0;
    std::int32_t layer = 0;                 // index for the key: blocks 0..L-1; embedding -1; head L
    Bases parameter_base{};                 // elements
    Bases gradient_base{};                  // elements
    Bases shard_base{};                     // elements
    std::int64_t reduction_base = 0;        // bytes
    std::int64_t weight_copy_base = 0;      // bytes
    std::int64_t host_base = 0;             // bytes, in the micro-batch's part of host memory, or in the rank's
    std::int64_t activation_base = 0;       // bytes, in the micro-batch's frame, or in the offload window
    std::int64_t hidden_in_offset = -1;     // bytes in the frame; -1: the input boundary buffer
    std::int64_t hidden_out_offset = -1;    // bytes in the frame; -1: the forward boundary buffer
    std::int64_t gradient_in_offset = -1;   // bytes in the frame; -1: the backward boundary buffer
    std::int64_t gradient_out_offset = -1;  // bytes in the frame; -1: the gradient_out boundary buffer
    bool in_offload_window = false;         // its activations lie in the window that is copied to and from the host
    std::int32_t first_wait = 0;            // RankClass::segment_waits[first, first + count): hold the segment's first
    std::int32_t wait_count = 0;            //   instruction on each of its streams
};

using SegmentIndex = Index<struct SegmentTag>;  // of a list

/// Everything that an earlier segment of the same list put on `stream` must have completed.
struct SegmentWait {
    SegmentIndex segment = 0;
    Stream stream{};
};

using SegmentListId = Index<struct SegmentListTag>;
using SegmentList = IndexedVector<SegmentIndex, Segment>;

enum class ActionKind : std::uint8_t {
    forward,
    backward,
    backward_input,
    backward_weight,
    recv_forward,
    send_forward,
    recv_backward,
    send_backward,
    sync_gradients,  // what remains to be reduced after the last backward: tied embeddings, sequence-parallel norms
    optimizer_step,
    exchange,  // torch DataParallel: inputs and parameters out, outputs back, and their gradients the other way
};
[[nodiscard]] std::string_view name_of(ActionKind kind);

using ActionIndex = Index<struct ActionTag>;  // of a class, in issue order
using ChunkIndex = Index<struct ChunkTag>;    // of a rank

/// Everything that `action` put on `stream` must have completed. `steps_back` 1: that action of the previous step.
struct Wait {
    ActionIndex action = 0;
    Stream stream{};
    std::uint8_t steps_back = 0;
    std::uint32_t held_streams = ~0U;  // one bit each: of which the waiting action's first instruction is held
    [[nodiscard]] bool holds(Stream waiting) const {
        return (held_streams >> static_cast<std::uint32_t>(waiting) & 1U) != 0;
    }
};
static_assert(kStreamCount <= 32, "a bit for each stream");

struct Action {
    ActionKind kind{};
    ChunkIndex chunk = 0;
    std::int32_t micro_batch = -1;
    SegmentListId segments = 0;
    std::int32_t activation_frame = -1;   // index of the chunk's pool of frames
    std::int32_t input_boundary = -1;     // index of the pool of received stage inputs, kept until the backward is done
    std::int32_t forward_boundary = -1;   // index of the pool of forward boundary buffers (stage outputs to be sent)
    std::int32_t backward_boundary = -1;  // index of the pool of gradient boundary buffers
    std::int32_t gradient_out = -1;       // split backward: where the gradient leaves, in the same pool; else -1
    std::int32_t first_wait = 0;          // RankClass::waits[first, first + count): hold the action's first instruction
    std::int32_t wait_count = 0;          //   on each of the streams that the wait names (Wait::held_streams)
    bool output_stays = false;            // the next virtual stage is on this rank: forward_boundary counts in the pool
                                          //   of stage inputs
};

/// The parameter that a head may share with the embedding; the last stage's copy goes by this name too.
inline constexpr std::string_view kTiedWeight = "embedding.weight";

/// One tensor of the rank's parameters.
struct Parameter {
    std::string name;  // "layers.3.attention.qkv.weight", "embedding.weight", "head.norm.weight"
    ParameterRange range = ParameterRange::dense;
    std::int64_t offset = 0;    // elements, in the flat order of all the rank's parameters
    std::int64_t elements = 0;  // local
    std::int64_t padding = 0;   // elements behind it that belong to nobody, so that shards can be cut there
    models::SlotDecl decl;      // parts, shard dim, init, decay
    std::int32_t layer = 0;
    ChunkIndex chunk = 0;
};

/// Gradients reduced together: a contiguous range of the flat order, of one ParameterRange, padding included; where
/// shards exist, cut into equal parts.
struct Bucket {
    ParameterRange range = ParameterRange::dense;
    std::int64_t offset = 0;
    std::int64_t elements = 0;      // a multiple of the sharding ranks
    std::int64_t shard_offset = 0;  // elements, in the shard buffers
    std::int64_t shard_elements = 0;
};

/// Bytes of one rank of a class. `live_peak` is what a perfect allocator would need at the worst moment of the
/// issue-order walk; `arena` is what the static layout takes (frames, boundaries and windows whole), which the executor
/// allocates.
struct MemoryFootprint {
    std::int64_t parameters = 0;        // shards, or all; fp8 copies included
    std::int64_t gathered = 0;          // window of gathered units
    std::int64_t gradients = 0;         // all, or shards and the window of units
    std::int64_t reductions = 0;        // gradients on their way across ranks
    std::int64_t optimizer_states = 0;  // master weights included
    std::int64_t offload_window = 0;
    std::int64_t framework = 0;  // copies, buffers and stand-ins that the implementation keeps (models::MemoryChoices)
    std::int64_t activations_live_peak = 0;
    std::int64_t activations_arena = 0;
    std::int64_t transients_live_peak = 0;
    std::int64_t transients_arena = 0;
    std::int64_t boundaries_arena = 0;
    std::int64_t live_peak = 0;            // max over the walk of everything
    std::int64_t arena = 0;                // sum of what is allocated
    std::int64_t host = 0;                 // host memory: offloaded activations, states, shards
    std::int64_t conversions = 0;          // fp32 copies of one operator's 16-bit operands, where the host computes
    ActionIndex peak_action = -1;          // the action at which live_peak is reached
    std::int64_t activations_at_peak = 0;  // what lives then
    std::int64_t transients_at_peak = 0;
    /// What the device must hold: where the host computes, its memory is the device's.
    [[nodiscard]] std::int64_t allocated(bool host_runs_compute) const {
        return arena + conversions + (host_runs_compute ? host : 0);
    }
    [[nodiscard]] std::int64_t most_alive(bool host_runs_compute) const {
        return live_peak + conversions + (host_runs_compute ? host : 0);
    }
    [[nodiscard]] std::int64_t fixed() const {  // what lives all the time
        return parameters + gathered + gradients + reductions + optimizer_states + offload_window + framework +
               boundaries_arena;
    }
};

/// A virtual stage, or one of the two parts of a vocabulary that is cut over the ranks of a pipeline
/// (VocabularyParallel): then each rank has both, behind its virtual stage, and the last stage keeps the head's norm.
enum class ChunkPart : std::uint8_t { stage, vocabulary_output, vocabulary_input };

/// One model chunk of a rank.
struct Chunk {
    ChunkPart part = ChunkPart::stage;
    std::int64_t virtual_stage = 0;  // -1: no stage
    std::int32_t direction = 0;      // dualpipe: which copy of the model
    bool up = false;                 // its forward goes to the pipeline rank before
    std::int64_t first_block = 0, block_count = 0;
    bool has_embedding = false, has_head = false;
    std::int64_t frame_bytes = 0;       // one micro-batch's saved activations
    std::int32_t frame_count = 0;       // most frames alive at once
    std::int64_t host_frame_bytes = 0;  // of them in host memory
};

/// Ranks that do the same thing: the ranks of one pipeline position.
struct RankClass {
    std::string name;  // "stage 0"
    std::int64_t pp_index = 0;
    IndexedVector<ChunkIndex, Chunk> chunks;
    IndexedVector<ActionIndex, Action> actions;  // one step, in issue order
    std::vector<Wait> waits;
    std::vector<SegmentWait> segment_waits;
    IndexedVector<SegmentListId, SegmentList> segment_lists;
    std::vector<Parameter> parameters;
    std::vector<Bucket> buckets;
    std::int64_t parameter_elements = 0;         // of the flat order of all the rank's parameters, padding included
    Bases range_begin{}, range_end{};            // its ranges
    std::int64_t parameter_buffer_elements = 0;  // of Space::parameter: all, or the window of gathered units
    std::int64_t gradient_buffer_elements = 0;   // of Space::gradient: all, or the window of units
    std::int64_t shard_elements = 0;             // of the shard spaces; 0: nothing is sharded
    bool parameter_shards_alias = false;  // a shard is this rank's part of the whole buffer: no memory of its own
    bool gradient_shards_alias = false;
    std::int64_t optimizer_elements = 0;  // that this rank updates
    std::int64_t reduction_bytes = 0;     // of Space::reduction
    std::int64_t weight_copy_bytes = 0;
    std::int64_t tied_parameter_base = -1;  // element offsets of a tied embedding weight in the two buffers, -1: none
    std::int64_t tied_gradient_base = -1;
    std::int64_t boundary_bytes = 0;  // one boundary buffer
    std::int32_t input_boundary_count = 0;
    std::int32_t forward_boundary_count = 0;
    std::int32_t backward_boundary_count = 0;
    std::int64_t transient_bytes = 0;
    std::int64_t offload_window_bytes = 0;
    std::int64_t host_bytes = 0;
    MemoryFootprint memory;
};

using ClassIndex = Index<struct ClassTag>;

struct Program {
    std::shared_ptr<const Plan> plan;
    std::shared_ptr<const Mesh> mesh;
    IndexedVector<ClassIndex, RankClass>
        classes;  // class i = pipeline rank i; torch DataParallel: the master, the others
    IndexedVector<BodyId, Body> bodies;

    [[nodiscard]] std::int64_t world_size() const { return plan->parallelism.world_size(); }
    [[nodiscard]] MeshCoordinates coordinates(std::int64_t rank) const { return mesh->coordinates(rank); }
    [[nodiscard]] ClassIndex class_of(std::int64_t rank) const;
    /// Members of the rank's group on the axis; see Mesh.
    [[nodiscard]] std::vector<std::int64_t> group_of(GroupAxis axis, std::int64_t rank) const {
        return mesh->group_of(axis, rank);
    }
    /// The rank that an instruction on a pipeline stream talks to.
    [[nodiscard]] std::int64_t peer_of(Stream stream, std::int64_t rank) const;
};

/// The pairs that a pipeline stream communicates in.
[[nodiscard]] GroupAxis axis_of(Stream pipeline_stream);

/// Steady: every step but the first. First: before DDP has seen in which order gradients become ready, they are one
/// bucket (PyTorch, find_unused_parameters off).
enum class StepKind : std::uint8_t { steady, first };

/// Lowers a checked plan. The result satisfies validate(). Deterministic.
[[nodiscard]] Program lower(const Plan& plan, StepKind step = StepKind::steady);

/// Proves the Program well-formed, or throws BugError naming the broken rule, class, action and instruction: counts
/// (each micro-batch once forward, then backward), acyclic and progressing (a rendezvous dry run), sends matched with
/// receives in order and size, equal collective order inside each group, every two conflicting accesses to memory
/// ordered, frames and boundaries taken and returned, bytes per rank equal to the closed forms.
void validate(const Program& program);

/// Bytes that one rank of the class hands to each stream in a step, by collective: message sizes S (see CommKind).
struct StreamVolume {
    Stream stream{};
    CommKind kind{};
    std::int64_t operations = 0;
    std::int64_t message_bytes = 0;  // sum of S
    std::int64_t wire_bytes = 0;     // sent by this rank under ring algorithms: 2(n-1)/n S, (n-1)/n S, or S
};
[[nodiscard]] std::vector<StreamVolume> volumes(const Program& program, ClassIndex rank_class);

/// FLOPs of matrix products and attention that all ranks together do a second time in a step: recomputation.
[[nodiscard]] double recomputed_flops(const Program& program);

}  // namespace orrery::program
