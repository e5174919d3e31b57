// Rule "buffers": each frame and boundary buffer is held by one micro-batch of one chunk at a time, which gives it back
// or hands it over to the neighbouring chunk on the same rank. Every buffer is used.
#include <algorithm>
#include <map>

#include "sim/program/validate_rules.h"
#include "sim/program/vocabulary.h"

namespace orrery::program::rules {
namespace {

constexpr std::string_view kBuffers = "buffers";

/// The holder of a buffer; chunk -1: the buffer is free.
struct Holder {
    ChunkIndex chunk = -1;
    std::int32_t micro_batch = -1;
    bool operator==(const Holder&) const = default;
};

std::string text_of(Holder holder) {
    return "micro-batch " + std::to_string(holder.micro_batch) + " in chunk " + std::to_string(holder.chunk.value());
}

/// A pool of equal buffers and their holders.
class Pool {
  public:
    Pool(const Program& program, ClassIndex c, std::string name, std::int32_t count)
        : program_(program),
          c_(c),
          name_(std::move(name)),
          holders_(static_cast<std::size_t>(count)),
          used_(static_cast<std::size_t>(count)) {}

    void take(ActionIndex action, std::int32_t index, Holder holder) {
        if (index < 0) refuse(action, "it binds no " + name_);
        Holder& current = holders_[static_cast<std::size_t>(index)];
        if (current.chunk >= 0) refuse(action, "it takes " + named(index) + ", which " + text_of(current) + " holds");
        current = holder;
        used_[static_cast<std::size_t>(index)] = true;
    }
    /// Checks that the holder has the buffer.
    void hold(ActionIndex action, std::int32_t index, Holder holder) const {
        if (index < 0) refuse(action, "it binds no " + name_);
        const Holder current = holders_[static_cast<std::size_t>(index)];
        if (current == holder) return;
        refuse(action, "it binds " + named(index) + ", which " +
                           (current.chunk < 0 ? std::string("no micro-batch") : text_of(current)) + " holds");
    }
    void give_back(ActionIndex action, std::int32_t index, Holder holder) { hand_over(action, index, holder, {}); }
    void hand_over(ActionIndex action, std::int32_t index, Holder from, Holder to) {
        hold(action, index, from);
        holders_[static_cast<std::size_t>(index)] = to;
    }
    void refuse_bound(ActionIndex action, std::int32_t index) const {
        if (index >= 0) refuse(action, "it binds " + named(index) + ", which it must not bind");
    }

    void finish() const {
        for (std::size_t i = 0; i < holders_.size(); ++i) {
            const auto index = static_cast<std::int32_t>(i);
            if (!used_[i]) refuse(-1, "no action uses " + named(index));
            if (holders_[i].chunk >= 0) refuse(-1, named(index) + " is never given back by " + text_of(holders_[i]));
        }
    }

  private:
    [[nodiscard]] std::string named(std::int32_t index) const { return name_ + " " + std::to_string(index); }
    [[noreturn]] void refuse(ActionIndex action, const std::string& what) const {
        fail(program_, kBuffers, {.rank_class = c_, .action = action}, what);
    }

    const Program& program_;
    ClassIndex c_;
    std::string name_;
    std::vector<Holder> holders_;
    std::vector<bool> used_;
};

class BufferCheck {
  public:
    BufferCheck(const Program& program, ClassIndex c)
        : program_(program),
          c_(c),
          ranks_(program.classes[c]),
          shape_(shape_of(*program.plan)),
          inputs_(program, c, "input boundary", ranks_.input_boundary_count),
          outputs_(program, c, "forward boundary", ranks_.forward_boundary_count),
          gradients_(program, c, "backward boundary", ranks_.backward_boundary_count) {
        for (const Chunk& chunk : ranks_.chunks)
            frames_.emplace_back(program, c, "activation frame", chunk.frame_count);
        for (const Action& action : ranks_.actions) {
            if (action.kind == ActionKind::backward_weight) weights_[{action.chunk, action.micro_batch}] = &action;
        }
    }

