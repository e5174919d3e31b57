// The lists at the end of a step: the gradient reductions that remain after the last backward, and the optimizer.
#include <algorithm>

#include "core/error.h"
#include "sim/program/stage_lists.h"

namespace orrery::program {
namespace {

using models::kNoSlot;
using models::Operator;
using models::OpKind;
using models::SlotIndex;
using models::SlotRole;

/// A call whose gradients, or their shards, begin at these elements.
Segment call_at(std::int64_t gradients, std::int64_t shards) {
    Segment segment;
    segment.gradient_base.fill(gradients);
    segment.shard_base.fill(shards);
    return segment;
}

class StepEnd : ListParts {
  public:
    explicit StepEnd(const ListParts& parts) : ListParts(parts), list_(new_list()) {}

    [[nodiscard]] SegmentListId sync();
    [[nodiscard]] SegmentListId optimizer();
    [[nodiscard]] bool validates_after_update() const {
        return plan.training.checks_gradients() && plan.training.optimizer.post_validation &&
               !plan.training.memory.offload_optimizer;
    }

  private:
    [[nodiscard]] std::vector<const Bucket*> crossing_buckets() const;
    void reduce_buckets();
    void sum_range(ParameterRange range);
    void sum_tied();
    void check_gradients();
    void reduce_norm(BodyWriter& writer);
    void validate_update();
    void update();
    /// The whole gradients stay, of which the update reads and clears only this rank's shard.
    [[nodiscard]] bool keeps_whole_gradients() const {
        return layout.rules.shards_states && !layout.rules.reduces_units;
    }
    void clear_whole_gradients(BodyWriter& writer);
    void update_on_host();
    void add_states(std::vector<Slot>& slots, Space space, std::int64_t offset) const;
    [[nodiscard]] Operator update_operator(BodyWriter& writer, const std::vector<Slot>& all) const;
    [[nodiscard]] Slot parameter_slot(DType stored) const {
        return flat_slot(layout.rules.shards_states ? Space::parameter_shard : Space::parameter, "parameters",
                         SlotRole::parameter, stored, result.optimizer_elements);
    }
    [[nodiscard]] Slot gradient_slot() const;
    /// Two values: the sum of the squared gradients, and the number of ranks on which it is not finite.
    [[nodiscard]] static Slot norm_slot() {
        return flat_slot(Space::scalars, "gradient.norm", SlotRole::loss, DType::fp64, 2, kNormOffset);
    }
    /// Whether the update clips the gradients. Otherwise a separate operator scales them before.
    [[nodiscard]] bool clips_in_update() const {
        return plan.training.optimizer.clip_norm > 0 && plan.implementation.kernels.fused_optimizer &&
               !precision().loss_scaling;
    }

