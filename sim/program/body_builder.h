// Private to the lowerings: turns one pass over a layer into a Body. It splits the operators into instructions where
// another stream needs an event, adds the dependencies between streams, and lays out the transient arena.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/layer.h"
#include "sim/program/lowered_layer.h"
#include "sim/program/program.h"

namespace orrery::program {

/// How gradients of one range are reduced across ranks.
struct Reduction {
    CommKind kind = CommKind::all_reduce;  // or reduce_scatter, into the shard
    GroupAxis axis = GroupAxis::dp;
    bool replicates = false;          // afterwards the shards are all-reduced over dp_replicate
    DType dtype = DType::fp32;        // of the collective
    DType shard_dtype = DType::fp32;  // of the shards, and of their reduction over dp_replicate
    bool staged = false;       // gradients are cast or copied to Space::reduction first, and after an all-reduce back
    bool accumulates = false;  // reduce-scatter adds to the shard
    bool again = false;        // later micro-batches of the step add to the result and reduce it again
    bool operator==(const Reduction&) const = default;
};

/// A bucket that is complete once `gradient_slot` has been written. Offsets are relative to the segment's bases.
struct BucketCut {
    models::SlotIndex gradient_slot = models::kNoSlot;
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

/// Builds the body of one pass over the layer; `steps` is one of the layer's lists.
[[nodiscard]] Body build_body(const LoweredLayer& layer, Phase phase, const std::vector<models::Step>& steps,
                              const std::vector<BucketCut>& buckets);

/// What an instruction outside the compute stream waits for, in addition to other streams' accesses to its slots.
enum class Follows : std::uint8_t {
    computation,  // everything on the compute stream so far, including earlier bodies
    own,          // what its own body has computed so far; the lists order it after earlier bodies
};

/// Builds a body from operators on local streams and communications, in the order of the calls. Later computation waits
/// for those of them that access the same slots.
class BodyWriter {
  public:
    explicit BodyWriter(Phase phase, models::LayerKind kind = models::LayerKind::block);
    ~BodyWriter();
    models::SlotIndex slot(Slot slot);
    void op(const models::Operator& op, Stream stream = Stream::compute, const std::string& name = "",
            Follows follows = Follows::computation);
    void communicate(const std::string& name, Stream stream, const Communication& communication,
                     Follows follows = Follows::computation);
    /// The host waits until everything in the body has completed; with Follows::computation also all earlier
    /// computation.
    void host_wait(const std::string& name, Follows follows);
    /// Later computation waits for everything in flight on other streams.
    void join();
    [[nodiscard]] Body finish();

  private:
    struct State;
    std::unique_ptr<State> state_;
};

/// Writes the reduction of one unit or bucket: the copy to the staging buffer, if any, and the collectives.
/// `copies_back`: then also the copy from the staging buffer into the gradients.
void write_reduction(BodyWriter& writer, const std::string& name, const BucketCut& bucket, DType gradient_dtype,
                     bool copies_back = false);

/// Writes the copy of a reduced bucket from the staging buffer into the gradients.
void write_copy_back(BodyWriter& writer, const BucketCut& bucket, DType gradient_dtype);

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
[[nodiscard]] SlotStays walk_slots(const Body& body, const Segment& segment);

/// The change of live memory during one call of a body, in bytes relative to its start, by the issue-order walk. Saved
/// activations are allocated at their first write in the forward pass and freed after their last use in the backward
/// pass.
struct BodyMemory {
    std::int64_t activation_net = 0;
    std::int64_t activation_peak = 0;  // >= 0
    std::int64_t transient_peak = 0;
    std::int64_t joint_peak = 0;  // activations and transients together
};
[[nodiscard]] BodyMemory walk_body(const Body& body, const Segment& segment);

}  // namespace orrery::program