    void run() {
        for (const ActionIndex here : ranks_.actions.indices()) {
            const Action& action = ranks_.actions[here];
            switch (action.kind) {
                case ActionKind::forward:
                    forward(here, action);
                    break;
                case ActionKind::backward:
                    backward(here, action);
                    break;
                case ActionKind::backward_input:
                    backward_input(here, action);
                    break;
                case ActionKind::backward_weight:
                    backward_weight(here, action);
                    break;
                case ActionKind::recv_forward:
                    binds_only(here, action, &inputs_);
                    inputs_.take(here, action.input_boundary, holder_of(action));
                    break;
                case ActionKind::send_forward:
                    binds_only(here, action, &outputs_);
                    outputs_.give_back(here, action.forward_boundary, holder_of(action));
                    break;
                case ActionKind::recv_backward:
                    binds_only(here, action, &gradients_);
                    gradients_.take(here, action.backward_boundary, holder_of(action));
                    break;
                case ActionKind::send_backward:
                    binds_only(here, action, &gradients_);
                    gradients_.give_back(here, action.backward_boundary, holder_of(action));
                    break;
                case ActionKind::sync_gradients:
                case ActionKind::optimizer_step:
                    binds_only(here, action, nullptr);
                    frame_of(action).refuse_bound(here, action.activation_frame);
                    break;
                case ActionKind::exchange:  // binds its micro-batch's frame, also before the forward takes it
                    binds_only(here, action, nullptr);
                    break;
            }
        }
        for (const Pool& pool : frames_) pool.finish();
        inputs_.finish();
        outputs_.finish();
        gradients_.finish();
    }

  private:
    [[nodiscard]] static Holder holder_of(const Action& action) { return {action.chunk, action.micro_batch}; }
    [[nodiscard]] const Chunk& chunk_of(const Action& action) const { return ranks_.chunks[action.chunk]; }
    [[nodiscard]] Pool& frame_of(const Action& action) { return frames_[action.chunk]; }

    /// Checks that the action binds no boundary buffers outside `pool`, which may be null. gradient_out must be
    /// unbound, or the same buffer as backward_boundary.
    void binds_only(ActionIndex here, const Action& action, const Pool* pool) const {
        if (pool != &inputs_) inputs_.refuse_bound(here, action.input_boundary);
        if (pool != &outputs_) outputs_.refuse_bound(here, action.forward_boundary);
        if (pool != &gradients_) gradients_.refuse_bound(here, action.backward_boundary);
        if (pool != &gradients_) gradients_.refuse_bound(here, action.gradient_out);
        if (pool == &gradients_ && action.gradient_out >= 0 && action.gradient_out != action.backward_boundary) {
            gradients_.refuse_bound(here, action.gradient_out);
        }
    }

    enum class Neighbour : std::uint8_t { none, here, elsewhere };
    struct Adjacent {
        Neighbour where = Neighbour::none;
        Holder holder;  // if it is here
    };
    /// The virtual stage that follows by `shift`.
    [[nodiscard]] Adjacent adjacent(const Action& action, std::int64_t shift) const {
        const Chunk& chunk = chunk_of(action);
        const std::int64_t stage = chunk.virtual_stage + shift;
        if (stage < 0 || stage >= virtual_stages(shape_)) return {};
        const StageHolder holder = stage_holder(shape_, stage, chunk.direction);
        if (holder.rank != ranks_.pp_index) return {Neighbour::elsewhere, {}};
        return {Neighbour::here, {holder.chunk, action.micro_batch}};
    }

    [[nodiscard]] const Parallelism& parallelism() const { return program_.plan->parallelism; }
    [[nodiscard]] bool is_vocabulary(const Action& action) const { return chunk_of(action).part != ChunkPart::stage; }
    [[nodiscard]] static Holder stage_of(const Action& action) { return {0, action.micro_batch}; }
    /// Whether the part of the vocabulary exchanges hidden states with a stage on this rank: the output with the last
    /// stage, the input with the first one.
    [[nodiscard]] bool meets_stage(const Action& action) const {
        const bool is_output = chunk_of(action).part == ChunkPart::vocabulary_output;
        return ranks_.pp_index == (is_output ? parallelism().pp - 1 : 0);
    }

