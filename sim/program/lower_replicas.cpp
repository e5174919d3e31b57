// torch.nn.DataParallel: one process drives all devices and device 0 is the master. Five exchanges a batch (PyTorch,
// nn/parallel/data_parallel.py, _functions.py and comm.py): inputs are scattered, parameters broadcast (in buffers of
// 10 MiB) before every forward; outputs are gathered to the master, which alone computes the loss; their gradients are
// scattered, and the parameters' gradients reduced to the master, which alone updates. Nothing overlaps the broadcast.
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
using models::SlotIndex;
using models::SlotRole;
using models::Step;

constexpr std::int64_t kCoalescedBytes = 10 << 20;

bool is_matmul(const Step& step) {
    const auto* op = std::get_if<Operator>(&step);
    return op != nullptr && op->is_matmul();
}

/// The head without its loss, and the loss by itself.
struct SplitHead {
    LayerForm form;          // up to the logits, and from their gradient on
    std::vector<Step> loss;  // from the logits to their gradient
    SlotIndex logits = kNoSlot;
};

SplitHead split_head(const LayerForm& whole) {
    SplitHead head{.form = whole};
    const auto first_product = std::find_if(whole.backward.begin(), whole.backward.end(), is_matmul);
    const auto last_product = std::find_if(whole.forward.rbegin(), whole.forward.rend(), is_matmul).base();
    ORRERY_CHECK(first_product != whole.backward.end() && last_product != whole.forward.begin(),
                 "a head without products");
    head.logits = std::get<Operator>(*(last_product - 1)).out[0];
    const SlotIndex gradient = std::get<Operator>(*first_product).in[0];
    head.form.forward.clear();
    for (auto step = whole.forward.begin(); step != last_product; ++step) {
        const auto* op = std::get_if<Operator>(&*step);
        const bool targets = op != nullptr && op->kind == models::OpKind::load_targets;
        (targets ? head.loss : head.form.forward).push_back(*step);
    }
    head.loss.insert(head.loss.end(), last_product, whole.forward.end());
    head.loss.insert(head.loss.end(), whole.backward.begin(), first_product);
    head.form.backward.assign(first_product, whole.backward.end());
    // The gradient comes back where the logits were.
    if (gradient != head.logits) {
        for (std::vector<Step>* steps : {&head.form.backward, &head.loss}) {
            for (Step& step : *steps) {
                rename_reads(step, gradient, head.logits);
                rename_writes(step, gradient, head.logits);
            }
        }
    }
    const auto l = static_cast<std::size_t>(head.logits);
    if (head.form.places[l].space != Space::activation) {
        head.form.places[l] = {Space::activation, head.form.saved_bytes};
        head.form.saved_bytes = align(head.form.saved_bytes + head.form.slots[l].bytes());
    }
    head.form.lives[l] = {Phase::forward, Phase::backward};
    // What only the loss saves lies with the master's gathered logits, not in a frame.
    for (std::size_t slot = 0; slot < head.form.slots.size(); ++slot) {
        const auto index = static_cast<SlotIndex>(slot);
        const bool in_a_frame = touches(head.form.forward, index) || touches(head.form.backward, index);
        if (!in_a_frame) head.form.lives[slot].dies = Phase::forward;
    }
    return head;
}

/// The embedding without the loading of its tokens, which come from the master.
struct FedEmbedding {
    LayerForm form;
    Operator load;
};

FedEmbedding split_embedding(const LayerForm& whole) {
    FedEmbedding embedding{.form = whole, .load = {}};
    std::vector<Step>& steps = embedding.form.forward;
    const auto found = std::find_if(steps.begin(), steps.end(), [](const Step& step) {
        const auto* op = std::get_if<Operator>(&step);
        return op != nullptr && op->kind == models::OpKind::load_tokens;
    });
    ORRERY_CHECK(found != steps.end(), "an embedding without tokens");
    embedding.load = std::get<Operator>(*found);
    steps.erase(found);
    return embedding;
}

class ReplicaLowering {
  public:
    ReplicaLowering(Program& program, const ScheduleShape& shape, FormLibrary& forms, BodyLibrary& bodies)
        : program_(program),
          plan_(*program.plan),
          shape_(shape),
          forms_(forms),
          bodies_(bodies),
          ranks_(plan_.parallelism.dp),
          embedding_(split_embedding(forms.form(LayerKind::embedding, false))),
          head_(split_head(forms.form(LayerKind::head, false))) {}

