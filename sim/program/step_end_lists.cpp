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

Operator streaming(OpKind kind, std::int64_t elements) {
    Operator op{.kind = kind, .elements = elements};
    op.flops = static_cast<double>(elements);
    return op;
}

class StepEnd {
  public:
    StepEnd(const Program& program, const RankLayout& layout, BodyLibrary& bodies, RankClass& result,
            IndexedVector<SegmentListId, ListOrder>& orders)
        : program_(program),
          plan_(*program.plan),
          layout_(layout),
          bodies_(bodies),
          result_(result),
          list_(result, bodies, orders) {}

    [[nodiscard]] SegmentListId sync();
    [[nodiscard]] SegmentListId optimizer();
    [[nodiscard]] bool validates_after_update() const {
        return checks_gradients() && plan_.implementation.host.validates_after_update &&
               !plan_.training.memory.offload_optimizer;
    }

  private:
    [[nodiscard]] const Precision& precision() const { return plan_.training.precision; }
    void add(Body body, Segment segment = {}, bool after_all = false) {
        if (body.instructions.empty()) return;
        segment.body = bodies_.add(std::move(body));
        list_.add(segment, after_all);
    }
    [[nodiscard]] std::vector<const Bucket*> crossing_buckets() const;
    void reduce_buckets();
    void copy_back();
    void sum_range(ParameterRange range, GroupAxis axis);
    void sum_tied();
    void check_gradients();
    void reduce_norm(BodyWriter& writer);
    void validate_update();
    [[nodiscard]] bool checks_gradients() const {
        return plan_.training.optimizer.clip_norm > 0 || precision().loss_scaling;
    }
    void update();
    void clear_gradients(BodyWriter& writer, SlotIndex original);
    void update_on_host();
    [[nodiscard]] std::vector<Slot> state_slots(Space space) const;
    [[nodiscard]] Operator update_operator(const std::vector<SlotIndex>& slots, const std::vector<Slot>& all) const;
    [[nodiscard]] Slot gradient_slot() const;
    /// Two values: the sum of the squared gradients, and the number of ranks on which it is not finite.
    [[nodiscard]] static Slot norm_slot() {
        return slot_at(Space::scalars, flat_slot("gradient.norm", SlotRole::loss, DType::fp64, 2), kNormOffset);
    }
    /// Whether the update clips the gradients. Otherwise a separate operator scales them before.
    [[nodiscard]] bool clips_in_update() const {
        return plan_.training.optimizer.clip_norm > 0 && plan_.implementation.kernels.fused_optimizer &&
               !precision().loss_scaling;
    }

    const Program& program_;
    const Plan& plan_;
    const RankLayout& layout_;
    BodyLibrary& bodies_;
    RankClass& result_;
    ListBuilder list_;
};

/// Reduces all buckets, if the last backward has not.
void StepEnd::reduce_buckets() {
    const ShardingRules& rules = layout_.rules;
    if (rules.overlaps || rules.reduces_units || rules.gathers_units) return;
    std::int32_t staged = 0;
    for (const Bucket* bucket : crossing_buckets()) {
        const auto buffer = static_cast<std::int32_t>(staged % kStagingBuffers);
        BucketCut cut{.range = bucket->range,
                      .elements = bucket->elements,
                      .shard_elements = bucket->shard_elements,
                      .reduction_offset = std::min<std::int64_t>(buffer * layout_.staging_bytes,
                                                                 result_.reduction_bytes - layout_.staging_bytes),
                      .reduction = rules.reduction(bucket->range)};
        if (!cut.reduction.staged) cut.reduction_offset = 0;
        BodyWriter writer(Phase::gradient_sync);
        const bool scatters = cut.reduction.kind == CommKind::reduce_scatter;
        const std::string name = "dp.bucket." + std::to_string(bucket - result_.buckets.data());
        write_reduction(writer, name, cut, layout_.gradient_dtype, cut.reduction.staged && !scatters);
        Segment segment;
        segment.gradient_base.fill(bucket->offset);
        segment.shard_base.fill(bucket->shard_offset);
        if (cut.reduction.staged) ++staged;
        add(writer.finish(), segment);
    }
}

