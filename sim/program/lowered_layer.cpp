#include "sim/program/lowered_layer.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "core/error.h"
#include "sim/program/step_slots.h"

namespace orrery::program {
namespace {

using models::Boundary;
using models::kNoSlot;
using models::Operator;
using models::SlotDecl;
using models::SlotIndex;
using models::SlotRole;
using models::Step;

models::BlockPart part_of(const Step& step) {
    if (const auto* op = std::get_if<Operator>(&step)) return op->part;
    return std::get<Boundary>(step).part;
}

class LayerLowering {
  public:
    LayerLowering(models::Layer layer, const LayerOptions& options) {
        layer_.kind = layer.kind;
        layer_.options = options;
        for (SlotDecl& slot : layer.slots) layer_.slots.push_back({.decl = std::move(slot)});
        layer_.prepare = std::move(layer.prepare);
        layer_.forward = std::move(layer.forward);
        layer_.backward = std::move(layer.backward);
        if (!is_block(layer_.kind)) mark_as_end();
        in_frame_.assign(layer_.slots.size(), false);
        for (const SlotIndex i : layer_.slots.indices()) in_frame_[i] = role(i) == SlotRole::saved;
    }

    LoweredLayer build() {
        if (layer_.options.recompute != Recompute::none && is_block(layer_.kind)) recompute();
        if (layer_.options.splits_backward) split();
        order_parameters();
        if (layer_.options.overwrites_gradients) overwrite_gradients();
        find_lives();
        place();
        return std::move(layer_);
    }

  private:
    [[nodiscard]] std::array<std::vector<Step>*, 5> all_steps() {
        return {&layer_.prepare, &layer_.forward, &layer_.backward, &layer_.backward_input, &layer_.backward_weight};
    }
    void mark_as_end() {
        for (std::vector<Step>* steps : all_steps()) {
            for (Step& step : *steps) {
                if (auto* op = std::get_if<Operator>(&step)) op->at_end = true;
            }
        }
    }
    [[nodiscard]] const SlotDecl& decl(SlotIndex slot) const { return layer_.slots[slot].decl; }
    [[nodiscard]] SlotRole role(SlotIndex slot) const { return decl(slot).role; }
    SlotIndex add_slot(SlotDecl decl, bool in_frame) {
        in_frame_.push_back(in_frame);
        return layer_.slots.add({.decl = std::move(decl)});
    }
    SlotIndex add_copy(SlotIndex slot, const char* suffix, SlotRole role) {
        SlotDecl copy = decl(slot);
        copy.role = role;
        copy.name += suffix;
        return add_slot(std::move(copy), false);
    }
    [[nodiscard]] SlotIndex find_role(SlotRole wanted) const {
        for (const SlotIndex i : layer_.slots.indices()) {
            if (role(i) == wanted) return i;
        }
        return kNoSlot;
    }

    void recompute();
    void keep_inputs_of_recomputation(const std::vector<bool>& again);
    [[nodiscard]] std::vector<bool> steps_again() const;
    void drop_unneeded_steps(std::vector<bool>& again) const;
    void insert_recomputation(const std::vector<bool>& again);
    void shard_checkpoint();

    void split();
    /// The backward steps that read and that write each slot, in order.
    struct Uses {
        IndexedVector<SlotIndex, std::vector<std::size_t>> read_by, written_by;
    };
    [[nodiscard]] std::vector<bool> weight_steps(const Uses& uses) const;
    void keep_versions(const std::vector<bool>& is_weight, const Uses& uses);
    void keep_for_weights();

    void order_parameters();
    void overwrite_gradients();
    void find_lives();
    void place();
    [[nodiscard]] bool is_used(SlotIndex slot);
    void place(SlotIndex index);