    void run() {
        program_.classes.push_back(lower(true));
        if (ranks_ > 1) program_.classes.push_back(lower(false));
    }

  private:
    [[nodiscard]] const Precision& precision() const { return plan_.training.precision; }
    [[nodiscard]] std::int64_t tokens() const {
        return plan_.training.sequence_length * plan_.training.micro_batch_size;
    }
    RankClass lower(bool master);
    [[nodiscard]] SegmentListId list_of(RankClass& result, std::vector<ListOrder>& orders,
                                        const std::vector<Segment>& segments) {
        ListBuilder list(result, bodies_, orders);
        for (const Segment& segment : segments) list.add(segment);
        return list.finish();
    }
    /// Work of one rank made work on the whole batch.
    [[nodiscard]] Operator of_all(Operator op) const;
    [[nodiscard]] Body scatter_inputs(RankClass& result, const Segment& embedding, bool master);
    [[nodiscard]] Body coalesced(const RankClass& result, CommKind kind, bool master) const;
    [[nodiscard]] Body loss(RankClass& result, const Segment& head, bool master);
    /// The rank's layers in the order in which each pass runs them.
    struct Passes {
        std::vector<Segment> forward, backward;
    };
    [[nodiscard]] Passes passes_of(const LaidChunk& chunk);
    /// What a batch consists of; kNoList: nothing, as with a master alone.
    struct BatchLists {
        SegmentListId inputs = kNoList, broadcast = kNoList, forward = kNoList, loss = kNoList, backward = kNoList,
                      reduce = kNoList, optimizer = kNoList;
    };
    void list_actions(RankClass& result, const BatchLists& batch, const std::vector<ListOrder>& orders) const;

    Program& program_;
    const Plan& plan_;
    const ScheduleShape& shape_;
    FormLibrary& forms_;
    BodyLibrary& bodies_;
    std::int64_t ranks_;
    FedEmbedding embedding_;
    SplitHead head_;
    BodyId embedding_forward_ = -1, head_forward_ = -1, head_backward_ = -1;
};

Operator ReplicaLowering::of_all(Operator op) const {
    op.rows *= ranks_;
    const bool loads = op.kind == models::OpKind::load_tokens || op.kind == models::OpKind::load_targets;
    if (loads) op.sources = ranks_;  // block by block, as they are scattered and gathered
    const auto times = static_cast<double>(ranks_);
    op.flops *= times;
    op.bytes_read *= times;
    op.bytes_written *= times;
    return op;
}

Body ReplicaLowering::scatter_inputs(RankClass& result, const Segment& embedding, bool master) {
    BodyWriter writer(Phase::exchange);
    const std::int64_t all = tokens() * ranks_;
    const SlotIndex loaded = embedding_.load.out[0];
    const std::int64_t place = embedding_.form.places[static_cast<std::size_t>(loaded)].offset;
    const SlotIndex own =
        writer.slot(slot_at(Space::activation, embedding_.form.slot(loaded), embedding.activation_base + place));
    SlotIndex whole = kNoSlot;  // nothing goes out from a replica
    if (master) {
        whole = writer.slot(slot_at(Space::reduction, flat_slot("inputs.all", SlotRole::transient, DType::int32, all),
                                    result.reduction_bytes));
        result.reduction_bytes += align(4 * all);
        Operator load = of_all(embedding_.load);
        load.out[0] = whole;
        writer.op(load);
    }
    writer.communicate("dp.scatter_inputs", Stream::dp,
                       Communication{.kind = CommKind::scatter,
                                     .axis = GroupAxis::dp,
                                     .dtype = DType::int32,
                                     .elements = all,
                                     .in = whole,
                                     .out = own},
                       Follows::own);
    return writer.finish();
}

