// Private to the lowerings: turns one pass over a layer into a Body. It splits the operators into instructions where
// another stream needs an event, adds the dependencies between streams, and lays out the transient arena.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "models/layer.h"
#include "sim/program/lowered_layer.h"
#include "sim/program/program.h"

namespace orrery::program {

/// How gradients of one range are reduced across ranks.
struct Reduction {
    CommKind kind = CommKind::all_reduce;  // or reduce_scatter, into the shard
    GroupAxis axis = GroupAxis::dp;
    bool replicates = false;             // afterwards the shards are all-reduced over dp_replicate
    DType dtype = DType::fp32;           // of the collective
    DType gradient_dtype = DType::fp32;  // of the gradients before it
    DType shard_dtype = DType::fp32;     // of the shards, and of their reduction over dp_replicate
    bool staged = false;       // gradients are cast or copied to Space::reduction first, and after an all-reduce back
    bool accumulates = false;  // reduce-scatter adds to the shard
    bool again = false;        // later micro-batches of the step add to the result and reduce it again
    bool operator==(const Reduction&) const = default;
};

/// A bucket, which is complete once the last of its gradients has been written. Offsets are relative to the segment's
/// bases.
struct BucketCut {
    ParameterRange range = ParameterRange::dense;
    std::int64_t offset = 0;  // elements, from the gradient base
    std::int64_t elements = 0;
    std::int64_t shard_offset = 0;  // elements, from the shard base
    std::int64_t shard_elements = 0;
    std::int64_t reduction_offset = 0;  // bytes, from the reduction base
    // All-reduce through a staging buffer: the previous bucket in that buffer, which is copied back first.
    std::int64_t back_offset = 0, back_elements = 0;
    Reduction reduction;
    bool operator==(const BucketCut&) const = default;
};

/// Builds the body of one pass over the layer.
[[nodiscard]] Body build_body(const LoweredLayer& layer, Phase phase, const std::vector<BucketCut>& buckets);

[[nodiscard]] Slot slot_at(Space space, models::SlotDecl decl, std::int64_t offset = 0,
                           ParameterRange range = ParameterRange::dense);
/// A slot of `elements` values.
[[nodiscard]] Slot flat_slot(Space space, const std::string& name, models::SlotRole role, DType dtype,
                             std::int64_t elements, std::int64_t offset = 0,
                             ParameterRange range = ParameterRange::dense);

/// What an instruction outside the compute stream waits for, in addition to other streams' accesses to its slots.
enum class Follows : std::uint8_t {
    computation,  // everything on the compute stream so far, including earlier bodies
    own,          // what its own body has computed so far; the lists order it after earlier bodies
};

/// Builds a body from operators on local streams and communications, in the order of the calls. Operators on the
/// compute stream are appended to the open instruction until an event closes it: computation waits for those operations
/// on other streams that access the same slots.
class BodyWriter {
  public:
    explicit BodyWriter(Phase phase, models::LayerKind kind = models::LayerKind::block);
    models::SlotIndex slot(Slot slot) { return body_.slots.add(std::move(slot)); }
    /// Declares that the slot lies in the staging buffer at this offset: all slots there are the same memory.
    void stage(models::SlotIndex slot, std::int64_t offset);
    /// An operator that reads all of one slot and writes all of another, with a FLOP for each element that it reads.
    [[nodiscard]] models::Operator streaming(models::OpKind kind, models::SlotIndex from, models::SlotIndex to) const;
    void op(const models::Operator& op, Stream stream = Stream::compute, const std::string& name = "",
            Follows follows = Follows::computation);
    void clear(models::SlotIndex slot);
    /// `is_followed`: later computation on the communication's slots waits for it. `after`: also waits for this
    /// instruction, if not -1.
    InstructionIndex communicate(const std::string& name, Stream stream, const Communication& communication,
                                 Follows follows = Follows::computation, bool is_followed = true,
                                 InstructionIndex after = -1);
    void communicate(const models::Boundary& boundary, Follows follows);
    /// Sums all of the slot in place.
    void all_reduce(const std::string& name, Stream stream, GroupAxis axis, models::SlotIndex slot);
    /// The host waits until everything in the body has completed; with Follows::computation also all earlier
    /// computation.
    void host_wait(const std::string& name, Follows follows);
    /// Later computation waits for everything that is followed and in flight on other streams.
    void join();
    [[nodiscard]] Body finish();

