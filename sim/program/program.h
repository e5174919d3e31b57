// The Program: what each rank does in a step, in the order in which its host issues it. Both interpreters (simulator
// and executor) read only this, and neither may do anything that it does not state.
//
// Three levels. A rank class has one list of actions. An action runs a segment list. A segment calls a body, usually
// one pass over one layer, and supplies the base addresses of the body's slots. A body is built once for all layers
// that look alike. A run of operators is split into two instructions only where another stream needs an event.
//
// Ordering. Every stream of a rank is a FIFO: its instructions complete in issue order. So an event is a pair (stream,
// number of its instructions that have completed). Inside a body, a dependency names an earlier instruction of the same
// body. Between actions, a Wait names (action, stream) and means everything that the action put on that stream.
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
#include "models/token_routing.h"
#include "sim/program/mesh.h"
#include "sim/program/plan.h"

namespace orrery::program {

enum class Stream : std::uint8_t {
    compute,
    host,      // host waits and work done by the host (offloaded optimizer)
    copy_out,  // device -> host memory
    copy_in,   // host -> device memory
    side,      // small computations that wait for other ranks while the compute stream continues
    tp,
    cp,
    ep,
    dp,            // gradients
    dp_gather,     // parameters
    dp_replicate,  // HSDP: gradient shards, between the sets of shards
    // Transfers between virtual stages: activations from the previous and to the next one, gradients from the next and
    // to the previous one. The `up` streams belong to stages whose activations go from pipeline rank r to r - 1.
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
[[nodiscard]] constexpr bool is_send(Stream s) {
    return s == Stream::pp_send_forward || s == Stream::pp_send_backward || s == Stream::pp_up_send_forward ||
           s == Stream::pp_up_send_backward;
}
/// Streams that hold operators only, no communication.
[[nodiscard]] constexpr bool is_local(Stream s) {
    return s <= Stream::side;
}
/// Whether the host's own thread executes the stream's instructions. If the host runs the computation, it also runs all
/// other local streams.
[[nodiscard]] constexpr bool runs_on_host(Stream s, bool host_runs_compute) {
    return s == Stream::host || (host_runs_compute && is_local(s));
}
inline constexpr int kLocalStreams = static_cast<int>(Stream::side) + 1;

/// Message size S by kind. All-reduce, broadcast, reduce, send, recv: the buffer. All-gather, reduce-scatter, scatter,
/// gather: the total over the ranks. All-to-all: what one rank sends in total, including its own part. Exchange: what
/// each rank sends to the next rank of the ring; it receives as much from the previous one.
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
/// mean: the sum divided by the number of ranks; only for all-reduces of floating-point numbers.
enum class ReduceOp : std::uint8_t { sum, max, mean };

/// Ranges of the flat parameter and gradient buffers, by how their gradients are reduced.
enum class ParameterRange : std::uint8_t {
    dense,       // over data-parallel ranks only
    tensor_sum,  // also summed over tp
    kv_sum,      // also summed over the tp ranks that hold copies of the same key/value head
    expert,      // on the expert mesh: over edp
};
inline constexpr std::size_t kParameterRanges = 4;
template <typename T>
using PerRange = EnumArray<ParameterRange, T, kParameterRanges>;
inline constexpr auto kRanges = enum_values<ParameterRange, kParameterRanges>();
[[nodiscard]] std::string_view name_of(ParameterRange range);

/// The memory in which a slot lies. Offsets are relative to the base that the segment or action binds.
enum class Space : std::uint8_t {
    parameter,        // from Segment::parameter_base[range] (elements): the rank's parameters, or, if they are sharded
                      //   at rest, the window into which units are gathered
    gradient,         // from Segment::gradient_base[range] (elements): all gradients, or a window of units
    parameter_shard,  // from Segment::shard_base[range] (elements): this rank's shard
    gradient_shard,   // from Segment::shard_base[range] (elements)
    reduction,        // from Segment::reduction_base (bytes): staging buffers of reductions, in the reduction's dtype;
                      //   torch DataParallel: the master's inputs, outputs and loss values of all ranks
    weight_copy,      // from Segment::weight_copy_base (bytes): fp8 copies of weights
    tied_parameter,   // at RankClass::tied_parameter_base: a head weight that lives in the embedding layer
    tied_gradient,    // at RankClass::tied_gradient_base
    hidden_in,        // Segment::hidden_in_offset in the frame, or the action's input boundary buffer
    activation,       // from Segment::activation_base (bytes), in the micro-batch's frame or the offload window
    hidden_out,       // Segment::hidden_out_offset (the next layer's input), or the forward boundary buffer
    hidden_gradient,  // Segment::gradient_in_offset in the frame, or the action's backward boundary buffer
    hidden_gradient_out,  // split backward: Segment::gradient_out_offset, or the action's gradient_out boundary
    transient,            // from Segment::transient_base (bytes), in the rank's transient arena
    scalars,              // the loss accumulator and the gradient norm
    optimizer,            // the flat optimizer state
    host,                 // host memory: offloaded activations, optimizer states, parameter shards
};

enum class Phase : std::uint8_t {
    forward,
    backward,         // input and weight gradients
    backward_input,   // split backward: I, the gradient of the input
    backward_weight,  // split backward: W, the gradients of the weights
    optimizer,
    gradient_sync,
    transfer,
    gather,    // parameters of a unit or bucket
    reduce,    // gradients of a unit
    offload,   // activations to host memory and back
    prepare,   // weight copies
    exchange,  // torch DataParallel
};
[[nodiscard]] std::string_view name_of(Phase phase);
[[nodiscard]] constexpr bool is_pass(Phase phase) {
    return phase <= Phase::backward_weight;
}

struct Slot {
    models::SlotDecl decl;
    Space space{};
    std::int64_t offset = 0;  // elements for parameter, gradient and shard spaces, else bytes
    std::int64_t bytes = 0;
    ParameterRange range = ParameterRange::dense;  // parameter, gradient and shard spaces
    // Lifetime of a slot in a frame: the pass that first writes it and the pass that last needs it.
    Phase born = Phase::forward;
    Phase dies = Phase::backward;
    // If set, the slot stands for this rank's block when the tensor is cut into one equal block for each rank of the
    // group; `offset` and `bytes` are those of the whole tensor.
    std::optional<GroupAxis> own_block{};
    bool operator==(const Slot&) const = default;
};

struct Communication {
    CommKind kind{};
    GroupAxis axis{};
    ReduceOp reduce = ReduceOp::sum;
    DType dtype = DType::fp32;
    std::int64_t elements = 0;  // message size S of the kind; the expected size if counts decide the actual one
    models::SlotIndex in = models::kNoSlot;
    models::SlotIndex out = models::kNoSlot;  // same as `in` when in place
    bool accumulates = false;                 // reduce-scatter: added to what `out` holds; `in` is undefined afterwards
    bool consumes = false;  // reduce-scatter in place: the other ranks' blocks of `in` are set to zero afterwards
    std::int32_t root = 0;  // broadcast, reduce, scatter, gather: index in the group
    // If the ranks' parts differ in size: as in models::Boundary. Otherwise kNoSlot.
    models::SlotIndex send_counts = models::kNoSlot;
    models::SlotIndex receive_counts = models::kNoSlot;
    std::int64_t row_elements = 0;
    // All-to-all of tokens and their results: as in models::Boundary. `elements` counts every copy of a token.
    std::optional<models::TokenRouting> tokens_once{};
    bool operator==(const Communication&) const = default;
    [[nodiscard]] std::int64_t bytes() const { return elements * size_of(dtype); }
    /// May contain kNoSlot. A communication that accumulates also reads `out`, which is not listed.
    [[nodiscard]] std::array<models::SlotIndex, 3> slots_read() const { return {in, send_counts, receive_counts}; }
};

using OperatorIndex = Index<struct OperatorTag>;        // in a body
using InstructionIndex = Index<struct InstructionTag>;  // in a body; as an event: the instruction has completed

struct Instruction {
    std::string name;  // unique in the body: "attention.qkv", "tp.reduce.1", "dp.bucket.0"
    Stream stream{};
    bool is_communication = false;
    Communication communication;          // when is_communication
    OperatorIndex first_operator = 0;     // otherwise: operators[first, first + count)
    std::int32_t operator_count = 0;      // 0: only an event of the compute stream
    std::vector<InstructionIndex> after;  // earlier instructions of other streams that must have completed
    bool operator==(const Instruction&) const = default;
};

using BodyId = Index<struct BodyTag>;

struct Body {
    Phase phase{};
    models::LayerKind layer_kind{};
    /// If a pass pauses inside the body (Action::part): the body of which this one holds the instructions from
    /// `first_in_whole` on, with the same slots. Otherwise -1.
    BodyId whole = -1;
    InstructionIndex first_in_whole = 0;
    IndexedVector<models::SlotIndex, Slot> slots;
    IndexedVector<OperatorIndex, models::Operator> operators;
    IndexedVector<InstructionIndex, Instruction> instructions;
    std::int64_t transient_bytes = 0;         // size of the arena for this body's transients
    std::int64_t transient_live_peak = 0;     // most transient bytes alive at once in the issue-order walk
    PerStream<std::int32_t> stream_counts{};  // instructions on each stream
    bool operator==(const Body&) const = default;
};
using Bodies = IndexedVector<BodyId, Body>;
/// Fills in Body::stream_counts.
void count_streams(Body& body);

using Bases = PerRange<std::int64_t>;

/// One call of a body.
struct Segment {
    BodyId body = 0;
    std::int32_t layer = 0;                 // layer index in instruction keys: blocks 0..L-1; embedding -1; head L
    Bases parameter_base{};                 // elements
    Bases gradient_base{};                  // elements
    Bases shard_base{};                     // elements
    std::int64_t reduction_base = 0;        // bytes
    std::int64_t weight_copy_base = 0;      // bytes
    std::int64_t host_base = 0;             // bytes, in the micro-batch's host frame or in the rank's host memory
    std::int64_t activation_base = 0;       // bytes, in the micro-batch's frame, or in the offload window
    std::int64_t transient_base = 0;        // bytes; not 0 if the transients of another pass are alive beside its own
    std::int64_t hidden_in_offset = -1;     // bytes in the frame; -1: the input boundary buffer
    std::int64_t hidden_out_offset = -1;    // bytes in the frame; -1: the forward boundary buffer
    std::int64_t gradient_in_offset = -1;   // bytes in the frame; -1: the backward boundary buffer
    std::int64_t gradient_out_offset = -1;  // bytes in the frame; -1: the gradient_out boundary buffer
    bool in_offload_window = false;         // its activations lie in the window that is copied to and from the host
    std::int32_t first_wait = 0;            // RankClass::segment_waits[first, first + count): awaited by the segment's
    std::int32_t wait_count = 0;            //   first instruction on each of its streams
};

using SegmentIndex = Index<struct SegmentTag>;  // in a segment list

/// Everything that the earlier segment `segment` of the same list put on `stream` must have completed.
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
    sync_gradients,  // the gradient reductions that remain after the last backward
    optimizer_step,
    exchange,  // torch DataParallel: inputs and parameters to the replicas, outputs back, and their gradients
};
[[nodiscard]] std::string_view name_of(ActionKind kind);
[[nodiscard]] constexpr bool is_pass(ActionKind kind) {
    return kind <= ActionKind::backward_weight;
}
[[nodiscard]] constexpr bool is_backward(ActionKind kind) {
    return is_pass(kind) && kind != ActionKind::forward;
}

using ActionIndex = Index<struct ActionTag>;  // in a rank class, in issue order

/// Everything that `action` put on `stream` must have completed. `steps_back` 1: the action of the previous step.
struct Wait {
    ActionIndex action = 0;
    Stream stream{};
    std::uint8_t steps_back = 0;
    std::uint32_t held_streams = ~0U;  // bit set: the streams on which the action's first instruction waits
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
    std::int32_t activation_frame = -1;  // index in the chunk's pool of frames
    std::int32_t input_boundary = -1;    // index in the pool of stage inputs, which are kept until the backward is done
    std::int32_t forward_boundary = -1;  // index in the pool of forward boundary buffers (stage outputs to be sent)
    std::int32_t backward_boundary = -1;  // index in the pool of gradient boundary buffers
    std::int32_t gradient_out = -1;       // split backward: the gradient of the stage's input, in the same pool
    std::int32_t first_wait = 0;          // RankClass::waits[first, first + count): awaited by the action's first
    std::int32_t wait_count = 0;          //   instruction on each stream in Wait::held_streams
    bool output_stays = false;            // the next virtual stage is on this rank: forward_boundary is an index in the
                                          //   pool of stage inputs
    // A pass may be issued in several parts, each an action of its own, with parts of another pass between them. All
    // parts bind the same buffers.
    std::int32_t part = 0, part_count = 1;
    [[nodiscard]] bool begins() const { return part == 0; }
    [[nodiscard]] bool ends() const { return part + 1 == part_count; }
};

/// The parameter that a head may share with the embedding. A copy of it on the last stage has the same name.
inline constexpr std::string_view kTiedWeight = "embedding.weight";

/// One tensor of the rank's parameters.
struct Parameter {
    std::string name;  // "layers.3.attention.qkv.weight", "embedding.weight", "head.norm.weight"
    ParameterRange range = ParameterRange::dense;
    std::int64_t offset = 0;    // elements, in the flat order of all the rank's parameters
    std::int64_t elements = 0;  // local
    std::int64_t padding = 0;   // unused elements after it, so that a shard boundary can follow
    models::SlotDecl decl;      // parts, shard dim, init, decay
    std::int32_t layer = 0;
    ChunkIndex chunk = 0;
};

/// Gradients that are reduced together: a contiguous part of one ParameterRange in the flat order, padding included. If
/// states are sharded, the bucket is cut into equal shards.
struct Bucket {
    ParameterRange range = ParameterRange::dense;
    std::int64_t offset = 0;
    std::int64_t elements = 0;      // a multiple of the sharding ranks
    std::int64_t shard_offset = 0;  // elements, in the shard buffers
    std::int64_t shard_elements = 0;
};

/// Bytes of one rank of a class. `live_peak` is what a perfect allocator would need at the worst moment of the
/// issue-order walk. `arena` is the size of the static layout, with all frames, boundary buffers and windows, which the
/// executor allocates.
struct MemoryFootprint {
    std::int64_t parameters = 0;        // shards, or all; fp8 copies included
    std::int64_t gathered = 0;          // window of gathered units
    std::int64_t gradients = 0;         // all, or shards and the window of units
    std::int64_t reductions = 0;        // staging buffers of gradient reductions
    std::int64_t optimizer_states = 0;  // master weights included
    std::int64_t offload_window = 0;
    std::int64_t framework = 0;  // additional copies and buffers of the implementation (models::MemoryChoices)
    std::int64_t activations_live_peak = 0;
    std::int64_t activations_arena = 0;
    std::int64_t transients_live_peak = 0;
    std::int64_t transients_arena = 0;
    std::int64_t boundaries_arena = 0;
    std::int64_t live_peak = 0;            // most bytes alive at once during the walk
    std::int64_t arena = 0;                // sum of all allocations on the device
    std::int64_t host = 0;                 // host memory: offloaded activations, optimizer states, parameter shards
    std::int64_t conversions = 0;          // fp32 copies of one operator's 16-bit operands, if the host computes
    ActionIndex peak_action = -1;          // the action at which live_peak is reached
    std::int64_t activations_at_peak = 0;  // alive at live_peak
    std::int64_t transients_at_peak = 0;   // alive at live_peak
    /// Bytes that the device must hold. If the host computes, host memory is the device's memory.
    [[nodiscard]] std::int64_t allocated(bool host_runs_compute) const {
        return arena + conversions + (host_runs_compute ? host : 0);
    }
    [[nodiscard]] std::int64_t most_alive(bool host_runs_compute) const {
        return live_peak + conversions + (host_runs_compute ? host : 0);
    }
    /// What is alive throughout the step.
    [[nodiscard]] std::int64_t fixed() const {
        return parameters + gathered + gradients + reductions + optimizer_states + offload_window + framework +
               boundaries_arena;
    }
};

/// A virtual stage, or one of the two parts of a vocabulary that is sharded over the pipeline (VocabularyParallel).
/// With vocabulary parallelism each rank has both parts after its virtual stage, and the last stage keeps the head's
/// norm.
enum class ChunkPart : std::uint8_t { stage, vocabulary_output, vocabulary_input };

/// One model chunk of a rank.
struct Chunk {
    ChunkPart part = ChunkPart::stage;
    std::int64_t virtual_stage = 0;  // -1: a part of the vocabulary
    std::int32_t direction = 0;      // dualpipe: which copy of the model
    bool up = false;                 // its output goes to the previous pipeline rank
    std::int64_t first_block = 0, block_count = 0;
    bool has_embedding = false, has_head = false;
    std::int64_t frame_bytes = 0;       // one micro-batch's saved activations
    std::int32_t frame_count = 0;       // most frames alive at once
    std::int64_t host_frame_bytes = 0;  // one micro-batch's activations in host memory
};

/// Ranks that execute the same actions: those of one pipeline rank (torch DataParallel: the master, or the others).
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
    std::int64_t parameter_elements = 0;         // the flat order of all the rank's parameters, padding included
    Bases range_begin{}, range_end{};            // the ranges of the flat order
    std::int64_t parameter_buffer_elements = 0;  // Space::parameter: all parameters, or the window of gathered units
    std::int64_t gradient_buffer_elements = 0;   // Space::gradient: all gradients, or the window of units
    std::int64_t shard_elements = 0;             // the shard spaces; 0: nothing is sharded
    bool parameter_shards_alias = false;  // the shard is this rank's part of the parameter buffer, without own memory
    bool gradient_shards_alias = false;   // the shard is this rank's part of the gradient buffer
    std::int64_t optimizer_elements = 0;  // elements that this rank updates
    std::int64_t reduction_bytes = 0;     // Space::reduction
    std::int64_t weight_copy_bytes = 0;
    std::int64_t tied_parameter_base = -1;  // element offset of a tied embedding weight in Space::parameter, -1: none
    std::int64_t tied_gradient_base = -1;   // and of its gradient in Space::gradient
    std::int64_t boundary_bytes = 0;        // one boundary buffer
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
    IndexedVector<ClassIndex, RankClass> classes;  // by pipeline rank; torch DataParallel: the master, then the others
    Bodies bodies;

