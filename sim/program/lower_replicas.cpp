// Lowers torch.nn.DataParallel: one process drives all devices, and device 0 is the master. Each batch has five
// exchanges (PyTorch, nn/parallel/data_parallel.py, _functions.py and comm.py). Before the forward, inputs are
// scattered and parameters broadcast in buffers of 10 MiB. Outputs are gathered to the master, which alone computes the
// loss. Their gradients are scattered. Finally the parameters' gradients are reduced to the master, which alone runs
// the optimizer. Nothing overlaps the broadcast.
#include <algorithm>

#include "core/error.h"
#include "core/units.h"
#include "sim/program/lowering.h"
#include "sim/program/step_slots.h"

namespace orrery::program {
namespace {

using models::kNoSlot;
using models::LayerKind;
using models::Operator;
using models::OpKind;
using models::SlotIndex;
using models::SlotRole;
using models::Step;

constexpr std::int64_t kCoalescedBytes = 10 << 20;

/// The head without the loss, and the loss.
struct SplitHead {
    LoweredLayer layer;      // forward up to the logits; backward from their gradient on
    std::vector<Step> loss;  // from the logits to their gradient
    SlotIndex logits = kNoSlot;
};

SplitHead split_head(const LoweredLayer& whole) {
    SplitHead head{.layer = whole};
    const auto first_product = std::find_if(whole.backward.begin(), whole.backward.end(), is_matmul);
    const auto last_product = std::find_if(whole.forward.rbegin(), whole.forward.rend(), is_matmul).base();
    ORRERY_CHECK(first_product != whole.backward.end() && last_product != whole.forward.begin(),
                 "a head without GEMMs");
    head.logits = std::get<Operator>(*(last_product - 1)).out[0];
    const SlotIndex gradient = std::get<Operator>(*first_product).in[0];
    head.layer.forward.clear();
    for (auto step = whole.forward.begin(); step != last_product; ++step) {
        (is_kind(*step, OpKind::load_targets) ? head.loss : head.layer.forward).push_back(*step);
    }
    head.loss.insert(head.loss.end(), last_product, whole.forward.end());
    head.loss.insert(head.loss.end(), whole.backward.begin(), first_product);
    head.layer.backward.assign(first_product, whole.backward.end());
    // The gradient of the logits overwrites the logits.
    if (gradient != head.logits) {
        for (std::vector<Step>* steps : {&head.layer.backward, &head.loss}) {
            for (Step& step : *steps) rename(step, gradient, head.logits);
        }
    }
    Slot& logits = head.layer.slots[head.logits];
    if (logits.space != Space::activation) {
        logits.space = Space::activation;
        logits.offset = head.layer.saved_bytes;
        head.layer.saved_bytes = align(head.layer.saved_bytes + logits.bytes);
    }
    logits.born = Phase::forward;
    logits.dies = Phase::backward;
    // Values that only the loss uses lie next to the master's gathered logits, not in a frame.
    for (const SlotIndex slot : head.layer.slots.indices()) {
        const bool in_a_frame = touches(head.layer.forward, slot) || touches(head.layer.backward, slot);
        if (!in_a_frame) head.layer.slots[slot].dies = Phase::forward;
    }
    return head;
}

/// The embedding without load_tokens, because its tokens come from the master.
struct FedEmbedding {
    LoweredLayer layer;
    Operator load;
};

FedEmbedding split_embedding(const LoweredLayer& whole) {
    FedEmbedding embedding{.layer = whole, .load = {}};
    std::vector<Step>& steps = embedding.layer.forward;
    const auto found =
        std::find_if(steps.begin(), steps.end(), [](const Step& step) { return is_kind(step, OpKind::load_tokens); });
    ORRERY_CHECK(found != steps.end(), "an embedding without tokens");
    embedding.load = std::get<Operator>(*found);
    steps.erase(found);
    return embedding;
}

void exchange(BodyWriter& writer, const std::string& name, Communication communication) {
    communication.axis = GroupAxis::dp;
    writer.communicate(name, Stream::dp, communication, Follows::own);
}

class ReplicaLowering {
  public:
    ReplicaLowering(Program& program, const ScheduleShape& shape, LayerLibrary& layers, BodyLibrary& bodies)
        : program_(program),
          plan_(*program.plan),
          shape_(shape),
          layers_(layers),
          bodies_(bodies),
          ranks_(plan_.parallelism.dp),
          embedding_(split_embedding(layers.layer(LayerKind::embedding, false))),
          head_(split_head(layers.layer(LayerKind::head, false))) {}

    void run() {
        program_.classes.push_back(lower(true));
        if (ranks_ > 1) program_.classes.push_back(lower(false));
    }