    /// The input part writes the first stage's input. The output part reads the last stage's output, and may write its
    /// gradient.
    void vocabulary_forward(ActionIndex here, const Action& action) {
        const Holder own = holder_of(action);
        const bool is_output = chunk_of(action).part == ChunkPart::vocabulary_output;
        frame_of(action).take(here, action.activation_frame, own);
        inputs_.refuse_bound(here, action.input_boundary);
        gradients_.refuse_bound(here, action.gradient_out);
        if (!meets_stage(action)) {
            outputs_.refuse_bound(here, action.forward_boundary);
        } else if (is_output) {
            outputs_.give_back(here, action.forward_boundary, stage_of(action));
        } else {
            inputs_.take(here, action.forward_boundary, stage_of(action));
        }
        if (is_output && meets_stage(action) && parallelism().vocabulary_gradient_from_forward()) {
            gradients_.take(here, action.backward_boundary, stage_of(action));
        } else {
            gradients_.refuse_bound(here, action.backward_boundary);
        }
        if (action.output_stays != (!is_output && meets_stage(action))) {
            fail(program_, kBuffers, {.rank_class = c_, .action = here},
                 "output_stays does not match the place of the first virtual stage");
        }
        const bool has_no_backward = is_output && parallelism().vocabulary_parallel == VocabularyParallel::interlaced;
        if (has_no_backward) frame_of(action).give_back(here, action.activation_frame, own);
    }

    void vocabulary_backward(ActionIndex here, const Action& action) {
        const Holder own = holder_of(action);
        const bool is_output = chunk_of(action).part == ChunkPart::vocabulary_output;
        frame_of(action).give_back(here, action.activation_frame, own);
        inputs_.refuse_bound(here, action.input_boundary);
        outputs_.refuse_bound(here, action.forward_boundary);
        gradients_.refuse_bound(here, action.gradient_out);
        if (!meets_stage(action) || (is_output && parallelism().vocabulary_gradient_from_forward())) {
            gradients_.refuse_bound(here, action.backward_boundary);
        } else if (is_output) {
            gradients_.take(here, action.backward_boundary, stage_of(action));
        } else {
            gradients_.give_back(here, action.backward_boundary, own);
        }
    }

    void forward(ActionIndex here, const Action& action) {
        if (is_vocabulary(action)) return vocabulary_forward(here, action);
        const Holder own = holder_of(action);
        frame_of(action).take(here, action.activation_frame, own);
        if (adjacent(action, -1).where == Neighbour::none && !parallelism().spreads_vocabulary()) {
            inputs_.refuse_bound(here, action.input_boundary);
        } else {
            inputs_.hold(here, action.input_boundary, own);
        }
        gradients_.refuse_bound(here, action.backward_boundary);
        gradients_.refuse_bound(here, action.gradient_out);
        const Adjacent next = adjacent(action, 1);
        if (action.output_stays != (next.where == Neighbour::here)) {
            fail(program_, kBuffers, {.rank_class = c_, .action = here},
                 "output_stays does not match the place of the next virtual stage");
        }
        if (next.where == Neighbour::here) inputs_.take(here, action.forward_boundary, next.holder);
        if (next.where == Neighbour::elsewhere) outputs_.take(here, action.forward_boundary, own);
        if (next.where == Neighbour::none && parallelism().spreads_vocabulary()) {
            outputs_.take(here, action.forward_boundary, own);
        } else if (next.where == Neighbour::none) {
            outputs_.refuse_bound(here, action.forward_boundary);
        }
    }

    /// Hands the gradient's buffer over to the previous chunk if that is on this rank. Otherwise a send gives it back,
    /// or the first stage does at once.
    void pass_on(ActionIndex here, const Action& action, std::int32_t gradient) {
        const Adjacent before = adjacent(action, -1);
        if (before.where == Neighbour::here) gradients_.hand_over(here, gradient, holder_of(action), before.holder);
        if (before.where == Neighbour::none && parallelism().spreads_vocabulary()) {  // to the vocabulary's input part
            gradients_.hand_over(here, gradient, holder_of(action), {kInputChunk, action.micro_batch});
        } else if (before.where == Neighbour::none) {
            gradients_.give_back(here, gradient, holder_of(action));
        }
    }

