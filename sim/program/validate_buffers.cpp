// Rule "buffers": each frame and boundary buffer is held by one micro-batch of one chunk at a time, which gives it back
// or hands it over to the neighbouring chunk on the same rank. Every buffer is used.
#include <map>
#include <optional>

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
constexpr Holder kNobody;

std::string named(Holder holder) {
    if (holder == kNobody) return "no micro-batch";
    return text("micro-batch {} in chunk {}", holder.micro_batch, holder.chunk);
}

/// What an action does with a buffer: who holds it before and after. It takes a free buffer, holds its own, gives it
/// back to nobody, or hands it over.
struct Move {
    Holder from, to;
};
std::optional<Move> move_if(bool moves, Holder from, Holder to) {
    return moves ? std::optional(Move{from, to}) : std::nullopt;
}
/// What an action does with each buffer that it may bind. Without a move it must bind none.
struct Moves {
    std::optional<Move> frame{}, input{}, output{}, gradient_out{}, gradient{};
    bool output_stays = false;  // `output` is a stage's input on this rank
};

/// The moves of one part of a pass, given those of the whole pass. In between the pass holds its buffers itself; its
/// output belongs to the receiver from the first part on.
Moves moves_of_part(Moves moves, const Action& action, Holder own) {
    const auto cut = [&](std::optional<Move>& move, Holder between) {
        if (!move) return;
        if (!action.begins()) move->from = between;
        if (!action.ends()) move->to = between;
    };
    for (auto* const move : {&moves.frame, &moves.input, &moves.gradient_out, &moves.gradient}) cut(*move, own);
    if (moves.output) cut(moves.output, Holder(moves.output->to));
    return moves;
}

/// A pool of equal buffers and their holders.
class Pool : ClassRule {
  public:
    Pool(const Program& program, ClassIndex c, std::string name, std::int32_t count)
        : ClassRule(program, c, kBuffers),
          name_(std::move(name)),
          holders_(static_cast<std::size_t>(count)),
          used_(static_cast<std::size_t>(count)) {}

    void apply(ActionIndex action, std::int32_t index, const std::optional<Move>& move) {
        if (!move) {
            if (index >= 0) refuse(action, "it binds {} {}, which it must not bind", name_, index);
            return;
        }
        if (index < 0) refuse(action, "it binds no {}", name_);
        Holder& current = holders_[static_cast<std::size_t>(index)];
        if (current != move->from) {
            refuse(action, "it {} {} {}, which {} holds", move->from == kNobody ? "takes" : "binds", name_, index,
                   named(current));
        }
        current = move->to;
        used_[static_cast<std::size_t>(index)] = true;
    }

    void finish() const {
        for (std::size_t i = 0; i < holders_.size(); ++i) {
            if (!used_[i]) refuse("no action uses {} {}", name_, i);
            if (holders_[i] != kNobody) refuse("{} {} is never given back by {}", name_, i, named(holders_[i]));
        }
    }

  private:
    std::string name_;
    std::vector<Holder> holders_;
    std::vector<bool> used_;
};

class BufferCheck : ClassRule {
  public:
    BufferCheck(const Program& program, ClassIndex c) : ClassRule(program, c, kBuffers) {
        for (const Chunk& chunk : ranks_.chunks)
            frames_.emplace_back(program, c, "activation frame", chunk.frame_count);
        for (const Action& action : ranks_.actions) {
            if (action.kind == ActionKind::backward_weight) weights_[{action.chunk, action.micro_batch}] = &action;
        }
    }

    void run() {
        for (const ActionIndex here : ranks_.actions.indices()) {
            const Action& action = ranks_.actions[here];
            const Moves moves = moves_of_part(moves_of(action), action, {action.chunk, action.micro_batch});
            if (action.output_stays != moves.output_stays) {
                refuse(here, "output_stays does not match the place of the next virtual stage");
            }
            // An exchange binds its micro-batch's frame, also before the forward takes it.
            if (action.kind != ActionKind::exchange) {
                frames_[action.chunk].apply(here, action.activation_frame, moves.frame);
            }
            inputs_.apply(here, action.input_boundary, moves.input);
            (moves.output_stays ? inputs_ : outputs_).apply(here, action.forward_boundary, moves.output);
            gradients_.apply(here, action.backward_boundary, moves.gradient);
            const bool twice = action.gradient_out >= 0 && action.gradient_out == action.backward_boundary;
            if (!twice) gradients_.apply(here, action.gradient_out, moves.gradient_out);
            if (twice && is_pass(action.kind)) {  // a transfer of a gradient may bind it under both names
                refuse(here, "it binds backward boundary {} twice", action.gradient_out);
            }
        }
        for (const Pool& pool : frames_) pool.finish();
        inputs_.finish();
        outputs_.finish();
        gradients_.finish();
    }

  private:
    [[nodiscard]] Moves moves_of(const Action& action) const {
        const bool is_stage = ranks_.chunks[action.chunk].part == ChunkPart::stage;
        const Holder own{action.chunk, action.micro_batch};
        switch (action.kind) {
            case ActionKind::forward:
                return is_stage ? forward(action, own) : vocabulary_forward(action, own);
            case ActionKind::backward:
            case ActionKind::backward_input:
                return is_stage ? backward(action, own) : vocabulary_backward(action, own);
            case ActionKind::backward_weight:  // what it binds, it is the last to need
                return {.frame = Move{own, kNobody},
                        .input = move_if(action.input_boundary >= 0, own, kNobody),
                        .gradient = move_if(action.backward_boundary >= 0, own, kNobody)};
            case ActionKind::recv_forward:
                return {.input = Move{kNobody, own}};
            case ActionKind::send_forward:
                return {.output = Move{own, kNobody}};
            case ActionKind::recv_backward:
                return {.gradient = Move{kNobody, own}};
            case ActionKind::send_backward:
                return {.gradient = Move{own, kNobody}};
            default:
                return {};
        }
    }