/// The buckets that are reduced, from the last stage to the first. Ranks of a group that hold several stages agree on
/// this order.
std::vector<const Bucket*> StepEnd::crossing_buckets() const {
    std::vector<const Bucket*> order;
    for (const Bucket& bucket : result_.buckets) {
        if (layout_.rules.reduces(bucket.range)) order.push_back(&bucket);
    }
    const auto stage_of = [&](const Bucket* bucket) {
        for (const Parameter& parameter : result_.parameters) {
            if (parameter.offset == bucket->offset) {
                return result_.chunks[parameter.chunk].virtual_stage;
            }
        }
        return std::int64_t{0};
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](const Bucket* a, const Bucket* b) { return stage_of(a) > stage_of(b); });
    return order;
}

/// Copies back the buckets that are still in staging buffers.
void StepEnd::copy_back() {
    if (!layout_.rules.overlaps || layout_.rules.reduces_units) return;
    for (const BucketCut& cut : layout_.staged_last) {
        BodyWriter writer(Phase::gradient_sync);
        write_copy_back(writer, cut, layout_.gradient_dtype);
        add(writer.finish());
    }
}

/// Sums the partial gradients of one range. These sums run one after the other, after the buckets (Megatron-Core,
/// finalize_model_grads).
void StepEnd::sum_range(ParameterRange range, GroupAxis axis) {
    const std::int64_t begin = result_.range_begin[range];
    const std::int64_t elements = result_.range_end[range] - begin;
    if (layout_.rules.reduces_units || elements == 0 || program_.mesh->group_size(axis) < 2) return;
    BodyWriter writer(Phase::gradient_sync);
    const SlotIndex slot = writer.slot(
        slot_at(Space::gradient, flat_slot("partial.gradients", SlotRole::gradient, layout_.gradient_dtype, elements)));
    writer.communicate(std::string(name_of(axis)) + ".partial_gradients", Stream::tp,
                       Communication{.kind = CommKind::all_reduce,
                                     .axis = axis,
                                     .dtype = layout_.gradient_dtype,
                                     .elements = elements,
                                     .in = slot,
                                     .out = slot},
                       Follows::own);
    Segment segment;
    segment.gradient_base.fill(begin);
    add(writer.finish(), segment, true);
}

void StepEnd::sum_tied() {
    if (!layout_.holds_tied_copy) return;
    const auto weight = std::find_if(result_.parameters.begin(), result_.parameters.end(),
                                     [](const Parameter& p) { return p.name == kTiedWeight; });
    ORRERY_CHECK(weight != result_.parameters.end(), "a tied embedding without its weight");
    // If gradients are in shards, the shards are summed, since both stages shard the weight in the same way.
    const bool shards = layout_.rules.reduces_units;
    std::int64_t elements = weight->elements;
    std::int64_t base = weight->offset;
    if (shards) {
        const auto bucket = std::find_if(result_.buckets.begin(), result_.buckets.end(),
                                         [&](const Bucket& one) { return one.offset == weight->offset; });
        ORRERY_CHECK(bucket != result_.buckets.end(), "a tied embedding that is not a bucket by itself");
        elements = bucket->shard_elements;
        base = bucket->shard_offset;
    }
    const DType dtype = shards ? precision().gradient : layout_.gradient_dtype;
    BodyWriter writer(Phase::gradient_sync);
    const SlotIndex slot =
        writer.slot(slot_at(shards ? Space::gradient_shard : Space::gradient,
                            flat_slot("embedding.weight.gradient", SlotRole::gradient, dtype, elements)));
    writer.communicate("embedding.gradient", Stream::dp,
                       Communication{.kind = CommKind::all_reduce,
                                     .axis = GroupAxis::embedding,
                                     .dtype = dtype,
                                     .elements = elements,
                                     .in = slot,
                                     .out = slot},
                       Follows::own);
    Segment segment;
    segment.gradient_base.fill(base);
    segment.shard_base.fill(base);
    add(writer.finish(), segment, true);
}

SegmentListId StepEnd::sync() {
    reduce_buckets();
    copy_back();
    sum_range(ParameterRange::tensor_sum, GroupAxis::tp);
    sum_range(ParameterRange::kv_sum, GroupAxis::kv);
    sum_tied();
    return list_.is_empty() ? kNoList : list_.finish();
}