/// Parameters from the master, or gradients to it, buffer by buffer: a buffer takes tensors while they fit.
/// Replicas begin each batch with gradients of zero, the master adds them up.
Body ReplicaLowering::coalesced(const RankClass& result, CommKind kind, bool master) const {
    BodyWriter writer(Phase::exchange);
    const bool gradients = kind == CommKind::reduce;
    const DType dtype = gradients ? precision().gradient : precision().parameter;
    std::int64_t begin = 0, end = 0;
    const auto flush = [&] {
        if (end == begin) return;
        const SlotIndex slot =
            writer.slot(slot_at(gradients ? Space::gradient : Space::parameter,
                                flat_slot(gradients ? "gradients" : "parameters",
                                          gradients ? SlotRole::gradient : SlotRole::parameter, dtype, end - begin),
                                begin));
        writer.communicate(
            gradients ? "dp.reduce_gradients" : "dp.broadcast_parameters", Stream::dp,
            Communication{
                .kind = kind, .axis = GroupAxis::dp, .dtype = dtype, .elements = end - begin, .in = slot, .out = slot},
            Follows::own);
        if (gradients && !master) {
            Operator clear{.kind = models::OpKind::clear, .elements = end - begin, .out = {slot}};
            clear.bytes_written = static_cast<double>(clear.elements * size_of(dtype));
            writer.op(clear);
        }
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

/// Outputs to the master, its loss over all of them, and their gradients back.
Body ReplicaLowering::loss(RankClass& result, const Segment& head, bool master) {
    BodyWriter writer(Phase::exchange, LayerKind::head);
    const models::SlotDecl& decl = head_.form.slot(head_.logits);
    const SlotIndex own =
        writer.slot(slot_at(Space::activation, decl,
                            head.activation_base + head_.form.places[static_cast<std::size_t>(head_.logits)].offset));
    const std::int64_t all = decl.elements() * ranks_;
    std::vector<SlotIndex> renamed(head_.form.slots.size(), kNoSlot);
    const auto gathered = [&](SlotIndex slot) {  // the loss's slots, as long as the whole batch
        SlotIndex& known = renamed[static_cast<std::size_t>(slot)];
        if (slot == kNoSlot || known != kNoSlot) return known;
        models::SlotDecl whole = head_.form.slot(slot);
        if (whole.role == SlotRole::loss) {
            known = writer.slot(slot_at(Space::scalars, whole));
            return known;
        }
        whole.name += ".all";
        whole.shape.back() *= whole.shape.size() == 1 ? ranks_ : 1;
        if (whole.shape.size() > 1) whole.shape.front() *= ranks_;
        known = writer.slot(slot_at(Space::reduction, whole, result.reduction_bytes));
        result.reduction_bytes += align(whole.bytes());
        return known;
    };
    if (ranks_ == 1) renamed[static_cast<std::size_t>(head_.logits)] = own;
    const SlotIndex everyone = master ? gathered(head_.logits) : own;
    const auto exchange = [&](const std::string& name, CommKind kind, SlotIndex in, SlotIndex out) {
        writer.communicate(
            name, Stream::dp,
            Communication{
                .kind = kind, .axis = GroupAxis::dp, .dtype = decl.dtype, .elements = all, .in = in, .out = out},
            Follows::own);
    };
    if (ranks_ > 1) exchange("dp.gather_outputs", CommKind::gather, own, everyone);
    if (master) {
        for (const Step& step : head_.loss) {
            Operator op = of_all(std::get<Operator>(step));
            for (std::size_t i = 0; i < models::Operands::size(); ++i) {
                if (op.in[i] != kNoSlot) op.in[i] = gathered(op.in[i]);
                if (op.out[i] != kNoSlot) op.out[i] = gathered(op.out[i]);
            }
            if (op.scratch != kNoSlot) op.scratch = gathered(op.scratch);
            writer.op(op);
        }
    }
    if (ranks_ > 1) exchange("dp.scatter_output_gradients", CommKind::scatter, everyone, own);
    return writer.finish();
}

ReplicaLowering::Passes ReplicaLowering::passes_of(const LaidChunk& chunk) {
    if (head_forward_ < 0) {
        embedding_forward_ = bodies_.add(build_body(embedding_.form, Phase::forward, embedding_.form.forward, {}));
        head_forward_ = bodies_.add(build_body(head_.form, Phase::forward, head_.form.forward, {}));
        head_backward_ = bodies_.add(build_body(head_.form, Phase::backward, head_.form.backward, {}));
    }
    Passes passes;
    for (const LaidLayer& layer : chunk.layers) {
        const bool is_head = &layer == &chunk.layers.back(), is_fed = ranks_ > 1 && &layer == &chunk.layers.front();
        if (!layer.form->prepare.empty()) {
            passes.forward.push_back(layer.segment);
            passes.forward.back().body = bodies_.pass(*layer.form, Phase::prepare, {});
        }
        passes.forward.push_back(layer.segment);
        passes.forward.back().body = is_head  ? head_forward_
                                     : is_fed ? embedding_forward_
                                              : bodies_.pass(*layer.form, Phase::forward, {});
        passes.backward.push_back(layer.segment);
        passes.backward.back().body = is_head ? head_backward_ : bodies_.pass(*layer.form, Phase::backward, {});
    }
    std::reverse(passes.backward.begin(), passes.backward.end());
    return passes;
}

void ReplicaLowering::list_actions(RankClass& result, const BatchLists& batch,
                                   const std::vector<ListOrder>& orders) const {
    ActionOrder order(orders);
    for (int pass = 0; pass < 2; ++pass) {  // the second sees the first as the previous step
        result.actions.clear();
        result.waits.clear();
        if (pass > 0) order.next_step();
        const auto emit = [&](Action action) {
            if (action.segments == kNoList) return;
            action.first_wait = static_cast<std::int32_t>(result.waits.size());
            action.wait_count = order.add(static_cast<std::int32_t>(result.actions.size()), action, {}, result.waits);
            result.actions.push_back(action);
        };
        for (std::int32_t m = 0; m < static_cast<std::int32_t>(plan_.micro_batches()); ++m) {
            const auto exchange = [&](SegmentListId segments) {
                emit({.kind = ActionKind::exchange, .micro_batch = m, .segments = segments, .activation_frame = 0});
            };
            exchange(batch.inputs);
            exchange(batch.broadcast);
            emit({.kind = ActionKind::forward, .micro_batch = m, .segments = batch.forward, .activation_frame = 0});
            exchange(batch.loss);
            emit({.kind = ActionKind::backward,
                  .micro_batch = m,
                  .segments = batch.backward,
                  .activation_frame = 0,
                  .backward_boundary = 0});
            exchange(batch.reduce);
        }
        emit({.kind = ActionKind::optimizer_step, .segments = batch.optimizer});
    }
}

RankClass ReplicaLowering::lower(bool master) {
    RankClass result;
    result.name = master ? "master" : "replicas";
    RankLayout layout = lay_out_rank(plan_, *program_.mesh, shape_, StepKind::steady, forms_, result);
    const LaidChunk& chunk = layout.chunks.front();
    // The head keeps its logits for the gather, and nothing of the loss.
    const LaidLayer& head = chunk.layers.back();
    result.chunks.front().frame_bytes += head_.form.saved_bytes - head.form->saved_bytes;
    if (!master) result.optimizer_elements = 0;

    StageLists lists;
    const auto list = [&](const std::vector<Segment>& segments) { return list_of(result, lists.orders, segments); };
    const auto single = [&](Body body) {
        Segment segment;
        segment.body = bodies_.add(std::move(body));
        return list({segment});
    };
    const Passes passes = passes_of(chunk);
    BatchLists batch;
    batch.forward = list(passes.forward);
    batch.backward = list(passes.backward);
    if (ranks_ > 1) {
        batch.inputs = single(scatter_inputs(result, chunk.layers.front().segment, master));
        batch.broadcast = single(coalesced(result, CommKind::broadcast, master));
        batch.reduce = single(coalesced(result, CommKind::reduce, master));
    }
    batch.loss = single(loss(result, head.segment, master));
    if (master) {
        list_optimizer(program_, layout, bodies_, result, lists);
        batch.optimizer = lists.optimizer;
    }
    list_actions(result, batch, lists.orders);
    result.chunks.front().frame_count = 1;
    result.backward_boundary_count = 1;
    measure_memory(program_, layout, bodies_, result);
    return result;
}

}  // namespace

void lower_replicas(Program& program, const ScheduleShape& shape, FormLibrary& forms, BodyLibrary& bodies) {
    ReplicaLowering(program, shape, forms, bodies).run();
}

}  // namespace orrery::program
