#include "sim/program/layer_form.h"

#include <algorithm>
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

std::size_t at(SlotIndex slot) {
    return static_cast<std::size_t>(slot);
}

models::BlockPart part_of(const Step& step) {
    if (const auto* op = std::get_if<Operator>(&step)) return op->part;
    return std::get<Boundary>(step).part;
}

class FormBuilder {
  public:
    FormBuilder(models::Layer layer, const FormOptions& options) {
        form_.kind = layer.kind;
        form_.options = options;
        form_.slots = std::move(layer.slots);
        form_.prepare = std::move(layer.prepare);
        form_.forward = std::move(layer.forward);
        form_.backward = std::move(layer.backward);
        if (!is_block()) mark_as_end();
        in_frame_.assign(form_.slots.size(), false);
        for (std::size_t i = 0; i < form_.slots.size(); ++i) {
            in_frame_[i] = form_.slots[i].role == SlotRole::saved;
        }
    }

    LayerForm build() {
        if (form_.options.recompute != Recompute::none && is_block()) recompute();
        if (form_.options.splits_backward) split();
        order_parameters();
        if (form_.options.overwrites_gradients) overwrite_gradients();
        find_lives();
        place();
        return std::move(form_);
    }

  private:
    [[nodiscard]] bool is_block() const {
        return form_.kind == models::LayerKind::block || form_.kind == models::LayerKind::expert_block;
    }
    void mark_as_end() {
        for (std::vector<Step>* steps : {&form_.prepare, &form_.forward, &form_.backward}) {
            for (Step& step : *steps) {
                if (auto* op = std::get_if<Operator>(&step)) op->at_end = true;
            }
        }
    }
    [[nodiscard]] SlotRole role(SlotIndex slot) const { return form_.slots[at(slot)].role; }
    SlotIndex add_slot(SlotDecl decl, bool in_frame) {
        form_.slots.push_back(std::move(decl));
        in_frame_.push_back(in_frame);
        return static_cast<SlotIndex>(form_.slots.size() - 1);
    }
    [[nodiscard]] SlotIndex find_role(SlotRole wanted) const {
        for (std::size_t i = 0; i < form_.slots.size(); ++i) {
            if (form_.slots[i].role == wanted) return static_cast<SlotIndex>(i);
        }
        return kNoSlot;
    }

    void recompute();
    void keep_what_nobody_recomputes(const std::vector<bool>& again);
    [[nodiscard]] std::vector<bool> steps_again() const;
    void drop_what_nobody_needs(std::vector<bool>& again) const;
    void insert_recomputation(const std::vector<bool>& again);
    void shard_checkpoint();

    void split();
    [[nodiscard]] std::vector<bool> weight_steps() const;
    void keep_versions(const std::vector<bool>& is_weight);
    void keep_for_weights();

    void order_parameters();
    void overwrite_gradients();
    void find_lives();
    void place();
    [[nodiscard]] bool is_used(SlotIndex slot) const;
    [[nodiscard]] SlotPlace place_of(SlotIndex slot);

    LayerForm form_;
    std::vector<bool> in_frame_;
    SlotIndex own_input_ = kNoSlot;     // checkpoints in parts: what this rank keeps of the input
    SlotIndex gradient_out_ = kNoSlot;  // split backward: where the gradient leaves
    std::vector<std::pair<SlotIndex, std::int64_t>> parameter_offsets_;
};

/// Which forward steps run again in the backward pass.
std::vector<bool> FormBuilder::steps_again() const {
    std::vector<bool> again(form_.forward.size(), form_.options.recompute == Recompute::full);
    if (form_.options.recompute == Recompute::selective) {
        for (std::size_t i = 0; i < again.size(); ++i) {
            again[i] = form_.options.parts[static_cast<std::size_t>(part_of(form_.forward[i]))];
        }
    }
    return again;
}