  private:
    RankClass lower(bool master);
    /// The operator of one rank, scaled to the batches of all ranks.
    [[nodiscard]] Operator on_all_batches(Operator op) const;
    [[nodiscard]] Body scatter_inputs(RankClass& result, const Segment& embedding, bool master);
    [[nodiscard]] Body coalesced(const RankClass& result, CommKind kind, bool master) const;
    [[nodiscard]] Body loss(RankClass& result, const Segment& head, bool master);
    /// Lists the actions of a step: those of each batch, and the update if there is one.
    void list_actions(RankClass& result, const std::vector<Action>& batch, const StageLists& lists) const;

    Program& program_;
    const Plan& plan_;
    const ScheduleShape& shape_;
    LayerLibrary& layers_;
    BodyLibrary& bodies_;
    std::int64_t ranks_;
    FedEmbedding embedding_;
    SplitHead head_;
};

Operator ReplicaLowering::on_all_batches(Operator op) const {
    op.rows *= ranks_;
    const bool loads = op.kind == OpKind::load_tokens || op.kind == OpKind::load_targets;
    if (loads) op.sources = ranks_;  // one block per rank, in the layout of scatter and gather
    const auto times = static_cast<double>(ranks_);
    op.flops *= times;
    op.bytes_read *= times;
    op.bytes_written *= times;
    return op;
}

Body ReplicaLowering::scatter_inputs(RankClass& result, const Segment& embedding, bool master) {
    BodyWriter writer(Phase::exchange);
    const std::int64_t all = plan_.training.sequence_length * plan_.training.micro_batch_size * ranks_;
    const SlotIndex loaded = embedding_.load.out[0];
    const std::int64_t place = embedding_.layer.slots[loaded].offset;
    const SlotIndex own =
        writer.slot(slot_at(Space::activation, embedding_.layer.decl(loaded), embedding.activation_base + place));
    SlotIndex whole = kNoSlot;  // only the master has the inputs of all ranks
    if (master) {
        whole = writer.slot(
            flat_slot(Space::reduction, "inputs.all", SlotRole::transient, DType::int32, all, result.reduction_bytes));
        result.reduction_bytes += align(4 * all);
        Operator load = on_all_batches(embedding_.load);
        load.out[0] = whole;
        writer.op(load);
    }
    exchange(writer, "dp.scatter_inputs",
             {.kind = CommKind::scatter, .dtype = DType::int32, .elements = all, .in = whole, .out = own});
    return writer.finish();
}

/// Broadcasts the parameters from the master, or reduces the gradients to it, in buffers of whole tensors. Replicas
/// clear their gradients after each batch, while the master's accumulate.
Body ReplicaLowering::coalesced(const RankClass& result, CommKind kind, bool master) const {
    BodyWriter writer(Phase::exchange);
    const Precision& precision = plan_.training.precision;
    const bool gradients = kind == CommKind::reduce;
    const DType dtype = gradients ? precision.gradient : precision.parameter;
    std::int64_t begin = 0, end = 0;
    const auto flush = [&] {
        if (end == begin) return;
        const SlotIndex slot = writer.slot(
            flat_slot(gradients ? Space::gradient : Space::parameter, gradients ? "gradients" : "parameters",
                      gradients ? SlotRole::gradient : SlotRole::parameter, dtype, end - begin, begin));
        exchange(writer, gradients ? "dp.reduce_gradients" : "dp.broadcast_parameters",
                 {.kind = kind, .dtype = dtype, .elements = end - begin, .in = slot, .out = slot});
        if (gradients && !master) writer.clear(slot);
        begin = end;
    };
    for (const Parameter& parameter : result.parameters) {
        const std::int64_t next = parameter.offset + parameter.elements;
        if ((next - begin) * size_of(dtype) > kCoalescedBytes) flush();
        end = next;
    }
    flush();
    return writer.finish();
}

/// The gather of the outputs to the master, the master's loss over all of them, and the scatter of their gradients.
Body ReplicaLowering::loss(RankClass& result, const Segment& head, bool master) {
    BodyWriter writer(Phase::exchange, LayerKind::head);
    const models::SlotDecl& decl = head_.layer.decl(head_.logits);
    const SlotIndex own =
        writer.slot(slot_at(Space::activation, decl, head.activation_base + head_.layer.slots[head_.logits].offset));
    const std::int64_t all = decl.elements() * ranks_;
    IndexedVector<SlotIndex, SlotIndex> renamed(head_.layer.slots.size(), kNoSlot);
    const auto gathered = [&](SlotIndex slot) {  // the slot of the loss, sized for the batches of all ranks
        if (slot == kNoSlot) return slot;
        SlotIndex& known = renamed[slot];
        if (known != kNoSlot) return known;
        models::SlotDecl whole = head_.layer.decl(slot);
        if (whole.role == SlotRole::loss) {
            known = writer.slot(slot_at(Space::scalars, whole));
            return known;
        }
        whole.name += ".all";
        whole.shape.front() *= ranks_;
        known = writer.slot(slot_at(Space::reduction, whole, result.reduction_bytes));
        result.reduction_bytes += align(whole.bytes());
        return known;
    };
    if (ranks_ == 1) renamed[head_.logits] = own;
    const SlotIndex everyone = master ? gathered(head_.logits) : own;
    const auto move = [&](const std::string& name, CommKind kind, SlotIndex in, SlotIndex out) {
        exchange(writer, name, {.kind = kind, .dtype = decl.dtype, .elements = all, .in = in, .out = out});
    };
    if (ranks_ > 1) move("dp.gather_outputs", CommKind::gather, own, everyone);
    if (master) {
        for (const Step& step : head_.loss) {
            Operator op = on_all_batches(std::get<Operator>(step));
            for (std::size_t i = 0; i < models::Operands::size(); ++i) {
                op.in[i] = gathered(op.in[i]);
                op.out[i] = gathered(op.out[i]);
            }
            op.scratch = gathered(op.scratch);
            writer.op(op);
        }
    }
    if (ranks_ > 1) move("dp.scatter_output_gradients", CommKind::scatter, everyone, own);
    return writer.finish();
}

void ReplicaLowering::list_actions(RankClass& result, const std::vector<Action>& batch, const StageLists& lists) const {
    ActionOrder order(lists.orders);
    const auto emit = [&](Action action) {
        action.first_wait = static_cast<std::int32_t>(result.waits.size());
        action.wait_count = order.add(result.actions.next_index(), action, {}, result.waits);
        result.actions.push_back(action);
    };
    for (int pass = 0; pass < 2; ++pass) {  // the second pass sees the first as the previous step
        result.actions.clear();
        result.waits.clear();
        if (pass > 0) order.next_step();
        for (std::int32_t m = 0; m < static_cast<std::int32_t>(plan_.micro_batches()); ++m) {
            for (Action action : batch) {
                action.micro_batch = m;
                emit(action);
            }
        }
        if (lists.optimizer != kNoList) emit({.kind = ActionKind::optimizer_step, .segments = lists.optimizer});
    }
}

RankClass ReplicaLowering::lower(bool master) {
    RankClass result;
    result.name = master ? "master" : "replicas";
    RankLayout layout = lay_out_rank(plan_, *program_.mesh, shape_, StepKind::steady, layers_, result);
    std::vector<LaidLayer>& layers = layout.chunks.front().layers;
    // Only the head's logits are kept in the frame, not the loss's values.
    result.chunks.front().frame_bytes += head_.layer.saved_bytes - layers.back().lowered->saved_bytes;
    layers.back().lowered = &head_.layer;
    if (ranks_ > 1) layers.front().lowered = &embedding_.layer;
    if (!master) result.optimizer_elements = 0;

    StageLists lists;
    const ListParts parts{program_, layout, bodies_, result, lists};
    std::vector<Action> batch;
    const auto add = [&](ActionKind kind, ListBuilder list) {
        batch.push_back({.kind = kind, .segments = list.finish(), .activation_frame = 0});
        if (kind == ActionKind::backward) batch.back().backward_boundary = 0;
    };
    const auto exchange = [&](Body body) {
        ListBuilder list = parts.new_list();
        list.add({}, std::move(body));
        add(ActionKind::exchange, std::move(list));
    };
    if (ranks_ > 1) {
        exchange(scatter_inputs(result, layers.front().segment, master));
        exchange(coalesced(result, CommKind::broadcast, master));
    }
    ListBuilder forward = parts.new_list(), backward = parts.new_list();
    for (const LaidLayer& layer : layers) {
        forward.prepare(layer);
        forward.pass(layer, Phase::forward);
    }
    for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) backward.pass(*layer, Phase::backward);
    add(ActionKind::forward, std::move(forward));
    exchange(loss(result, layers.back().segment, master));
    add(ActionKind::backward, std::move(backward));
    if (ranks_ > 1) exchange(coalesced(result, CommKind::reduce, master));
    if (master) list_optimizer(parts);
    list_actions(result, batch, lists);
    result.chunks.front().frame_count = 1;
    result.backward_boundary_count = 1;
    measure_memory(program_, layout, bodies_, result);
    return result;
}

}  // namespace

void lower_replicas(Program& program, const ScheduleShape& shape, LayerLibrary& layers, BodyLibrary& bodies) {
    ReplicaLowering(program, shape, layers, bodies).run();
}

}  // namespace orrery::program