    [[nodiscard]] std::int64_t world_size() const { return plan->parallelism.world_size(); }
    [[nodiscard]] MeshCoordinates coordinates(std::int64_t rank) const { return mesh->coordinates(rank); }
    [[nodiscard]] ClassIndex class_of(std::int64_t rank) const;
    /// Members of the rank's group on the axis (Mesh::group_of).
    [[nodiscard]] std::vector<std::int64_t> group_of(GroupAxis axis, std::int64_t rank) const {
        return mesh->group_of(axis, rank);
    }
    /// The rank with which `rank` communicates on a pipeline stream.
    [[nodiscard]] std::int64_t peer_of(Stream stream, std::int64_t rank) const;
};

/// The axis of the pairs that communicate on a pipeline stream.
[[nodiscard]] GroupAxis axis_of(Stream pipeline_stream);

/// Steady: every step but the first. First: PyTorch's DDP does not know yet in which order gradients become ready, so
/// all of them are one bucket (with find_unused_parameters off).
enum class StepKind : std::uint8_t { steady, first };

/// Lowers a plan that check_plan has accepted. The result satisfies validate(). Deterministic.
[[nodiscard]] Program lower(const Plan& plan, StepKind step = StepKind::steady);

/// Checks that the Program is well-formed, or throws BugError with the broken rule, class, action and instruction.
/// Checked among others: each micro-batch passes forward once, then backward; a dry run with rendezvous communication
/// finishes; sends match receives in order and size; the ranks of a group issue the same collectives in the same order;
/// conflicting memory accesses are ordered; frames and boundary buffers are taken and returned; the bytes per rank
/// equal the closed forms.
void validate(const Program& program);

/// The number of times that a rank of the class calls each body in a step.
[[nodiscard]] IndexedVector<BodyId, std::int64_t> calls_of_bodies(const Program& program, ClassIndex rank_class);

/// What one rank of the class communicates in a step on one stream with one kind of collective.
struct StreamVolume {
    Stream stream{};
    CommKind kind{};
    std::int64_t operations = 0;
    std::int64_t message_bytes = 0;  // sum of the message sizes S (see CommKind)
    std::int64_t wire_bytes = 0;     // sent by this rank with ring algorithms: 2(n-1)/n S, (n-1)/n S, or S; of tokens
                                     // that travel once: through NIC and port (token_dispatch.h)
};
[[nodiscard]] std::vector<StreamVolume> volumes(const Program& program, ClassIndex rank_class);

/// FLOPs of the GEMMs and attention that all ranks together recompute in a step.
[[nodiscard]] double recomputed_flops(const Program& program);

}  // namespace orrery::program