/// From the end: a step is needed when the backward pass, or a later step that runs again, reads what it writes.
void FormBuilder::drop_what_nobody_needs(std::vector<bool>& again) const {
    std::vector<bool> needed(form_.slots.size(), false);
    for (const Step& step : form_.backward) {
        for (const SlotIndex slot : slots_read(step)) needed[at(slot)] = true;
    }
    for (std::size_t i = again.size(); i-- > 0;) {
        if (!again[i]) continue;
        const std::vector<SlotIndex> written = slots_written(form_.forward[i]);
        again[i] = std::any_of(written.begin(), written.end(), [&](SlotIndex slot) { return needed[at(slot)]; });
        if (!again[i]) continue;
        for (const SlotIndex slot : slots_read(form_.forward[i])) needed[at(slot)] = true;
    }
}

/// What a step that runs again reads must be there: either it is written again too, or it is kept.
void FormBuilder::keep_what_nobody_recomputes(const std::vector<bool>& again) {
    std::vector<bool> rewritten(form_.slots.size(), false);
    for (std::size_t i = 0; i < again.size(); ++i) {
        if (!again[i]) continue;
        for (const SlotIndex slot : slots_written(form_.forward[i])) rewritten[at(slot)] = true;
    }
    for (std::size_t i = 0; i < again.size(); ++i) {
        if (again[i]) continue;
        // A value that a step outside the recomputed parts writes stays where it is, whoever else writes it.
        for (const SlotIndex slot : slots_written(form_.forward[i])) rewritten[at(slot)] = false;
    }
    for (std::size_t i = 0; i < again.size(); ++i) {
        if (!again[i]) continue;
        for (const SlotIndex slot : slots_read(form_.forward[i])) {
            if (role(slot) == SlotRole::transient && !rewritten[at(slot)]) in_frame_[at(slot)] = true;
        }
    }
    for (std::size_t slot = 0; slot < rewritten.size(); ++slot) {
        if (rewritten[slot] && form_.slots[slot].role == SlotRole::saved) in_frame_[slot] = false;
    }
}

void FormBuilder::recompute() {
    std::vector<bool> again = steps_again();
    const bool selective = form_.options.recompute == Recompute::selective;
    if (selective || form_.options.stops_early) drop_what_nobody_needs(again);
    if (std::find(again.begin(), again.end(), true) == again.end()) return;
    keep_what_nobody_recomputes(again);
    insert_recomputation(again);
    if (form_.options.shards_checkpoint && form_.options.tp > 1) shard_checkpoint();
}

/// Full: everything first. Selective: each part right before the backward step that first needs one of its values.
void FormBuilder::insert_recomputation(const std::vector<bool>& again) {
    std::vector<bool> done(form_.forward.size(), false);
    std::vector<Step> result;
    SlotIndex again_out = kNoSlot;  // the layer's output has left: its second computation goes nowhere
    const auto run_again = [&](std::size_t i) {
        Step step = form_.forward[i];
        if (auto* op = std::get_if<Operator>(&step)) op->again = true;
        for (const SlotIndex slot : slots_written(step)) {
            if (role(slot) != SlotRole::hidden_out) continue;
            if (again_out == kNoSlot) {
                SlotDecl decl = form_.slots[at(slot)];
                decl.role = SlotRole::transient;
                decl.name += ".again";
                again_out = add_slot(std::move(decl), false);
            }
        }
        const SlotIndex out = find_role(SlotRole::hidden_out);
        if (out != kNoSlot && again_out != kNoSlot) {
            rename_writes(step, out, again_out);
            rename_reads(step, out, again_out);
        }
        result.push_back(step);
        done[i] = true;
    };
    const auto part_with = [&](SlotIndex slot) {  // the last step that writes it again
        for (std::size_t i = form_.forward.size(); i-- > 0;) {
            if (again[i] && writes(form_.forward[i], slot)) return static_cast<std::ptrdiff_t>(i);
        }
        return std::ptrdiff_t{-1};
    };
    const auto run_part = [&](auto&& self, models::BlockPart part) -> void {
        for (std::size_t i = 0; i < again.size(); ++i) {
            if (!again[i] || done[i] || part_of(form_.forward[i]) != part) continue;
            for (const SlotIndex slot : slots_read(form_.forward[i])) {
                const std::ptrdiff_t writer = part_with(slot);
                if (writer < 0 || done[static_cast<std::size_t>(writer)]) continue;
                const models::BlockPart other = part_of(form_.forward[static_cast<std::size_t>(writer)]);
                if (other != part) self(self, other);
            }
            if (!done[i]) run_again(i);
        }
    };
    if (form_.options.recompute == Recompute::full) {
        for (std::size_t i = 0; i < again.size(); ++i) {
            if (again[i]) run_again(i);
        }
    }
    for (Step& step : form_.backward) {
        for (const SlotIndex slot : slots_read(step)) {
            const std::ptrdiff_t writer = part_with(slot);
            if (writer >= 0 && !done[static_cast<std::size_t>(writer)]) {
                run_part(run_part, part_of(form_.forward[static_cast<std::size_t>(writer)]));
            }
        }
        result.push_back(step);
    }
    form_.backward = std::move(result);
}

