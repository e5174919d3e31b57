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
#include <string>
#include <vector>

#include "core/dtype.h"
#include "models/layer.h"
#include "models/operator.h"
#include "sim/program/plan.h"

namespace orrery::program {

enum class Stream : std::uint8_t {
    compute,
    tp,
    dp,
    pp_recv_forward,   // activations from the previous stage
    pp_send_forward,   // activations to the next stage
    pp_recv_backward,  // gradients from the next stage
    pp_send_backward,  // gradients to the previous stage
};
inline constexpr int kStreamCount = 7;
[[nodiscard]] std::string_view name_of(Stream stream);
[[nodiscard]] constexpr bool is_pipeline(Stream s) {
    return s >= Stream::pp_recv_forward;
}

/// Families of process groups. Each rank is in at most one group of each axis.
enum class GroupAxis : std::uint8_t {
    tp,
    dp,
    pp_forward,   // pairs (stage i, stage i+1): see pipeline_peer; sends of activations
    pp_backward,  // the same pairs; sends of gradients
    embedding,    // first and last stage, when they hold copies of a tied embedding
};
[[nodiscard]] std::string_view name_of(GroupAxis axis);

enum class CommKind : std::uint8_t { all_reduce, all_gather, reduce_scatter, send, recv };
[[nodiscard]] std::string_view name_of(CommKind kind);
enum class ReduceOp : std::uint8_t { sum, max };

/// Where a slot's memory lies. Offsets are relative to the base that the segment or action binds.
enum class Space : std::uint8_t {
    parameter,          // RankClass::parameters, from Segment::parameter_base (elements)
    gradient,           // same element offsets in the gradient buffer
    partial_parameter,  // parameters whose gradients tensor-parallel ranks hold in parts: from Segment::partial_base
    partial_gradient,   //   (elements); one contiguous range of the flat buffer, so that one all-reduce sums them
    tied_parameter,     // parameter at RankClass::tied_parameter_base: head weight living in the embedding layer
    tied_gradient,
    hidden_in,        // Segment::hidden_in_offset in the frame, or the action's input boundary buffer
    activation,       // this micro-batch's frame, from Segment::activation_base (bytes)
    hidden_out,       // Segment::hidden_out: next layer's input in the frame, or the forward boundary buffer
    hidden_gradient,  // the action's backward boundary buffer
    transient,        // the rank's transient arena (bytes)
    scalars,          // loss accumulator
    optimizer,        // the flat optimizer state (adamw only)
};

struct Slot {
    models::SlotDecl decl;
    Space space{};
    std::int64_t offset = 0;  // elements for parameter/gradient spaces, else bytes
    std::int64_t bytes = 0;
};

struct Communication {
    CommKind kind{};
    GroupAxis axis{};
    ReduceOp reduce = ReduceOp::sum;
    DType dtype = DType::fp32;
    std::int64_t elements = 0;  // all-reduce, send, recv: of the buffer; all-gather, reduce-scatter: total over ranks
    models::SlotIndex in = models::kNoSlot;
    models::SlotIndex out = models::kNoSlot;  // same as `in` when in place
    [[nodiscard]] std::int64_t bytes() const { return elements * size_of(dtype); }
};

/// An event inside the body: the instruction with this index has completed.
using InstructionIndex = std::int32_t;

struct Instruction {
    std::string name;  // unique in the body: "attention.qkv", "tp.reduce.1", "dp.bucket.0"
    Stream stream{};
    bool is_communication = false;
    Communication communication;          // when is_communication
    std::int32_t first_operator = 0;      // otherwise: operators[first, first + count)
    std::int32_t operator_count = 0;      // 0: only an event, to which another stream's instruction ties itself
    std::vector<InstructionIndex> after;  // earlier instructions of other streams that must have completed
};

enum class Phase : std::uint8_t { forward, backward, optimizer, gradient_sync, transfer };
[[nodiscard]] std::string_view name_of(Phase phase);

struct Body {
    Phase phase{};
    models::LayerKind layer_kind{};
    std::vector<Slot> slots;
    std::vector<models::Operator> operators;
    std::vector<Instruction> instructions;
    std::int64_t transient_bytes = 0;      // arena this body needs for its transients
    std::int64_t transient_live_peak = 0;  // most transient bytes alive at once by the issue-order walk
    std::array<std::int32_t, kStreamCount> stream_counts{};  // instructions on each stream
};
using BodyId = std::int32_t;

/// One call of a body.
struct Segment {
    BodyId body = 0;
    std::int32_t layer = 0;               // index for the key: blocks 0..L-1; embedding -1; head L
    std::int64_t parameter_base = 0;      // elements
    std::int64_t partial_base = 0;        // elements
    std::int64_t activation_base = 0;     // bytes, in the micro-batch's frame
    std::int64_t hidden_in_offset = -1;   // bytes in the frame; -1: the input boundary buffer
    std::int64_t hidden_out_offset = -1;  // bytes in the frame; -1: the forward boundary buffer
};
using SegmentListId = std::int32_t;

enum class ActionKind : std::uint8_t {
    forward,
    backward,
    recv_forward,
    send_forward,
    recv_backward,
    send_backward,
    sync_gradients,  // what remains to be reduced after the last backward: tied embeddings, sequence-parallel norms
    optimizer_step,
};
[[nodiscard]] std::string_view name_of(ActionKind kind);

/// Everything that `action` put on `stream` must have completed. `steps_back` 1: that action of the previous step.
struct Wait {
    std::int32_t action = 0;
    Stream stream{};
    std::uint8_t steps_back = 0;
};

struct Action {
    ActionKind kind{};
    std::int32_t chunk = 0;
    std::int32_t micro_batch = -1;
    SegmentListId segments = 0;
    std::int32_t activation_frame = -1;   // index of the pool of frames
    std::int32_t input_boundary = -1;     // index of the pool of received stage inputs, kept until the backward is done
    std::int32_t forward_boundary = -1;   // index of the pool of forward boundary buffers (stage outputs to be sent)
    std::int32_t backward_boundary = -1;  // index of the pool of gradient boundary buffers
    std::int32_t first_wait = 0;          // RankClass::waits[first, first + count); hold the action's first instruction
    std::int32_t wait_count = 0;          //   on each of its streams
};

/// One tensor of the flat parameter buffer.
struct Parameter {
    std::string name;           // "layers.3.attention.qkv.weight", "embedding.weight", "head.norm.weight"
    std::int64_t offset = 0;    // elements in the flat buffer
    std::int64_t elements = 0;  // local
    models::SlotDecl decl;      // parts, shard dim, init, decay
    std::int32_t layer = 0;
};

/// Gradients reduced together, a contiguous range of the flat gradient buffer.
struct Bucket {
    std::int64_t offset = 0;
    std::int64_t elements = 0;
};

/// Bytes of one rank of a class. `live_peak` is what a perfect allocator would need at the worst moment of the
/// issue-order walk; `arena` is what the static layout takes (frames and boundaries whole), which the executor
/// allocates.
struct MemoryFootprint {
    std::int64_t parameters = 0;
    std::int64_t gradients = 0;
    std::int64_t optimizer_states = 0;  // master weights included
    std::int64_t activations_live_peak = 0;
    std::int64_t activations_arena = 0;
    std::int64_t transients_live_peak = 0;
    std::int64_t transients_arena = 0;
    std::int64_t boundaries_arena = 0;
    std::int64_t live_peak = 0;  // max over the walk of everything
    std::int64_t arena = 0;      // sum of what is allocated
    std::string peak_at;         // the action at which live_peak is reached
};

/// Ranks that do the same thing: here, the ranks of one pipeline stage.
struct RankClass {
    std::string name;  // "stage 0"
    std::int64_t pp_index = 0;
    std::int64_t first_block = 0, block_count = 0;
    std::vector<Action> actions;  // one step, in issue order
    std::vector<Wait> waits;
    std::vector<std::vector<Segment>> segment_lists;
    std::vector<Parameter> parameters;
    std::vector<Bucket> buckets;
    std::int64_t parameter_elements = 0;
    std::int64_t partial_begin = 0;         // elements; [partial_begin, parameter_elements) is the partial range
    std::int64_t tied_parameter_base = -1;  // element offset of a tied embedding weight, -1: none
    std::int64_t frame_bytes = 0;           // one micro-batch's saved activations
    std::int32_t frame_count = 0;           // most frames alive at once
    std::int64_t boundary_bytes = 0;        // one boundary buffer
    std::int32_t input_boundary_count = 0;
    std::int32_t forward_boundary_count = 0;
    std::int32_t backward_boundary_count = 0;
    std::int64_t transient_bytes = 0;
    MemoryFootprint memory;
};

struct MeshCoordinates {
    std::int64_t tp = 0, dp = 0, pp = 0;
};

struct Program {
    std::shared_ptr<const Plan> plan;
    std::vector<RankClass> classes;  // class i = pipeline stage i
    std::vector<Body> bodies;

    [[nodiscard]] std::int64_t world_size() const { return plan->parallelism.world_size(); }
    [[nodiscard]] MeshCoordinates coordinates(std::int64_t rank) const;
    [[nodiscard]] std::int64_t rank_at(MeshCoordinates at) const;
    [[nodiscard]] std::int32_t class_of(std::int64_t rank) const {
        return static_cast<std::int32_t>(coordinates(rank).pp);
    }
    /// Members of the rank's group on the axis, ascending; empty when the rank is in none. For the pipeline axes use
    /// peer_of.
    [[nodiscard]] std::vector<std::int64_t> group_of(GroupAxis axis, std::int64_t rank) const;
    /// The rank that an instruction on a pipeline stream talks to.
    [[nodiscard]] std::int64_t peer_of(Stream stream, std::int64_t rank) const;
};

/// Lowers a checked plan. The result satisfies validate(). Deterministic.
[[nodiscard]] Program lower(const Plan& plan);

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
[[nodiscard]] std::vector<StreamVolume> volumes(const Program& program, std::int32_t rank_class);

}  // namespace orrery::program