    LoweredLayer layer_;
    using SlotSet = IndexedVector<SlotIndex, bool>;
    [[nodiscard]] SlotSet touched(const std::vector<Step>& steps) const;
    SlotSet in_frame_, used_;
    SlotIndex own_input_ = kNoSlot;     // sharded checkpoint: this rank's block of the layer's input
    SlotIndex gradient_out_ = kNoSlot;  // split backward: the gradient of the layer's input
    IndexedVector<SlotIndex, std::int64_t> parameter_offsets_;  // in the layer's elements of its range; -1: none
};

/// The forward steps that the options select for recomputation in the backward pass.
std::vector<bool> LayerLowering::steps_again() const {
    std::vector<bool> again(layer_.forward.size(), layer_.options.recompute == Recompute::full);
    if (layer_.options.recompute == Recompute::selective) {
        for (std::size_t i = 0; i < again.size(); ++i) {
            again[i] = layer_.options.parts[static_cast<std::size_t>(part_of(layer_.forward[i]))];
        }
    }
    return again;
}

/// Keeps only the steps whose results the backward pass, or a later recomputed step, reads.
void LayerLowering::drop_unneeded_steps(std::vector<bool>& again) const {
    SlotSet needed(layer_.slots.size(), false);
    for (const Step& step : layer_.backward) {
        for (const SlotIndex slot : slots_read(step)) needed[slot] = true;
    }
    for (std::size_t i = again.size(); i-- > 0;) {
        if (!again[i]) continue;
        again[i] = std::ranges::any_of(slots_written(layer_.forward[i]), [&](SlotIndex slot) { return needed[slot]; });
        if (!again[i]) continue;
        for (const SlotIndex slot : slots_read(layer_.forward[i])) needed[slot] = true;
    }
}

/// Whatever a recomputed step reads must either be recomputed too or be kept in the frame.
void LayerLowering::keep_inputs_of_recomputation(const std::vector<bool>& again) {
    // A value that is also written by a step that is not recomputed stays in the frame.
    SlotSet rewritten(layer_.slots.size(), false), stays = rewritten;
    for (std::size_t i = 0; i < again.size(); ++i) {
        for (const SlotIndex slot : slots_written(layer_.forward[i])) (again[i] ? rewritten : stays)[slot] = true;
    }
    for (const SlotIndex slot : stays.indices()) rewritten[slot] = rewritten[slot] && !stays[slot];
    for (std::size_t i = 0; i < again.size(); ++i) {
        if (!again[i]) continue;
        for (const SlotIndex slot : slots_read(layer_.forward[i])) {
            if (role(slot) == SlotRole::transient && !rewritten[slot]) in_frame_[slot] = true;
        }
    }
    for (const SlotIndex slot : rewritten.indices()) {
        if (rewritten[slot] && role(slot) == SlotRole::saved) in_frame_[slot] = false;
    }
}

void LayerLowering::recompute() {
    std::vector<bool> again = steps_again();
    const bool selective = layer_.options.recompute == Recompute::selective;
    if (selective || layer_.options.stops_early) drop_unneeded_steps(again);
    if (std::find(again.begin(), again.end(), true) == again.end()) return;
    keep_inputs_of_recomputation(again);
    insert_recomputation(again);
    if (layer_.options.shards_checkpoint && layer_.options.tp > 1) shard_checkpoint();
}

/// Full recomputation runs before the backward pass; selective recomputation of a part runs right before the backward
/// step that first needs one of its values.
void LayerLowering::insert_recomputation(const std::vector<bool>& again) {
    std::vector<bool> done(layer_.forward.size(), false);
    std::vector<Step> result;
    const SlotIndex out = find_role(SlotRole::hidden_out);
    SlotIndex again_out = kNoSlot;  // a transient for the recomputed output, which nobody receives
    const auto run_again = [&](std::size_t i) {
        Step step = layer_.forward[i];
        if (auto* op = std::get_if<Operator>(&step)) op->again = true;
        if (out != kNoSlot && again_out == kNoSlot && writes(step, out)) {
            again_out = add_copy(out, ".again", SlotRole::transient);
        }
        if (again_out != kNoSlot) rename(step, out, again_out);
        result.push_back(step);
        done[i] = true;
    };
    constexpr std::size_t kNobody = std::numeric_limits<std::size_t>::max();
    IndexedVector<SlotIndex, std::size_t> last_writer(layer_.slots.size(), kNobody);  // among the recomputed steps
    for (std::size_t i = 0; i < again.size(); ++i) {
        if (!again[i]) continue;
        for (const SlotIndex slot : slots_written(layer_.forward[i])) last_writer[slot] = i;
    }
    // The part of the last recomputed step that writes the slot, unless it has run.
    const auto due_part = [&](SlotIndex slot) -> std::optional<models::BlockPart> {
        const std::size_t writer = slot < last_writer.next_index() ? last_writer[slot] : kNobody;
        if (writer == kNobody || done[writer]) return std::nullopt;
        return part_of(layer_.forward[writer]);
    };
    const auto run_part = [&](auto&& self, models::BlockPart part) -> void {
        for (std::size_t i = 0; i < again.size(); ++i) {
            if (!again[i] || done[i] || part_of(layer_.forward[i]) != part) continue;
            for (const SlotIndex slot : slots_read(layer_.forward[i])) {
                const auto other = due_part(slot);
                if (other && *other != part) self(self, *other);
            }
            if (!done[i]) run_again(i);
        }
    };
    if (layer_.options.recompute == Recompute::full) {
        for (std::size_t i = 0; i < again.size(); ++i) {
            if (again[i]) run_again(i);
        }
    }
    for (Step& step : layer_.backward) {
        for (const SlotIndex slot : slots_read(step)) {
            if (const auto part = due_part(slot)) run_part(run_part, *part);
        }
        result.push_back(step);
    }
    layer_.backward = std::move(result);
}

/// Keeps only this rank's shard of the layer's input, and gathers the whole input before the backward pass.
void LayerLowering::shard_checkpoint() {
    const SlotIndex hidden = find_role(SlotRole::hidden_in);
    if (hidden == kNoSlot || decl(hidden).shape.front() % layer_.options.tp != 0) return;
    SlotDecl part = decl(hidden);
    part.role = SlotRole::saved;
    part.name = "checkpoint";
    part.shape.front() /= layer_.options.tp;
    SlotDecl whole = decl(hidden);
    whole.role = SlotRole::transient;
    whole.name = "checkpoint.gathered";
    const std::int64_t elements = whole.elements();
    const DType dtype = whole.dtype;
    own_input_ = add_slot(decl(hidden), false);
    const SlotIndex kept = add_slot(std::move(part), true);
    const SlotIndex gathered = add_slot(std::move(whole), false);
    Operator copy{
        .kind = models::OpKind::cast, .elements = elements / layer_.options.tp, .in = {own_input_}, .out = {kept}};
    copy.bytes_read = copy.bytes_written = static_cast<double>(decl(kept).bytes());
    layer_.forward.insert(layer_.forward.begin(), copy);
    for (Step& step : layer_.backward) rename_reads(step, hidden, gathered);
    layer_.backward.insert(layer_.backward.begin(), Boundary{.kind = Boundary::Kind::gather,
                                                             .axis = Boundary::Axis::tp,
                                                             .in = kept,
                                                             .out = gathered,
                                                             .elements = elements,
                                                             .dtype = dtype});
    layer_.keeps_hidden_in = false;
}

/// Marks the weight steps: those that write only parameter gradients, or only values that other weight steps read.
std::vector<bool> LayerLowering::weight_steps(const Uses& uses) const {
    std::vector<bool> is_weight(layer_.backward.size(), false);
    for (std::size_t i = layer_.backward.size(); i-- > 0;) {
        const std::vector<SlotIndex> written = slots_written(layer_.backward[i]);
        // A step that reads parameters is an input step: gathered parameters are available for the input gradients
        // only.
        const bool reads_parameter = std::ranges::any_of(slots_read(layer_.backward[i]), [&](SlotIndex slot) {
            return role(slot) == SlotRole::parameter || role(slot) == SlotRole::weight_copy;
        });
        const auto is_input = [&](std::size_t later) { return later > i && !is_weight[later]; };
        is_weight[i] = !written.empty() && !reads_parameter && std::ranges::all_of(written, [&](SlotIndex slot) {
            if (role(slot) == SlotRole::gradient) return true;
            if (role(slot) != SlotRole::transient && role(slot) != SlotRole::saved) return false;
            const std::vector<std::size_t>& readers = uses.read_by[slot];
            return !readers.empty() && readers.back() > i && std::ranges::none_of(readers, is_input) &&
                   std::ranges::none_of(uses.written_by[slot], is_input);
        });
    }
    return is_weight;
}

/// Weight steps run after all input steps, so an input step must not overwrite a value that a weight step still reads:
/// it writes a new slot instead, which later steps use. The last write of the hidden state's gradient goes to a slot of
/// its own, from which the gradient leaves the layer.
void LayerLowering::keep_versions(const std::vector<bool>& is_weight, const Uses& uses) {
    const SlotIndex hidden = find_role(SlotRole::hidden_gradient);
    const bool has_input = find_role(SlotRole::hidden_in) != kNoSlot;  // the embedding passes no gradient on
    for (const SlotIndex slot : uses.written_by.indices()) {           // without the slots added in the loop
        const std::vector<std::size_t>& writers = uses.written_by[slot];
        if (role(slot) == SlotRole::gradient || role(slot) == SlotRole::parameter || writers.empty()) continue;
        std::vector<std::size_t> users;
        std::ranges::set_union(uses.read_by[slot], writers, std::back_inserter(users));
        std::size_t last_write = layer_.backward.size();
        for (const std::size_t i : writers) {
            if (!is_weight[i]) last_write = i;
        }
        SlotIndex current = slot;
        bool weight_has_read = false;
        for (const std::size_t i : users) {
            Step& step = layer_.backward[i];
            const bool writes_it = writes(step, slot);
            weight_has_read = weight_has_read || (is_weight[i] && reads(step, slot));
            rename_reads(step, slot, current);
            if (!writes_it) continue;
            const bool leaves = slot == hidden && i == last_write && has_input;
            if (!is_weight[i] && (weight_has_read || leaves)) {
                current = add_copy(slot, leaves ? ".out" : ".next", leaves ? role(slot) : SlotRole::transient);
                if (leaves) gradient_out_ = current;
                weight_has_read = false;
            }
            rename_writes(step, slot, current);
        }
    }
}

/// A value that input steps write and weight steps read is kept in the frame. If it is a recomputed value, the forward
/// pass gets a transient slot of its own for it.
void LayerLowering::keep_for_weights() {
    SlotSet written_by_input(layer_.slots.size(), false);
    for (const Step& step : layer_.backward_input) {
        for (const SlotIndex slot : slots_written(step)) written_by_input[slot] = true;
    }
    for (const Step& step : layer_.backward_weight) {
        for (const SlotIndex slot : slots_read(step)) {
            const bool local = role(slot) == SlotRole::transient || role(slot) == SlotRole::saved;
            if (!local || !written_by_input[slot] || in_frame_[slot]) continue;
            in_frame_[slot] = true;
            if (!writes(layer_.forward, slot)) continue;
            const SlotIndex own = add_copy(slot, ".forward", SlotRole::transient);
            written_by_input.push_back(false);
            for (Step& other : layer_.forward) rename(other, slot, own);
        }
    }
}

void LayerLowering::split() {
    Uses uses;
    uses.read_by.resize(layer_.slots.size());
    uses.written_by.resize(layer_.slots.size());
    for (std::size_t i = 0; i < layer_.backward.size(); ++i) {
        const auto add = [&](auto& users, const std::vector<SlotIndex>& slots) {
            for (const SlotIndex slot : slots) {
                if (users[slot].empty() || users[slot].back() != i) users[slot].push_back(i);
            }
        };
        add(uses.read_by, slots_read(layer_.backward[i]));
        add(uses.written_by, slots_written(layer_.backward[i]));
    }
    const std::vector<bool> is_weight = weight_steps(uses);
    keep_versions(is_weight, uses);
    for (std::size_t i = 0; i < layer_.backward.size(); ++i) {
        (is_weight[i] ? layer_.backward_weight : layer_.backward_input).push_back(layer_.backward[i]);
    }
    keep_for_weights();
    const SlotIndex hidden = find_role(SlotRole::hidden_gradient);
    const bool is_read =
        hidden != kNoSlot && (reads(layer_.backward_input, hidden) || reads(layer_.backward_weight, hidden));
    if (is_read) layer_.hidden_gradient_bytes = decl(hidden).bytes();
}

/// Orders the parameter slots by the operator that last writes their gradient.
void LayerLowering::order_parameters() {
    // An interlaced vocabulary computes its gradients in the forward pass.
    for (const std::vector<Step>* steps : all_steps()) {
        for (const Step& step : *steps) {
            if (std::holds_alternative<Boundary>(step)) continue;
            for (const SlotIndex slot : slots_written(step)) {
                if (role(slot) != SlotRole::gradient || decl(slot).tied) continue;
                std::erase(layer_.ready_order, decl(slot).parameter_slot);
                layer_.ready_order.push_back(decl(slot).parameter_slot);
            }
        }
    }
}

ParameterRange range_of(const SlotDecl& parameter) {
    if (parameter.expert) return ParameterRange::expert;
    if (parameter.gradient_sum == models::GradientSum::none) return ParameterRange::dense;
    return parameter.gradient_sum == models::GradientSum::tp ? ParameterRange::tensor_sum : ParameterRange::kv_sum;
}

/// The slots that the steps read or write.
LayerLowering::SlotSet LayerLowering::touched(const std::vector<Step>& steps) const {
    SlotSet slots(layer_.slots.size(), false);
    for (const Step& step : steps) {
        for (const SlotIndex slot : slots_read(step)) slots[slot] = true;
        for (const SlotIndex slot : slots_written(step)) slots[slot] = true;
    }
    return slots;
}

bool LayerLowering::is_used(SlotIndex slot) {
    if (used_.empty()) {
        used_.resize(layer_.slots.size(), false);
        for (const std::vector<Step>* steps : all_steps()) {
            const SlotSet slots = touched(*steps);
            for (const SlotIndex one : slots.indices()) used_[one] = used_[one] || slots[one];
        }
    }
    return used_[slot];
}

void LayerLowering::place(SlotIndex index) {
    Slot& slot = layer_.slots[index];
    slot.bytes = slot.decl.bytes();
    slot.space = Space::transient;
    // No step reads or writes the slot: it is an operator's scratch, or belongs to another part of a divided layer.
    if (!is_used(index)) return;
    const auto append = [&](Space space, std::int64_t& used) {
        slot.space = space;
        slot.offset = used;
        used = align(used + slot.bytes);
    };
    const auto follow = [&](SlotIndex parameter, Space own, Space tied) {
        slot.space = slot.decl.tied ? tied : own;
        if (slot.decl.tied) return;
        slot.offset = parameter_offsets_[parameter];
        slot.range = range_of(decl(parameter));
        ORRERY_CHECK(slot.offset >= 0, slot.decl.name + " has no gradient");
    };
    switch (slot.decl.role) {
        case SlotRole::hidden_in:
            slot.space = Space::hidden_in;
            layer_.hidden_in_bytes = slot.bytes;
            if (index == own_input_) slot.own_block = GroupAxis::tp;
            return;
        case SlotRole::hidden_out:
            slot.space = Space::hidden_out;
            return;
        case SlotRole::hidden_gradient:
            slot.space = index == gradient_out_ ? Space::hidden_gradient_out : Space::hidden_gradient;
            return;
        case SlotRole::loss:
            slot.space = Space::scalars;
            return;
        case SlotRole::weight_copy:
            return append(Space::weight_copy, layer_.weight_copy_bytes);
        case SlotRole::saved:
        case SlotRole::transient:
            if (in_frame_[index]) append(Space::activation, layer_.saved_bytes);
            return;
        case SlotRole::parameter:
            return follow(index, Space::parameter, Space::tied_parameter);
        case SlotRole::gradient:
            return follow(slot.decl.parameter_slot, Space::gradient, Space::tied_gradient);
    }
}

/// The first operator that writes a gradient in a backward pass overwrites it.
void LayerLowering::overwrite_gradients() {
    SlotSet written(layer_.slots.size(), false);
    for (Step& step : layer_.backward) {
        auto* op = std::get_if<Operator>(&step);
        if (op == nullptr) continue;
        int gradients = 0, first = 0;
        for (const SlotIndex slot : op->out) {
            if (slot == kNoSlot || role(slot) != SlotRole::gradient) continue;
            ++gradients;
            const bool tied = layer_.kind == models::LayerKind::embedding && layer_.options.adds_to_tied_gradient &&
                              decl(decl(slot).parameter_slot).name == kTiedWeight;
            if (!written[slot] && !tied) ++first;
            written[slot] = true;
        }
        ORRERY_CHECK(first == 0 || first == gradients, "an operator accumulates one gradient and overwrites another");
        op->overwrites_gradients = first > 0;
    }
}

/// Finds the lifetimes. A saved value that no backward step reads need not be kept in the frame.
void LayerLowering::find_lives() {
    const bool splits = layer_.options.splits_backward;
    const Phase input = splits ? Phase::backward_input : Phase::backward;
    const std::vector<Step>& input_steps = splits ? layer_.backward_input : layer_.backward;
    const SlotSet in_forward = touched(layer_.forward), in_input = touched(input_steps),
                  in_weight = touched(layer_.backward_weight);
    for (const SlotIndex slot : layer_.slots.indices()) {
        Slot& life = layer_.slots[slot];
        life.born = in_forward[slot] ? Phase::forward : input;
        life.dies = in_input[slot] ? input : Phase::forward;
        if (splits && in_weight[slot]) life.dies = Phase::backward_weight;
        const bool is_unneeded = life.dies == Phase::forward && role(slot) == SlotRole::saved;
        if (is_unneeded && !layer_.options.leaves_communication_open) in_frame_[slot] = false;
    }
}

/// Inside a layer, padding may be at most 1/1024 of the elements before it.
constexpr std::int64_t kPaddingShare = 1024;

/// The padding in elements after each parameter of the ready order. Each range of a layer is padded to a multiple of
/// FlatPadding at its end, and earlier where the padding is small enough. With FlatPadding::each_parameter every
/// parameter is padded.
std::vector<std::int64_t> paddings(const LoweredLayer& layer) {
    const FlatPadding& rules = layer.options.padding;
    std::vector<std::int64_t> result(layer.ready_order.size());
    const auto is_tied = [&](std::size_t i) {
        return rules.keeps_tied_apart && layer.decl(layer.ready_order[i]).name == kTiedWeight;
    };
    for (const ParameterRange range : kRanges) {
        std::vector<std::size_t> members;
        for (std::size_t i = 0; i < layer.ready_order.size(); ++i) {
            if (range_of(layer.decl(layer.ready_order[i])) == range) members.push_back(i);
        }
        std::int64_t held = 0;  // elements since the last padded end
        for (std::size_t m = 0; m < members.size(); ++m) {
            const SlotDecl& decl = layer.decl(layer.ready_order[members[m]]);
            held += decl.elements();
            std::int64_t multiple = rules.of(range).multiple;
            if (rules.each_parameter && !decl.shape.empty() && decl.shape.front() > 0) {
                multiple = rules.of(range).shards * (decl.elements() / decl.shape.front());
            }
            const std::int64_t padding = (multiple - held % multiple) % multiple;
            const bool last = m + 1 == members.size();
            const bool apart = is_tied(members[m]) || (!last && is_tied(members[m + 1]));
            if (!last && !apart && !rules.each_parameter && padding > held / kPaddingShare) continue;
            result[members[m]] = padding;
            held = 0;
        }
    }
    return result;
}

void LayerLowering::place() {
    layer_.paddings = paddings(layer_);
    parameter_offsets_.assign(layer_.slots.size(), -1);
    for (std::size_t i = 0; i < layer_.ready_order.size(); ++i) {
        const SlotDecl& parameter = decl(layer_.ready_order[i]);
        std::int64_t& total = layer_.elements[range_of(parameter)];
        parameter_offsets_[layer_.ready_order[i]] = total;
        total += parameter.elements() + layer_.paddings[i];
    }
    for (const SlotIndex slot : layer_.slots.indices()) place(slot);
}

}  // namespace

const std::vector<Step>& LoweredLayer::steps(Phase pass) const {
    if (pass == Phase::prepare) return prepare;
    if (pass == Phase::backward) return backward;
    if (pass == Phase::backward_input) return backward_input;
    return pass == Phase::backward_weight ? backward_weight : forward;
}

std::int64_t LoweredLayer::parameter_elements() const {
    return std::accumulate(elements.begin(), elements.end(), std::int64_t{0});
}

LoweredLayer lower_layer(models::Layer layer, const LayerOptions& options) {
    return LayerLowering(std::move(layer), options).build();
}

}  // namespace orrery::program