/// The layer's input is kept as this rank's part of it, and gathered before it is needed again.
void FormBuilder::shard_checkpoint() {
    const SlotIndex hidden = find_role(SlotRole::hidden_in);
    if (hidden == kNoSlot || form_.slots[at(hidden)].shape.front() % form_.options.tp != 0) return;
    SlotDecl part = form_.slots[at(hidden)];
    part.role = SlotRole::saved;
    part.name = "checkpoint";
    part.shape.front() /= form_.options.tp;
    SlotDecl whole = form_.slots[at(hidden)];
    whole.role = SlotRole::transient;
    whole.name = "checkpoint.gathered";
    const std::int64_t elements = whole.elements();
    const DType dtype = whole.dtype;
    own_input_ = add_slot(form_.slots[at(hidden)], false);
    const SlotIndex kept = add_slot(std::move(part), true);
    const SlotIndex gathered = add_slot(std::move(whole), false);
    Operator copy{
        .kind = models::OpKind::cast, .elements = elements / form_.options.tp, .in = {own_input_}, .out = {kept}};
    copy.bytes_read = copy.bytes_written = static_cast<double>(form_.slots[at(kept)].bytes());
    form_.forward.insert(form_.forward.begin(), copy);
    for (Step& step : form_.backward) rename_reads(step, hidden, gathered);
    form_.backward.insert(form_.backward.begin(), Boundary{.kind = Boundary::Kind::gather,
                                                           .axis = Boundary::Axis::tp,
                                                           .in = kept,
                                                           .out = gathered,
                                                           .elements = elements,
                                                           .dtype = dtype});
    form_.keeps_hidden_in = false;
}

/// Weight steps: those that write parameter gradients only, and those whose results only weight steps read.
std::vector<bool> FormBuilder::weight_steps() const {
    std::vector<bool> is_weight(form_.backward.size(), false);
    for (std::size_t i = form_.backward.size(); i-- > 0;) {
        const std::vector<SlotIndex> written = slots_written(form_.backward[i]);
        // Where parameters are gathered for a pass, they are there for the input gradients only.
        const std::vector<SlotIndex> read_here = slots_read(form_.backward[i]);
        const bool reads_parameter = std::any_of(read_here.begin(), read_here.end(), [&](SlotIndex slot) {
            return role(slot) == SlotRole::parameter || role(slot) == SlotRole::weight_copy;
        });
        is_weight[i] =
            !written.empty() && !reads_parameter && std::all_of(written.begin(), written.end(), [&](SlotIndex slot) {
                if (role(slot) == SlotRole::gradient) return true;
                if (role(slot) != SlotRole::transient && role(slot) != SlotRole::saved) return false;
                bool read = false;
                for (std::size_t later = i + 1; later < form_.backward.size(); ++later) {
                    if (reads(form_.backward[later], slot)) {
                        if (!is_weight[later]) return false;
                        read = true;
                    }
                    if (writes(form_.backward[later], slot) && !is_weight[later]) return false;
                }
                return read;
            });
    }
    return is_weight;
}