Slot StepEnd::gradient_slot() const {
    const bool shards = layout_.rules.shards_states;
    const DType dtype = layout_.rules.reduces_units ? precision().gradient : layout_.gradient_dtype;
    return slot_at(shards ? Space::gradient_shard : Space::gradient,
                   flat_slot("gradients", SlotRole::gradient, dtype, result_.optimizer_elements));
}

/// Sums the ranks' norm_slot values.
void StepEnd::reduce_norm(BodyWriter& writer) {
    const SlotIndex sum = writer.slot(norm_slot());
    const Parallelism& p = plan_.parallelism;
    const bool experts_apart = plan_.model.has_experts() && (p.ep > 1 || p.etp != p.tp);
    const GroupAxis axis = layout_.rules.shards_states || experts_apart ? GroupAxis::world : GroupAxis::model;
    if (program_.mesh->group_size(axis) < 2) return;
    writer.communicate(
        validates_after_update() ? "gradient.norm.validation" : "gradient.norm", Stream::dp,
        Communication{
            .kind = CommKind::all_reduce, .axis = axis, .dtype = DType::fp64, .elements = 2, .in = sum, .out = sum});
}

/// Computes the gradient norm and whether all gradients are finite: a sum over the ranks, for which the host may wait.
void StepEnd::check_gradients() {
    if (!checks_gradients()) return;
    BodyWriter writer(Phase::optimizer);
    const Slot gradients = gradient_slot();
    const SlotIndex slot = writer.slot(gradients);
    const SlotIndex sum = writer.slot(norm_slot());
    Operator norm = streaming(OpKind::gradient_norm, result_.optimizer_elements);
    norm.in = {slot};
    norm.out = {sum};
    norm.flops *= 2;
    norm.bytes_read = static_cast<double>(gradients.bytes);
    norm.bytes_written = 16;
    writer.op(norm);
    if (!validates_after_update()) {
        reduce_norm(writer);
        writer.join();  // the update reads the norm
    }
    if (plan_.implementation.host.waits_for_gradient_norm) {
        writer.host_wait("host.gradient_norm", Follows::computation);
    }
    Operator scale = streaming(OpKind::gradient_scale, result_.optimizer_elements);
    scale.in = {sum, slot};
    scale.out = {slot};
    scale.bytes_read = scale.bytes_written = static_cast<double>(gradients.bytes);
    if (!plan_.implementation.kernels.fused_optimizer || precision().loss_scaling) writer.op(scale);
    add(writer.finish());
}

/// Sums the norm after the update. The next backward waits for it, because rolling the update back needs its gradients.
void StepEnd::validate_update() {
    if (!validates_after_update()) return;
    BodyWriter writer(Phase::optimizer);
    reduce_norm(writer);
    add(writer.finish());
}

/// The slots of m and v, or of the momentum, then of the master weights.
std::vector<Slot> StepEnd::state_slots(Space space) const {
    const std::int64_t n = result_.optimizer_elements;
    std::vector<Slot> slots;
    std::int64_t offset = 0;
    const auto push = [&](const std::string& name) {
        slots.push_back(slot_at(space, flat_slot(name, SlotRole::saved, DType::fp32, n), offset));
        offset += slots.back().bytes;
    };
    if (plan_.training.optimizer.kind == OptimizerKind::sgd_momentum) {
        push("optimizer.momentum");
    } else {
        push("optimizer.m");
        push("optimizer.v");
    }
    if (keeps_master(plan_, layout_)) push("optimizer.master");
    return slots;
}

Operator StepEnd::update_operator(const std::vector<SlotIndex>& slots, const std::vector<Slot>& all) const {
    // slots: parameters, gradients, states…, master
    const bool sgd = plan_.training.optimizer.kind == OptimizerKind::sgd_momentum;
    const std::size_t states = sgd ? 1 : 2;
    const SlotIndex second = sgd ? kNoSlot : slots[3];
    const SlotIndex master = slots.size() > 2 + states ? slots.back() : kNoSlot;
    Operator op{.kind = sgd ? OpKind::sgd_momentum : OpKind::adamw,
                .elements = result_.optimizer_elements,
                .in = {slots[1]},
                .out = {slots[0], slots[2], second, slots[1], master}};
    for (const Slot& slot : all) {
        op.bytes_read += static_cast<double>(slot.bytes);
        op.bytes_written += static_cast<double>(slot.bytes);
    }
    constexpr double kAdamFlops = 16;
    constexpr double kMomentumFlops = 6;
    op.flops = (sgd ? kMomentumFlops : kAdamFlops) * static_cast<double>(result_.optimizer_elements);
    // Without a fused optimizer each of the update's element-wise operations reads and writes its operands again.
    constexpr double kEagerPasses = 4;
    if (!plan_.implementation.kernels.fused_optimizer) {
        op.bytes_read *= kEagerPasses;
        op.bytes_written *= kEagerPasses;
    }
    return op;
}