    ListBuilder list_;
};

/// Reduces all buckets, if the last backward has not.
void StepEnd::reduce_buckets() {
    if (layout.rules.overlaps || layout.rules.has_units()) return;
    std::int64_t staged = 0;
    for (const Bucket* bucket : crossing_buckets()) {
        BucketCut cut = layout.cut_of(*bucket, bucket->offset, bucket->shard_offset);
        if (cut.reduction.staged) {
            cut.reduction_offset = std::min(staged++ % kStagingBuffers * layout.staging_bytes,
                                            result.reduction_bytes - layout.staging_bytes);
        }
        BodyWriter writer(Phase::gradient_sync);
        const bool scatters = cut.reduction.kind == CommKind::reduce_scatter;
        write_reduction(writer, "dp.bucket." + std::to_string(bucket - result.buckets.data()), cut,
                        cut.reduction.staged && !scatters);
        list_.add(call_at(bucket->offset, bucket->shard_offset), writer.finish());
    }
}

/// The buckets that are reduced, from the last stage to the first. Ranks of a group that hold several stages agree on
/// this order.
std::vector<const Bucket*> StepEnd::crossing_buckets() const {
    std::vector<const Bucket*> order;
    for (const Bucket& bucket : result.buckets) {
        if (layout.rules.of(bucket.range).reduces) order.push_back(&bucket);
    }
    const auto stage_of = [&](const Bucket* bucket) { return result.chunks[first_of(*bucket).chunk].virtual_stage; };
    std::stable_sort(order.begin(), order.end(),
                     [&](const Bucket* a, const Bucket* b) { return stage_of(a) > stage_of(b); });
    return order;
}

/// Sums the partial gradients of one range. These sums run one after the other, after the buckets (Megatron-Core,
/// finalize_model_grads).
void StepEnd::sum_range(ParameterRange range) {
    const std::int64_t begin = result.range_begin[range];
    const std::int64_t elements = result.range_end[range] - begin;
    const GroupAxis axis = sum_axis(range);
    if (layout.rules.reduces_units || elements == 0 || program.mesh->group_size(axis) < 2) return;
    BodyWriter writer(Phase::gradient_sync);
    writer.all_reduce(std::string(name_of(axis)) + ".partial_gradients", Stream::tp, axis,
                      writer.slot(flat_slot(Space::gradient, "partial.gradients", SlotRole::gradient,
                                            layout.rules.gradient_dtype, elements)));
    list_.add(call_at(begin, 0), writer.finish(), true);
}

void StepEnd::sum_tied() {
    if (!layout.holds_tied_copy) return;
    const auto weight = std::ranges::find(result.parameters, kTiedWeight, &Parameter::name);
    ORRERY_CHECK(weight != result.parameters.end(), "a tied embedding without its weight");
    std::int64_t elements = weight->elements, base = weight->offset;
    if (layout.rules.reduces_units) {  // the shards are summed, since both stages shard the weight in the same way
        const auto bucket = std::ranges::find(result.buckets, weight->offset, &Bucket::offset);
        ORRERY_CHECK(bucket != result.buckets.end(), "a tied embedding that is not a bucket by itself");
        elements = bucket->shard_elements;
        base = bucket->shard_offset;
    }
    BodyWriter writer(Phase::gradient_sync);
    writer.all_reduce(
        "embedding.gradient", Stream::dp, GroupAxis::embedding,
        writer.slot(flat_slot(layout.rules.reduces_units ? Space::gradient_shard : Space::gradient,
                              "embedding.weight.gradient", SlotRole::gradient, precision().gradient, elements)));
    list_.add(call_at(base, base), writer.finish(), true);
}

SegmentListId StepEnd::sync() {
    reduce_buckets();
    // The buckets that are still in staging buffers.
    if (layout.rules.overlaps && !layout.rules.reduces_units) list_.copy_back(Phase::gradient_sync, layout.staged_last);
    sum_range(ParameterRange::tensor_sum);
    sum_range(ParameterRange::kv_sum);
    sum_tied();
    return list_.is_empty() ? kNoList : list_.finish();
}

Slot StepEnd::gradient_slot() const {
    return flat_slot(layout.rules.shards_states ? Space::gradient_shard : Space::gradient, "gradients",
                     SlotRole::gradient, precision().gradient, result.optimizer_elements);
}

/// Sums the ranks' norm_slot values.
void StepEnd::reduce_norm(BodyWriter& writer) {
    const SlotIndex sum = writer.slot(norm_slot());
    const Parallelism& p = plan.parallelism;
    const bool experts_apart = plan.model.has_experts() && (p.ep > 1 || p.etp != p.tp);
    const GroupAxis axis = layout.rules.shards_states || experts_apart ? GroupAxis::world : GroupAxis::model;
    if (program.mesh->group_size(axis) < 2) return;
    writer.all_reduce(validates_after_update() ? "gradient.norm.validation" : "gradient.norm", Stream::dp, axis, sum);
}

/// Computes the gradient norm and whether all gradients are finite: a sum over the ranks, for which the host may wait.
void StepEnd::check_gradients() {
    if (!plan.training.checks_gradients()) return;
    BodyWriter writer(Phase::optimizer);
    const SlotIndex slot = writer.slot(gradient_slot());
    const SlotIndex sum = writer.slot(norm_slot());
    Operator norm = writer.streaming(OpKind::gradient_norm, slot, sum);
    norm.flops *= 2;
    writer.op(norm);
    if (!validates_after_update()) {
        reduce_norm(writer);
        writer.join();  // the update reads the norm
    }
    if (plan.implementation.host.waits_for_gradient_norm && !validates_after_update()) {
        writer.host_wait("host.gradient_norm", Follows::computation);
    }
    Operator scale = writer.streaming(OpKind::gradient_scale, slot, slot);
    scale.in = {sum, slot};
    if (!plan.implementation.kernels.fused_optimizer || precision().loss_scaling) writer.op(scale);
    list_.add({}, writer.finish());
}

/// Sums the norm after the update. The next backward waits for it, because rolling the update back needs its gradients.
void StepEnd::validate_update() {
    if (!validates_after_update()) return;
    BodyWriter writer(Phase::optimizer);
    reduce_norm(writer);
    list_.add({}, writer.finish());
}

/// Appends the slots of m and v, or of the momentum, then of the master weights, which begin at `offset`.
void StepEnd::add_states(std::vector<Slot>& slots, Space space, std::int64_t offset) const {
    const auto add = [&](const std::string& name, DType dtype) {
        slots.push_back(flat_slot(space, name, SlotRole::saved, dtype, result.optimizer_elements, offset));
        offset += slots.back().bytes;
    };
    const DType moments = precision().moments;
    if (plan.training.optimizer.kind == OptimizerKind::sgd_momentum) {
        add("optimizer.momentum", moments);
    } else {
        add("optimizer.m", moments);
        add("optimizer.v", moments);
    }
    if (layout.keeps_master) add("optimizer.master", DType::fp32);
}

/// `all`: parameters, gradients, states and, if there is one, the master copy, which are added to the body.
Operator StepEnd::update_operator(BodyWriter& writer, const std::vector<Slot>& all) const {
    std::vector<SlotIndex> slots;
    for (const Slot& slot : all) slots.push_back(writer.slot(slot));
    const bool sgd = plan.training.optimizer.kind == OptimizerKind::sgd_momentum;
    const SlotIndex second = sgd ? kNoSlot : slots[3];
    const SlotIndex master = layout.keeps_master ? slots.back() : kNoSlot;
    Operator op{.kind = sgd ? OpKind::sgd_momentum : OpKind::adamw,
                .elements = result.optimizer_elements,
                .in = {slots[1]},
                .out = {slots[0], slots[2], second, slots[1], master}};
    if (clips_in_update()) op.in[1] = writer.slot(norm_slot());
    for (const Slot& slot : all) {
        op.bytes_read += static_cast<double>(slot.bytes);
        op.bytes_written += static_cast<double>(slot.bytes);
    }
    constexpr double kAdamFlops = 16;
    constexpr double kMomentumFlops = 6;
    op.flops = (sgd ? kMomentumFlops : kAdamFlops) * static_cast<double>(result.optimizer_elements);
    op.bytes_read *= plan.implementation.kernels.optimizer_passes();
    op.bytes_written *= plan.implementation.kernels.optimizer_passes();
    return op;
}

void StepEnd::update() {
    BodyWriter writer(Phase::optimizer);
    std::vector<Slot> all{parameter_slot(layout.stored_dtype), gradient_slot()};
    add_states(all, Space::optimizer, 0);
    writer.op(update_operator(writer, all));
    if (keeps_whole_gradients()) clear_whole_gradients(writer);
    list_.add({}, writer.finish());
}

/// Clears the gradients of which the update has cleared only this rank's shard.
void StepEnd::clear_whole_gradients(BodyWriter& writer) {
    writer.clear(writer.slot(flat_slot(Space::gradient, "gradients.all", SlotRole::gradient,
                                       layout.rules.gradient_dtype, result.gradient_buffer_elements)));
}

/// Copies the gradients to the host, which updates its states, and copies the parameters back.
void StepEnd::update_on_host() {
    BodyWriter writer(Phase::optimizer);
    const std::int64_t n = result.optimizer_elements;
    const bool parameters_stay = plan.training.memory.offload_parameters && layout.rules.gathers_units;
    const SlotIndex gradients = writer.slot(gradient_slot());
    // Parameters that are stored on the host come first in host memory, because units are gathered from there.
    const DType stored = parameters_stay ? layout.stored_dtype : precision().parameter;
    std::vector<Slot> all(2);
    add_states(all, Space::host, parameters_stay ? n * size_of(stored) : 0);
    const std::int64_t end = all.back().offset + all.back().bytes;
    all[1] = flat_slot(Space::host, "gradients.host", SlotRole::gradient, precision().gradient, n, end);
    all[0] = flat_slot(Space::host, "parameters.host", SlotRole::parameter, stored, n,
                       parameters_stay ? 0 : end + all[1].bytes);
    Operator update = update_operator(writer, all);
    update.offloaded = true;
    const auto copy = [&](OpKind kind, SlotIndex from, SlotIndex to) {
        Operator op = writer.streaming(kind, from, to);
        op.offloaded = true;
        return op;
    };
    const SlotIndex sent = update.in[0], updated = update.out[0];
    writer.op(copy(OpKind::copy_to_host, gradients, sent), Stream::copy_out, "gradients.out");
    writer.op(update, Stream::host, "host.update");
    if (keeps_whole_gradients()) {
        clear_whole_gradients(writer);
    } else {
        writer.clear(gradients);  // the update has cleared its copy only
    }
    if (!parameters_stay) {
        const SlotIndex parameters = writer.slot(parameter_slot(precision().parameter));
        writer.op(copy(OpKind::copy_from_host, updated, parameters), Stream::copy_in, "parameters.in");
    }
    list_.add({}, writer.finish());
}

SegmentListId StepEnd::optimizer() {
    check_gradients();
    if (plan.training.memory.offload_optimizer) {
        update_on_host();
    } else {
        update();
    }
    validate_update();
    if (layout.rules.gathers_buckets() && !gathers_buckets_ahead()) {
        for (const Bucket* bucket : crossing_buckets()) gather_bucket(list_, *bucket);
    }
    return list_.finish();
}

}  // namespace

const Parameter& ListParts::first_of(const Bucket& bucket) const {
    const auto first = std::ranges::find(result.parameters, bucket.offset, &Parameter::offset);
    ORRERY_CHECK(first != result.parameters.end(), "a bucket begins inside a parameter");
    return *first;
}

void ListParts::gather_bucket(ListBuilder& list, const Bucket& bucket) const {
    BodyWriter writer(Phase::gather);
    const auto slot = [&](Space space, const std::string& name, std::int64_t elements) {
        return writer.slot(flat_slot(space, name, SlotRole::parameter, precision().parameter, elements));
    };
    const SlotIndex shard = slot(Space::parameter_shard, "shard", bucket.shard_elements);
    const SlotIndex whole = slot(Space::parameter, "bucket", bucket.elements);
    writer.communicate("dp.gather.bucket." + std::to_string(&bucket - result.buckets.data()), Stream::dp_gather,
                       {.kind = CommKind::all_gather,
                        .axis = layout.rules.gather_axis(bucket.range),
                        .dtype = precision().fp8_parameters ? DType::fp8 : precision().parameter,
                        .elements = bucket.elements,
                        .in = shard,
                        .out = whole},
                       Follows::own);
    Segment segment;
    segment.layer = first_of(bucket).layer;
    segment.parameter_base.fill(bucket.offset);
    segment.shard_base.fill(bucket.shard_offset);
    list.add(segment, writer.finish());
}

void list_gradient_sync(const ListParts& parts) {
    parts.lists.sync = StepEnd(parts).sync();
}

void list_optimizer(const ListParts& parts) {
    StepEnd end(parts);
    parts.lists.optimizer = end.optimizer();
    parts.lists.checks_update = end.validates_after_update();
}

}  // namespace orrery::program