/// A weight step runs after all input steps, so a value that it reads must not be overwritten by them: from there on
/// they go on with another version. The gradient of the hidden state goes from where it comes in to where it leaves.
void FormBuilder::keep_versions(const std::vector<bool>& is_weight) {
    const SlotIndex hidden = find_role(SlotRole::hidden_gradient);
    const bool goes_on = find_role(SlotRole::hidden_in) != kNoSlot;  // not below the embedding
    const std::size_t slots = form_.slots.size();
    for (std::size_t s = 0; s < slots; ++s) {
        const auto slot = static_cast<SlotIndex>(s);
        if (role(slot) == SlotRole::gradient || role(slot) == SlotRole::parameter) continue;
        SlotIndex current = slot;
        bool weight_has_read = false;
        std::size_t last_write = form_.backward.size();
        for (std::size_t i = 0; i < form_.backward.size(); ++i) {
            if (!is_weight[i] && writes(form_.backward[i], slot)) last_write = i;
        }
        for (std::size_t i = 0; i < form_.backward.size(); ++i) {
            Step& step = form_.backward[i];
            const bool writes_it = writes(step, slot);
            if (reads(step, slot)) {
                weight_has_read = weight_has_read || is_weight[i];
                if (current != slot) rename_reads(step, slot, current);
            }
            if (!writes_it || is_weight[i]) {
                if (writes_it && current != slot) rename_writes(step, slot, current);
                continue;
            }
            const bool leaves = slot == hidden && i == last_write && goes_on;
            if (weight_has_read || leaves) {
                SlotDecl decl = form_.slots[s];
                decl.name += leaves ? ".out" : ".next";
                if (!leaves) decl.role = SlotRole::transient;
                current = add_slot(std::move(decl), false);
                if (leaves) gradient_out_ = current;
                weight_has_read = false;
            }
            if (current != slot) rename_writes(step, slot, current);
        }
    }
}

/// What input steps write and weight steps read waits in the frame. Where that is a value computed again, the forward
/// pass goes on with one of its own, which does not wait.
void FormBuilder::keep_for_weights() {
    std::vector<bool> written_by_input(form_.slots.size(), false);
    for (const Step& step : form_.backward_input) {
        for (const SlotIndex slot : slots_written(step)) written_by_input[at(slot)] = true;
    }
    for (const Step& step : form_.backward_weight) {
        for (const SlotIndex slot : slots_read(step)) {
            const bool local = role(slot) == SlotRole::transient || role(slot) == SlotRole::saved;
            if (!local || !written_by_input[at(slot)] || in_frame_[at(slot)]) continue;
            in_frame_[at(slot)] = true;
            const bool in_forward = std::any_of(form_.forward.begin(), form_.forward.end(),
                                                [&](const Step& other) { return writes(other, slot); });
            if (!in_forward) continue;
            SlotDecl decl = form_.slots[at(slot)];
            decl.role = SlotRole::transient;
            decl.name += ".forward";
            const SlotIndex own = add_slot(std::move(decl), false);
            written_by_input.push_back(false);
            for (Step& other : form_.forward) {
                rename_reads(other, slot, own);
                rename_writes(other, slot, own);
            }
        }
    }
}

void FormBuilder::split() {
    const std::vector<bool> is_weight = weight_steps();
    keep_versions(is_weight);
    for (std::size_t i = 0; i < form_.backward.size(); ++i) {
        (is_weight[i] ? form_.backward_weight : form_.backward_input).push_back(form_.backward[i]);
    }
    keep_for_weights();
    const SlotIndex hidden = find_role(SlotRole::hidden_gradient);
    const auto reads_hidden = [&](const Step& step) { return reads(step, hidden); };
    const bool comes_in =
        hidden != kNoSlot && (std::any_of(form_.backward_input.begin(), form_.backward_input.end(), reads_hidden) ||
                              std::any_of(form_.backward_weight.begin(), form_.backward_weight.end(), reads_hidden));
    if (comes_in) form_.hidden_gradient_bytes = form_.slots[at(hidden)].bytes();
}