void StepEnd::update() {
    BodyWriter writer(Phase::optimizer);
    const bool shards = layout_.rules.shards_states;
    const DType stored =
        layout_.rules.gathers_units && plan_.implementation.stores_fp32_shards ? DType::fp32 : precision().parameter;
    std::vector<Slot> all{slot_at(shards ? Space::parameter_shard : Space::parameter,
                                  flat_slot("parameters", SlotRole::parameter, stored, result_.optimizer_elements)),
                          gradient_slot()};
    for (Slot& slot : state_slots(Space::optimizer)) all.push_back(std::move(slot));
    std::vector<SlotIndex> slots;
    slots.reserve(all.size());
    for (const Slot& slot : all) slots.push_back(writer.slot(slot));
    Operator op = update_operator(slots, all);
    if (clips_in_update()) op.in[1] = writer.slot(norm_slot());
    writer.op(op);
    clear_gradients(writer, kNoSlot);
    add(writer.finish());
}

/// Clears the gradients that the update has not cleared: it clears only those that it reads, which may be a shard of
/// the whole gradients, or a copy in host memory of the slot `original`.
void StepEnd::clear_gradients(BodyWriter& writer, SlotIndex original) {
    const bool part_of_whole = layout_.rules.shards_states && !layout_.rules.reduces_units;
    if (!part_of_whole && original == kNoSlot) return;
    const std::int64_t n = part_of_whole ? result_.gradient_buffer_elements : result_.optimizer_elements;
    Operator op = streaming(OpKind::clear, n);
    op.flops = 0;
    op.out = {part_of_whole ? writer.slot(slot_at(Space::gradient, flat_slot("gradients.all", SlotRole::gradient,
                                                                             layout_.gradient_dtype, n)))
                            : original};
    op.bytes_written =
        static_cast<double>(n * size_of(part_of_whole ? layout_.gradient_dtype : gradient_slot().decl.dtype));
    writer.op(op);
}

/// Copies the gradients to the host, which updates its states, and copies the parameters back.
void StepEnd::update_on_host() {
    BodyWriter writer(Phase::optimizer);
    const std::int64_t n = result_.optimizer_elements;
    const bool shards = layout_.rules.shards_states;
    const bool parameters_stay = plan_.training.memory.offload_parameters && layout_.rules.gathers_units;
    const SlotIndex gradients = writer.slot(gradient_slot());
    const DType sent = layout_.rules.reduces_units ? precision().gradient : layout_.gradient_dtype;
    // Parameters that are stored on the host come first in host memory, because units are gathered from there.
    const DType stored =
        parameters_stay && plan_.implementation.stores_fp32_shards ? DType::fp32 : precision().parameter;
    std::int64_t offset = parameters_stay ? n * size_of(stored) : 0;
    std::vector<Slot> host = state_slots(Space::host);
    for (Slot& slot : host) {
        slot.offset = offset;
        offset += slot.bytes;
    }
    const Slot host_gradients = slot_at(Space::host, flat_slot("gradients.host", SlotRole::gradient, sent, n), offset);
    const Slot host_parameters = slot_at(Space::host, flat_slot("parameters.host", SlotRole::parameter, stored, n),
                                         parameters_stay ? 0 : offset + host_gradients.bytes);
    std::vector<Slot> all{host_parameters, host_gradients};
    all.insert(all.end(), host.begin(), host.end());
    std::vector<SlotIndex> slots;
    slots.reserve(all.size());
    for (const Slot& slot : all) slots.push_back(writer.slot(slot));
    const auto copy = [&](OpKind kind, SlotIndex from, SlotIndex to, std::int64_t bytes) {
        Operator op = streaming(kind, n);
        op.in = {from};
        op.out = {to};
        op.bytes_read = op.bytes_written = static_cast<double>(bytes);
        op.offloaded = true;
        return op;
    };
    writer.op(copy(OpKind::copy_to_host, gradients, slots[1], host_gradients.bytes), Stream::copy_out, "gradients.out");
    Operator op = update_operator(slots, all);
    op.offloaded = true;
    if (clips_in_update()) op.in[1] = writer.slot(norm_slot());
    writer.op(op, Stream::host, "host.update");
    clear_gradients(writer, gradients);
    if (!parameters_stay) {
        const SlotIndex parameters =
            writer.slot(slot_at(shards ? Space::parameter_shard : Space::parameter,
                                flat_slot("parameters", SlotRole::parameter, precision().parameter, n)));
        writer.op(copy(OpKind::copy_from_host, slots[0], parameters, host_parameters.bytes), Stream::copy_in,
                  "parameters.in");
    }
    add(writer.finish());
}

