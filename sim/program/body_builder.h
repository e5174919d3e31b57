// Private to the lowerings: turns one pass over a Layer into a Body. Cuts it where another stream needs an event, ties
// the streams together, and lays out the transient arena.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/layer.h"
#include "sim/program/layer_form.h"
#include "sim/program/program.h"

namespace orrery::program {

/// How gradients of one range cross ranks.
struct ReductionForm {
    CommKind kind = CommKind::all_reduce;  // or reduce_scatter, into the shard
    GroupAxis axis = GroupAxis::dp;
    bool replicates = false;          // afterwards shards are summed over dp_replicate
    DType dtype = DType::fp32;        // in which they cross
    DType shard_dtype = DType::fp32;  // of the shards, in which sets of them are summed
    bool staged = false;  // through Space::reduction: cast there, or copied into a fusion buffer; after an all-reduce
                          //   copied back from there
    bool accumulates = false;  // reduce-scatter adds to the shard
    bool again = false;        // what later micro-batches add is reduced together with what this one left
    bool operator==(const ReductionForm&) const = default;
};

/// A bucket that becomes complete when `gradient_slot` has been written; offsets relative to the segment's bases.
struct BucketCut {
    models::SlotIndex gradient_slot = models::kNoSlot;
    ParameterRange range = ParameterRange::dense;
    std::int64_t offset = 0;  // elements, from the gradient base
    std::int64_t elements = 0;
    std::int64_t shard_offset = 0;  // elements, from the shard base
    std::int64_t shard_elements = 0;
    std::int64_t reduction_offset = 0;  // bytes, from the reduction base
    // All-reduce through a staging buffer: the bucket that used the buffer before is copied back first.
    std::int64_t back_offset = 0, back_elements = 0;
    ReductionForm form;
    bool operator==(const BucketCut&) const = default;
};

/// A body of one pass over the layer; `steps` is one of the form's lists.
[[nodiscard]] Body build_body(const LayerForm& form, Phase phase, const std::vector<models::Step>& steps,
                              const std::vector<BucketCut>& buckets);

/// What an instruction on another stream than compute comes after, besides what touches its slots on other streams.
enum class Follows : std::uint8_t {
    computation,  // everything computed so far, of earlier bodies too
    own,          // what its own body has computed so far; the lists order it after earlier bodies
};

/// A body of operators on local streams and of communications, in the order given; what computes after one of them
/// waits for what it touched.
class BodyWriter {
  public:
    explicit BodyWriter(Phase phase, models::LayerKind kind = models::LayerKind::block);
    ~BodyWriter();
    models::SlotIndex slot(Slot slot);
    void op(const models::Operator& op, Stream stream = Stream::compute, const std::string& name = "",
            Follows follows = Follows::computation);
    void communicate(const std::string& name, Stream stream, const Communication& communication,
                     Follows follows = Follows::computation);
    /// The host waits until everything in the body, and what was computed before it if `computation`, has completed.
    void host_wait(const std::string& name, Follows follows);
    /// What computes later comes after everything that other streams have under way.
    void join();
    [[nodiscard]] Body finish();

  private:
    struct State;
    std::unique_ptr<State> state_;
};

/// The reduction of one unit or bucket: what is staged before, and the collectives.
/// `copies_back`: from the staging buffer into the gradients.
void write_reduction(BodyWriter& writer, const std::string& name, const BucketCut& bucket, DType gradient_dtype,
                     bool copies_back = false);

/// Copies a reduced bucket from the staging buffer into the gradients.
void write_copy_back(BodyWriter& writer, const BucketCut& bucket, DType gradient_dtype);

/// Fills in what follows from the instructions: their number on each stream, and the transient arena.
void complete(Body& body);

/// How long a slot takes memory during one call of a body: positions in issue order, over operators and communications.
struct SlotStay {
    std::int32_t slot = 0;
    bool transient = false;   // else saved activations
    std::int32_t born = -1;   // taken before this position; -1: not in this call
    std::int32_t freed = -1;  // given back after this position; -1: not in this call
};
struct SlotStays {
    std::vector<SlotStay> stays;  // by slot
    std::int32_t positions = 0;
};
[[nodiscard]] SlotStays walk_slots(const Body& body, const Segment& segment);

/// What one call of a body does to memory, by the issue-order walk and relative to its start, in bytes. Saved
/// activations appear at their first write in the forward pass and go after their last use in the backward pass.
struct BodyMemory {
    std::int64_t activation_net = 0;
    std::int64_t activation_peak = 0;  // >= 0
    std::int64_t transient_peak = 0;
    std::int64_t joint_peak = 0;  // activations and transients together
};
[[nodiscard]] BodyMemory walk_body(const Body& body, const Segment& segment);

}  // namespace orrery::program