    void backward(ActionIndex here, const Action& action) {
        if (is_vocabulary(action)) return vocabulary_backward(here, action);
        const Holder own = holder_of(action);
        frame_of(action).give_back(here, action.activation_frame, own);
        outputs_.refuse_bound(here, action.forward_boundary);
        const bool has_ends = !parallelism().spreads_vocabulary();
        const bool first = has_ends && adjacent(action, -1).where == Neighbour::none;
        const bool last = has_ends && adjacent(action, 1).where == Neighbour::none;
        if (first) {
            inputs_.refuse_bound(here, action.input_boundary);
        } else {
            inputs_.give_back(here, action.input_boundary, own);
        }
        // The gradient is updated in place, unless the schedule splits backward passes: then W still reads it.
        if (!row_of(shape_.schedule).splits_backward()) {
            gradients_.refuse_bound(here, action.gradient_out);
            // The pass of the head creates the gradient.
            if (last) gradients_.take(here, action.backward_boundary, own);
            pass_on(here, action, action.backward_boundary);
            return;
        }
        if (last) gradients_.refuse_bound(here, action.backward_boundary);
        if (!last) gradients_.hold(here, action.backward_boundary, own);
        if (first) gradients_.refuse_bound(here, action.gradient_out);
        if (!first) gradients_.take(here, action.gradient_out, own);
        if (!last) gradients_.give_back(here, action.backward_boundary, own);
        if (!first) pass_on(here, action, action.gradient_out);
    }

    void backward_input(ActionIndex here, const Action& action) {
        const Holder own = holder_of(action);
        const auto weight = weights_.find({action.chunk, action.micro_batch});
        const Action none;
        const Action& later = weight == weights_.end() ? none : *weight->second;
        frame_of(action).hold(here, action.activation_frame, own);
        outputs_.refuse_bound(here, action.forward_boundary);
        if (adjacent(action, 1).where == Neighbour::none) {
            gradients_.refuse_bound(here, action.backward_boundary);
        } else {
            gradients_.hold(here, action.backward_boundary, own);
        }
        if (adjacent(action, -1).where == Neighbour::none) {
            inputs_.refuse_bound(here, action.input_boundary);
            gradients_.refuse_bound(here, action.gradient_out);
        } else {
            gradients_.take(here, action.gradient_out, own);
            inputs_.hold(here, action.input_boundary, own);
            if (later.input_boundary < 0) inputs_.give_back(here, action.input_boundary, own);
        }
        if (action.backward_boundary >= 0 && later.backward_boundary < 0) {
            gradients_.give_back(here, action.backward_boundary, own);
        }
        if (action.gradient_out >= 0) pass_on(here, action, action.gradient_out);
    }

    void backward_weight(ActionIndex here, const Action& action) {
        const Holder own = holder_of(action);
        frame_of(action).give_back(here, action.activation_frame, own);
        outputs_.refuse_bound(here, action.forward_boundary);
        gradients_.refuse_bound(here, action.gradient_out);
        if (action.input_boundary >= 0) inputs_.give_back(here, action.input_boundary, own);
        if (action.backward_boundary >= 0) gradients_.give_back(here, action.backward_boundary, own);
    }

    const Program& program_;
    ClassIndex c_;
    const RankClass& ranks_;
    ScheduleShape shape_;
    IndexedVector<ChunkIndex, Pool> frames_;
    Pool inputs_, outputs_, gradients_;
    std::map<std::pair<ChunkIndex, std::int32_t>, const Action*> weights_;
};

}  // namespace

void check_buffers(const Program& program) {
    for (const ClassIndex c : program.classes.indices()) BufferCheck(program, c).run();
}

}  // namespace orrery::program::rules