/// Parameter slots by the backward operator that last writes their gradient.
void FormBuilder::order_parameters() {
    // An interlaced vocabulary computes its gradients in its one pass.
    for (const std::vector<Step>* steps :
         {&form_.forward, &form_.backward, &form_.backward_input, &form_.backward_weight}) {
        for (const Step& step : *steps) {
            if (std::holds_alternative<Boundary>(step)) continue;
            for (const SlotIndex slot : slots_written(step)) {
                const SlotDecl& decl = form_.slots[at(slot)];
                if (decl.role != SlotRole::gradient || decl.tied) continue;
                std::erase(form_.ready_order, decl.parameter_slot);
                form_.ready_order.push_back(decl.parameter_slot);
            }
        }
    }
}

ParameterRange range_of(const SlotDecl& parameter) {
    if (parameter.expert) return ParameterRange::expert;
    switch (parameter.gradient_sum) {
        case models::GradientSum::none:
            return ParameterRange::dense;
        case models::GradientSum::tp:
            return ParameterRange::tensor_sum;
        case models::GradientSum::kv_group:
            return ParameterRange::kv_sum;
    }
    return ParameterRange::dense;
}

bool FormBuilder::is_used(SlotIndex slot) const {
    return touches(form_.prepare, slot) || touches(form_.forward, slot) || touches(form_.backward, slot) ||
           touches(form_.backward_input, slot) || touches(form_.backward_weight, slot);
}

SlotPlace FormBuilder::place_of(SlotIndex slot) {
    const SlotDecl& decl = form_.slots[at(slot)];
    if (!is_used(slot)) return {Space::transient};  // of another part of the same layer
    const auto in_frame = [&] {
        const SlotPlace place{Space::activation, form_.saved_bytes};
        form_.saved_bytes = align(form_.saved_bytes + decl.bytes());
        return place;
    };
    const auto parameter_place = [&](SlotIndex parameter, Space space) {
        for (const auto& [known, offset] : parameter_offsets_) {
            if (known == parameter) return SlotPlace{space, offset, range_of(form_.slots[at(parameter)])};
        }
        throw_bug(__FILE__, __LINE__, "parameter_place", decl.name + " has no gradient");
    };
    switch (decl.role) {
        case SlotRole::hidden_in:
            form_.hidden_in_bytes = decl.bytes();
            if (slot == own_input_) return {.space = Space::hidden_in, .own_block = GroupAxis::tp};
            return {Space::hidden_in};
        case SlotRole::hidden_out:
            return {Space::hidden_out};
        case SlotRole::hidden_gradient:
            return {slot == gradient_out_ ? Space::hidden_gradient_out : Space::hidden_gradient};
        case SlotRole::loss:
            return {Space::scalars};
        case SlotRole::weight_copy: {
            const SlotPlace place{Space::weight_copy, form_.weight_copy_bytes};
            form_.weight_copy_bytes = align(form_.weight_copy_bytes + decl.bytes());
            return place;
        }
        case SlotRole::saved:
        case SlotRole::transient:
            return in_frame_[at(slot)] ? in_frame() : SlotPlace{Space::transient};
        case SlotRole::parameter:
            return decl.tied ? SlotPlace{Space::tied_parameter} : parameter_place(slot, Space::parameter);
        case SlotRole::gradient:
            return decl.tied ? SlotPlace{Space::tied_gradient} : parameter_place(decl.parameter_slot, Space::gradient);
    }
    throw_bug(__FILE__, __LINE__, "SlotRole", "unknown role");
}

/// The first to write a gradient in a backward pass does not add to it.
void FormBuilder::overwrite_gradients() {
    std::vector<bool> written(form_.slots.size(), false);
    for (Step& step : form_.backward) {
        auto* op = std::get_if<Operator>(&step);
        if (op == nullptr) continue;
        int gradients = 0, first = 0;
        for (const SlotIndex slot : op->out) {
            if (slot == kNoSlot || role(slot) != SlotRole::gradient) continue;
            ++gradients;
            const bool tied = form_.kind == models::LayerKind::embedding && form_.options.adds_to_tied_gradient &&
                              form_.slots[at(form_.slots[at(slot)].parameter_slot)].name == kTiedWeight;
            if (!written[at(slot)] && !tied) ++first;
            written[at(slot)] = true;
        }
        ORRERY_CHECK(first == 0 || first == gradients, "an operator adds to one gradient and overwrites another");
        op->overwrites_gradients = first > 0;
    }
}