SegmentListId StepEnd::optimizer() {
    check_gradients();
    if (plan_.training.memory.offload_optimizer) {
        update_on_host();
    } else {
        update();
    }
    validate_update();
    const ShardingRules& rules = layout_.rules;
    const bool gathers =
        rules.shards_states && !rules.gathers_units && !plan_.implementation.data_parallel.gathers_parameters_ahead;
    if (gathers) {
        for (const Bucket* bucket : crossing_buckets()) {
            list_.add(gather_bucket_segment(layout_, plan_, bodies_, result_, bucket - result_.buckets.data()));
        }
    }
    return list_.finish();
}

}  // namespace

bool keeps_master(const Plan& plan, const RankLayout& layout) {
    const bool shard_is_master = layout.rules.gathers_units && plan.implementation.stores_fp32_shards;
    return plan.training.precision.master_weights && !shard_is_master;
}

models::SlotDecl flat_slot(const std::string& name, SlotRole role, DType dtype, std::int64_t elements) {
    return {.name = name, .role = role, .dtype = dtype, .shape = {elements}};
}

Slot slot_at(Space space, models::SlotDecl decl, std::int64_t offset, ParameterRange range) {
    const std::int64_t bytes = decl.bytes();
    return {.decl = std::move(decl), .space = space, .offset = offset, .bytes = bytes, .range = range};
}

Segment gather_bucket_segment(const RankLayout& layout, const Plan& plan, BodyLibrary& bodies, const RankClass& ranks,
                              std::int64_t index) {
    const Bucket& bucket = ranks.buckets[static_cast<std::size_t>(index)];
    const Precision& precision = plan.training.precision;
    const DType sent = precision.fp8_parameters ? DType::fp8 : precision.parameter;
    BodyWriter writer(Phase::gather);
    const SlotIndex shard = writer.slot(slot_at(
        Space::parameter_shard, flat_slot("shard", SlotRole::parameter, precision.parameter, bucket.shard_elements)));
    const SlotIndex whole = writer.slot(
        slot_at(Space::parameter, flat_slot("bucket", SlotRole::parameter, precision.parameter, bucket.elements)));
    writer.communicate("dp.gather.bucket." + std::to_string(index), Stream::dp_gather,
                       Communication{.kind = CommKind::all_gather,
                                     .axis = layout.rules.gather_axis(bucket.range),
                                     .dtype = sent,
                                     .elements = bucket.elements,
                                     .in = shard,
                                     .out = whole},
                       Follows::own);
    Segment segment;
    const auto first = std::find_if(ranks.parameters.begin(), ranks.parameters.end(),
                                    [&](const Parameter& parameter) { return parameter.offset == bucket.offset; });
    ORRERY_CHECK(first != ranks.parameters.end(), "a bucket begins inside a parameter");
    segment.layer = first->layer;
    segment.parameter_base.fill(bucket.offset);
    segment.shard_base.fill(bucket.shard_offset);
    segment.body = bodies.add(writer.finish());
    return segment;
}

void list_gradient_sync(const Program& program, const RankLayout& layout, BodyLibrary& bodies, RankClass& result,
                        StageLists& lists) {
    lists.sync = StepEnd(program, layout, bodies, result, lists.orders).sync();
}

void list_optimizer(const Program& program, const RankLayout& layout, BodyLibrary& bodies, RankClass& result,
                    StageLists& lists) {
    StepEnd end(program, layout, bodies, result, lists.orders);
    lists.optimizer = end.optimizer();
    lists.checks_update = end.validates_after_update();
}

}  // namespace orrery::program