    [[nodiscard]] Neighbour neighbour(const Action& action, std::int64_t shift) const {
        return neighbour_of(shape_, ranks_, ranks_.chunks[action.chunk], shift);
    }
    /// Whether hidden states come from a stage or lookup before this stage, or go to a stage or head after it.
    [[nodiscard]] bool is_joined(const Neighbour& neighbour) const {
        return neighbour.exists() || p_.spreads_vocabulary();
    }

    [[nodiscard]] Moves forward(const Action& action, Holder own) const {
        const Neighbour next = neighbour(action, 1);
        const Holder receiver = next.is_here ? Holder{next.holder.chunk, action.micro_batch} : own;
        return {.frame = Move{kNobody, own},
                .input = move_if(is_joined(neighbour(action, -1)), own, own),
                .output = move_if(is_joined(next), kNobody, receiver),
                .output_stays = next.is_here};
    }

    /// Who holds the gradient of the stage's input afterwards: the previous chunk if that is on this rank. Otherwise a
    /// send gives it back, or the first stage does at once.
    [[nodiscard]] Holder gradient_receiver(const Action& action, Holder own) const {
        const Neighbour before = neighbour(action, -1);
        if (before.is_elsewhere) return own;
        if (before.is_here) return {before.holder.chunk, action.micro_batch};
        return p_.spreads_vocabulary() ? Holder{kInputChunk, action.micro_batch} : kNobody;
    }

    /// B, or I, which keeps what the later W binds.
    [[nodiscard]] Moves backward(const Action& action, Holder own) const {
        const bool is_input = action.kind == ActionKind::backward_input;
        const auto weight = weights_.find({action.chunk, action.micro_batch});
        const Action later = is_input && weight != weights_.end() ? *weight->second : Action{};
        const bool has_input = is_joined(neighbour(action, -1)), has_output = is_joined(neighbour(action, 1));
        const Holder receiver = gradient_receiver(action, own);
        Moves moves{.frame = Move{own, is_input ? own : kNobody},
                    .input = move_if(has_input, own, later.input_boundary >= 0 ? own : kNobody)};
        if (row_of(shape_.schedule).splits_backward()) {  // W still reads the gradient of the output
            moves.gradient_out = move_if(has_input, kNobody, receiver);
            moves.gradient = move_if(has_output, own, later.backward_boundary >= 0 ? own : kNobody);
        } else {  // it is updated in place; the pass of the head creates it
            moves.gradient = Move{has_output ? own : kNobody, receiver};
        }
        return moves;
    }

    /// Whether the part of the vocabulary exchanges hidden states with a stage on this rank: the output with the last
    /// stage, the input with the first one.
    [[nodiscard]] bool meets_stage(bool is_output) const { return ranks_.pp_index == (is_output ? p_.pp - 1 : 0); }

    /// The input part writes the first stage's input. The output part reads the last stage's output, and may write its
    /// gradient.
    [[nodiscard]] Moves vocabulary_forward(const Action& action, Holder own) const {
        const bool is_output = ranks_.chunks[action.chunk].part == ChunkPart::vocabulary_output;
        const bool has_backward = !is_output || p_.vocabulary_parallel != VocabularyParallel::interlaced;
        const Holder stage{0, action.micro_batch};
        Moves moves{.frame = Move{kNobody, has_backward ? own : kNobody}};
        if (!meets_stage(is_output)) return moves;
        moves.output_stays = !is_output;
        moves.output = is_output ? Move{stage, kNobody} : Move{kNobody, stage};
        if (is_output && p_.vocabulary_gradient_from_forward()) moves.gradient = Move{kNobody, stage};
        return moves;
    }

    [[nodiscard]] Moves vocabulary_backward(const Action& action, Holder own) const {
        const bool is_output = ranks_.chunks[action.chunk].part == ChunkPart::vocabulary_output;
        Moves moves{.frame = Move{own, kNobody}};
        if (!meets_stage(is_output) || (is_output && p_.vocabulary_gradient_from_forward())) return moves;
        moves.gradient = is_output ? Move{kNobody, Holder{0, action.micro_batch}} : Move{own, kNobody};
        return moves;
    }

    const ScheduleShape shape_ = schedule_shape(plan_);
    IndexedVector<ChunkIndex, Pool> frames_;
    Pool inputs_{program_, c_, "input boundary", ranks_.input_boundary_count};
    Pool outputs_{program_, c_, "forward boundary", ranks_.forward_boundary_count};
    Pool gradients_{program_, c_, "backward boundary", ranks_.backward_boundary_count};
    std::map<std::pair<ChunkIndex, std::int32_t>, const Action*> weights_;
};

}  // namespace

void check_buffers(const Program& program) {
    for (const ClassIndex c : program.classes.indices()) BufferCheck(program, c).run();
}

}  // namespace orrery::program::rules