/// What is kept but no backward step reads need not be kept.
void FormBuilder::find_lives() {
    const bool splits = form_.options.splits_backward;
    form_.lives.resize(form_.slots.size());
    for (std::size_t i = 0; i < form_.slots.size(); ++i) {
        const auto slot = static_cast<SlotIndex>(i);
        SlotLife& life = form_.lives[i];
        if (splits) {
            life.born = touches(form_.forward, slot) ? Phase::forward : Phase::backward_input;
            life.dies = touches(form_.backward_weight, slot)  ? Phase::backward_weight
                        : touches(form_.backward_input, slot) ? Phase::backward_input
                                                              : Phase::forward;
        } else {
            life.born = touches(form_.forward, slot) ? Phase::forward : Phase::backward;
            life.dies = touches(form_.backward, slot) ? Phase::backward : Phase::forward;
        }
        const bool nobody = life.dies == Phase::forward && form_.slots[i].role == SlotRole::saved;
        if (nobody && !form_.options.leaves_communication_open) in_frame_[i] = false;
    }
}

/// A shard's begin costs at most this part of what lies before it in padding, the ends of a layer apart.
constexpr std::int64_t kPaddingShare = 1024;

/// Elements behind each parameter of the ready order. Every range of a layer ends at a multiple; inside, so do the
/// parameters before which enough lies to make it cheap, and each where the implementation cuts each by itself.
std::vector<std::int64_t> paddings(const LayerForm& form) {
    const FlatPadding& rules = form.options.padding;
    std::vector<std::int64_t> result(form.ready_order.size());
    const auto is_tied = [&](std::size_t i) {
        return rules.keeps_tied_apart && form.slot(form.ready_order[i]).name == kTiedWeight;
    };
    for (std::size_t range = 0; range < kParameterRanges; ++range) {
        std::vector<std::size_t> members;
        for (std::size_t i = 0; i < form.ready_order.size(); ++i) {
            if (static_cast<std::size_t>(range_of(form.slot(form.ready_order[i]))) == range) members.push_back(i);
        }
        const bool expert = static_cast<ParameterRange>(range) == ParameterRange::expert;
        std::int64_t held = 0;  // since the last multiple
        for (std::size_t m = 0; m < members.size(); ++m) {
            const SlotDecl& decl = form.slot(form.ready_order[members[m]]);
            held += decl.elements();
            std::int64_t multiple = expert ? rules.expert : rules.dense;
            if (rules.each_parameter && !decl.shape.empty() && decl.shape.front() > 0) {
                multiple = (expert ? rules.expert_shards : rules.dense_shards) * (decl.elements() / decl.shape.front());
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

void FormBuilder::place() {
    form_.paddings = paddings(form_);
    for (std::size_t i = 0; i < form_.ready_order.size(); ++i) {
        const SlotDecl& decl = form_.slots[at(form_.ready_order[i])];
        std::int64_t& total = form_.elements[static_cast<std::size_t>(range_of(decl))];
        parameter_offsets_.emplace_back(form_.ready_order[i], total);
        total += decl.elements() + form_.paddings[i];
    }
    for (std::size_t i = 0; i < form_.slots.size(); ++i) {
        form_.places.push_back(place_of(static_cast<SlotIndex>(i)));
    }
}

}  // namespace

std::int64_t LayerForm::parameter_elements() const {
    std::int64_t sum = 0;
    for (const std::int64_t count : elements) sum += count;
    return sum;
}

SlotIndex LayerForm::gradient_of(SlotIndex parameter) const {
    for (std::size_t i = 0; i < slots.size(); ++i) {
        if (slots[i].role == SlotRole::gradient && slots[i].parameter_slot == parameter) {
            return static_cast<SlotIndex>(i);
        }
    }
    throw_bug(__FILE__, __LINE__, "gradient_of", slot(parameter).name + " has no gradient");
}

LayerForm make_form(models::Layer layer, const FormOptions& options) {
    return FormBuilder(std::move(layer), options).build();
}

}  // namespace orrery::program