  private:
    using Table = IndexedVector<models::SlotIndex, InstructionIndex>;
    using Instructions = std::set<InstructionIndex>;
    [[nodiscard]] Instruction& current() { return body_.instructions[open_]; }
    [[nodiscard]] const std::string& slot_name(models::SlotIndex slot) const { return body_.slots[slot].decl.name; }
    [[nodiscard]] Stream stream_of(InstructionIndex index) const { return body_.instructions[index].stream; }
    void add_computation(const models::Operator& op);
    /// Adds an operator on a stream other than compute as an instruction.
    void add_alone(const models::Operator& op, Stream stream, const std::string& name, const Instructions& pending,
                   Follows follows);
    void open(const Instructions& after);
    void close();
    void add_event(const Instructions& after);
    [[nodiscard]] std::vector<InstructionIndex> after_compute(const Instructions& pending, Stream stream,
                                                              Follows follows);
    [[nodiscard]] std::string unique(const std::string& name);
    [[nodiscard]] models::SlotIndex canonical(models::SlotIndex slot) const;
    void collect(const Table& table, models::SlotIndex named, Instructions& pending) const;
    [[nodiscard]] Instructions pending_of(const models::Operator& op) const;
    void note(Table& table, models::SlotIndex named, InstructionIndex index) const;
    void settle(InstructionIndex instruction);

    Body body_;
    Table writer_, reader_;  // by slot: other streams' last write and read, if the compute stream has not waited for it
    std::map<std::int64_t, models::SlotIndex> staging_;       // by offset: the first slot there
    std::map<models::SlotIndex, models::SlotIndex> aliases_;  // staged slots, by the first slot there
    std::map<std::string, int> used_;                         // names
    InstructionIndex open_ = -1;
    InstructionIndex last_compute_ = -1;
    double heaviest_flops_ = -1;
    std::string name_hint_;
};

/// Writes the reduction of one unit or bucket: if it is staged, the copy of the previous bucket out of the staging
/// buffer and the copy of this one into it; then the collectives. `copies_back`: then also the copy from the staging
/// buffer into the gradients.
void write_reduction(BodyWriter& writer, const std::string& name, const BucketCut& bucket, bool copies_back = false);

/// Writes the copy of a reduced bucket from the staging buffer into the gradients.
void write_copy_back(BodyWriter& writer, const std::string& name, const BucketCut& bucket);

/// Fills in the instruction counts of the streams and lays out the transient arena.
void complete(Body& body);

/// When a slot occupies memory during one call of a body. Positions count operators and communications in issue order.
struct SlotStay {
    models::SlotIndex slot = 0;
    bool transient = false;   // false: saved activations
    std::int32_t born = -1;   // allocated before this position; -1: not in this call
    std::int32_t freed = -1;  // freed after this position; -1: not in this call
};
struct SlotStays {
    std::vector<SlotStay> stays;  // by slot
    std::int32_t positions = 0;
};
/// Of a part of a body, the positions are those inside the part.
[[nodiscard]] SlotStays walk_slots(const Bodies& bodies, const Segment& segment);
/// What walk_slots depends on beside the bodies.
using StaysKey = std::pair<BodyId, std::array<bool, 5>>;
[[nodiscard]] StaysKey stays_key(const Segment& segment);

/// The change of live memory during one call of a body, in bytes relative to its start, by the issue-order walk. Saved
/// activations are allocated at their first write in the forward pass and freed after their last use in the backward
/// pass.
struct BodyMemory {
    std::int64_t activation_net = 0;
    std::int64_t transient_net = 0;    // not 0 only for a part of a body
    std::int64_t activation_peak = 0;  // >= 0
    std::int64_t transient_peak = 0;
    std::int64_t joint_peak = 0;       // activations and transients together
    std::int32_t joint_position = -1;  // at which joint_peak is first reached
};
[[nodiscard]] BodyMemory walk_body(const Body& body, const SlotStays& slots);

}  // namespace orrery::program
