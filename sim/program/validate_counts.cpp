// Rule "counts": each class runs every pass, transfer and update that the plan requires, once and in order.
#include <algorithm>
#include <array>
#include <initializer_list>
#include <numeric>
#include <set>
#include <tuple>

#include "sim/program/validate_rules.h"
#include "sim/program/vocabulary.h"

namespace orrery::program::rules {
namespace {

/// The actions of one chunk and micro-batch, by kind; of a pass in parts the first part; -1: none.
using ActionsByKind = EnumArray<ActionKind, ActionIndex, static_cast<std::size_t>(ActionKind::exchange) + 1>;

/// The second action depends on the first of the same chunk and micro-batch, if both exist.
struct Dependency {
    ActionKind first, second;
};
constexpr std::array kDependencies{
    Dependency{ActionKind::recv_forward, ActionKind::forward},
    Dependency{ActionKind::forward, ActionKind::send_forward},
    Dependency{ActionKind::forward, ActionKind::backward},
    Dependency{ActionKind::forward, ActionKind::backward_input},
    Dependency{ActionKind::recv_backward, ActionKind::backward},
    Dependency{ActionKind::recv_backward, ActionKind::backward_input},
    Dependency{ActionKind::backward, ActionKind::send_backward},
    Dependency{ActionKind::backward_input, ActionKind::send_backward},
    Dependency{ActionKind::backward_input, ActionKind::backward_weight},
};

class Counter : ClassRule {
  public:
    Counter(const Program& program, ClassIndex c) : ClassRule(program, c, "counts") {}

    void run() {
        check_chunks();
        fill_table();
        check_step_end();
        for (const ChunkIndex k : ranks_.chunks.indices()) {
            const MicroBatches passing = micro_batches_of(plan_, ranks_.chunks[k]);
            for (std::int32_t m = 0; m < static_cast<std::int32_t>(plan_.micro_batches()); ++m) {
                check_micro_batch(k, m, m >= passing.begin && m < passing.end);
            }
        }
        check_layers();
    }

  private:
    void check_chunks() const {
        const std::int64_t chunks = shape_.chunks + (p_.spreads_vocabulary() ? 2 : 0);
        const std::int64_t rank = is_replicated(plan_) ? 0 : c_.value();
        if (ranks_.pp_index != rank || static_cast<std::int64_t>(ranks_.chunks.size()) != chunks) {
            refuse("pipeline rank {} has {} chunks; the plan requires pipeline rank {} with {}", ranks_.pp_index,
                   ranks_.chunks.size(), rank, chunks);
        }
        const auto facts = [](const Chunk& chunk) {
            return std::tuple(chunk.part, chunk.virtual_stage, chunk.direction, chunk.up, chunk.first_block,
                              chunk.block_count, chunk.has_embedding, chunk.has_head);
        };
        for (const ChunkIndex k : ranks_.chunks.indices()) {
            const Chunk required = chunk_of_plan(k);
            if (facts(ranks_.chunks[k]) == facts(required)) continue;
            if (required.part != ChunkPart::stage) refuse("chunk {} is not its part of the vocabulary", k);
            refuse("chunk {}: its blocks are not those of the plan's virtual stage {}", k, required.virtual_stage);
        }
    }

    /// The chunk without its memory.
    [[nodiscard]] Chunk chunk_of_plan(ChunkIndex k) const {
        if (k.value() >= shape_.chunks) {
            return {.part = k == kOutputChunk ? ChunkPart::vocabulary_output : ChunkPart::vocabulary_input,
                    .virtual_stage = -1};
        }
        const ChunkPlace place = chunk_place(shape_, ranks_.pp_index, k);
        const auto layers = p_.stage_layers.begin() + place.virtual_stage;
        const bool has_ends = !p_.spreads_vocabulary();
        return {.virtual_stage = place.virtual_stage,
                .direction = place.direction,
                .up = place.up,
                .first_block = std::accumulate(p_.stage_layers.begin(), layers, std::int64_t{0}),
                .block_count = *layers,
                .has_embedding = has_ends && place.virtual_stage == 0,
                .has_head = has_ends && place.virtual_stage == virtual_stages(shape_) - 1};
    }

    void check_step_end() const {
        const bool updates = !is_replicated(plan_) || c_ == 0;
        const ActionIndex update = once_[ActionKind::optimizer_step], sync = once_[ActionKind::sync_gradients];
        if (!updates && update >= 0) refuse(update, "the replica does not own the parameters");
        if (updates && (update < 0 || update + 1 < ranks_.actions.next_index())) {
            refuse("the step does not end with the optimizer_step");
        }
        for (const ActionIndex here : ranks_.actions.indices()) {
            const ActionKind kind = ranks_.actions[here].kind;
            if (kind == ActionKind::backward || kind == ActionKind::backward_weight) check_order(here, sync);
        }
    }

    [[nodiscard]] ActionsByKind& actions_of(ChunkIndex chunk, std::int32_t micro_batch) {
        return table_[chunk][static_cast<std::size_t>(micro_batch)];
    }

    /// Fills in the actions of the step, and those of each chunk and micro-batch, by kind. It omits the exchanges of
    /// torch DataParallel, of which a micro-batch has several.
    void fill_table() {
        const std::int64_t batches = plan_.micro_batches();
        once_.fill(-1);
        for (const ActionIndex here : ranks_.actions.indices()) last_part_.push_back(here);
        table_.assign(ranks_.chunks.size(), std::vector<ActionsByKind>(static_cast<std::size_t>(batches), once_));
        for (const ActionIndex here : ranks_.actions.indices()) {
            const Action& action = ranks_.actions[here];
            const bool once = action.kind == ActionKind::sync_gradients || action.kind == ActionKind::optimizer_step;
            if (once != (action.micro_batch == -1) || action.micro_batch < -1 || action.micro_batch >= batches) {
                refuse(here, "it has micro-batch {} of {}", action.micro_batch, batches);
            }
            if (action.kind == ActionKind::exchange) {
                if (!is_replicated(plan_)) refuse(here, "the plan does not use torch DataParallel");
                continue;
            }
            ActionIndex& known = (once ? once_ : actions_of(action.chunk, action.micro_batch))[action.kind];
            if (action.part_count < 1 || (action.part_count > 1 && !is_pass(action.kind))) {
                refuse(here, "it is part {} of {}", action.part, action.part_count);
            }
            if (action.begins()) {
                if (known >= 0) refuse(here, "it duplicates action {}", known);
                known = here;
            } else {
                add_part(here, known);
            }
        }
    }

    /// A further part of the pass that begins with action `first`.
    void add_part(ActionIndex here, ActionIndex first) {
        const Action& action = ranks_.actions[here];
        if (first < 0) refuse(here, "it is part {} of a pass that has not begun", action.part);
        const Action& before = ranks_.actions[last_part_[first]];
        if (action.part != before.part + 1 || action.part_count != before.part_count) {
            refuse(here, "it is part {} of {} and follows part {} of {}", action.part, action.part_count, before.part,
                   before.part_count);
        }
        last_part_[first] = here;
    }

    /// Checks the order of two actions; -1: there is none, and nothing to check.
    void check_order(ActionIndex first, ActionIndex second) const {
        if (first < 0 || second < 0 || last_part_[first] < second) return;
        refuse(second, "it is issued before action {} ({}), on which it depends", first, ranks_.actions[first].kind);
    }

    void check_micro_batch(ChunkIndex k, std::int32_t m, bool passes) {
        const Chunk& chunk = ranks_.chunks[k];
        const ActionsByKind& found = actions_of(k, m);
        const auto expect = [&](bool expected, std::initializer_list<ActionKind> kinds) {
            for (const ActionKind kind : kinds) {
                if ((found[kind] >= 0) == (passes && expected)) continue;
                if (found[kind] < 0) refuse("no {} of micro-batch {} in chunk {}", kind, m, k);
                if (!passes) refuse(found[kind], "its micro-batch does not pass this chunk");
                refuse(found[kind], "the stage has no such neighbour, or does not split its backward pass that way");
            }
        };
        const bool receives = neighbour_of(shape_, ranks_, chunk, -1).is_elsewhere;
        const bool sends = neighbour_of(shape_, ranks_, chunk, 1).is_elsewhere;
        const bool has_backward =
            chunk.part != ChunkPart::vocabulary_output || p_.vocabulary_parallel != VocabularyParallel::interlaced;
        // DualPipe does not split all backward passes.
        const bool is_split = row_of(shape_.schedule).splits_backward() && found[ActionKind::backward] < 0;
        expect(true, {ActionKind::forward});
        expect(!is_split && has_backward, {ActionKind::backward});
        expect(is_split, {ActionKind::backward_input, ActionKind::backward_weight});
        expect(receives, {ActionKind::recv_forward, ActionKind::send_backward});
        expect(sends, {ActionKind::send_forward, ActionKind::recv_backward});
        for (const ActionIndex first : found) {
            if (first < 0 || ranks_.actions[last_part_[first]].ends()) continue;
            refuse(last_part_[first], "it is the last part of its pass, which has {}",
                   ranks_.actions[first].part_count);
        }
        for (const auto& [first, second] : kDependencies) check_order(found[first], found[second]);
        if (!passes) return;
        if (chunk.part == ChunkPart::stage) {
            check_neighbours(chunk, m, found);
        } else {
            check_vocabulary_pass(chunk, found, actions_of(0, m));
        }
    }

    /// The order of a vocabulary part's passes relative to those of the stage on the same rank with which it exchanges
    /// hidden states and gradients.
    void check_vocabulary_pass(const Chunk& chunk, const ActionsByKind& part, const ActionsByKind& stage) const {
        const bool is_output = chunk.part == ChunkPart::vocabulary_output;
        if (is_output && ranks_.pp_index == p_.pp - 1) {
            check_order(stage[ActionKind::forward], part[ActionKind::forward]);
            check_order(part[p_.vocabulary_gradient_from_forward() ? ActionKind::forward : ActionKind::backward],
                        stage[ActionKind::backward]);
        }
        if (!is_output && ranks_.pp_index == 0) {
            check_order(part[ActionKind::forward], stage[ActionKind::forward]);
            check_order(stage[ActionKind::backward], part[ActionKind::backward]);
        }
    }

    /// The pass that computes the gradient of the input.
    [[nodiscard]] static ActionIndex backward_of(const ActionsByKind& actions) {
        return std::max(actions[ActionKind::backward_input], actions[ActionKind::backward]);
    }

    /// If the previous virtual stage is on the same rank, its forward comes before this one's and its backward after.
    void check_neighbours(const Chunk& chunk, std::int32_t m, const ActionsByKind& own) {
        const Neighbour before = neighbour_of(shape_, ranks_, chunk, -1);
        if (!before.is_here) return;
        const ActionsByKind& previous = actions_of(before.holder.chunk, m);
        check_order(previous[ActionKind::forward], own[ActionKind::forward]);
        check_order(backward_of(own), backward_of(previous));
    }

    /// The layers of a chunk in forward order: embedding (-1), blocks, head (L).
    [[nodiscard]] std::vector<std::int32_t> layers_of(const Chunk& chunk) const {
        std::vector<std::int32_t> layers;
        if (chunk.has_embedding || chunk.part == ChunkPart::vocabulary_input) layers.push_back(-1);
        for (std::int64_t i = 0; i < chunk.block_count; ++i) {
            layers.push_back(static_cast<std::int32_t>(chunk.first_block + i));
        }
        const bool has_norm = chunk.part == ChunkPart::stage && p_.spreads_vocabulary() &&
                              chunk.virtual_stage == virtual_stages(shape_) - 1;
        if (chunk.has_head || has_norm || chunk.part == ChunkPart::vocabulary_output) {
            layers.push_back(static_cast<std::int32_t>(plan_.model.layers));
        }
        return layers;
    }

    /// Whether the body only makes the host wait; then it is no pass over a layer.
    [[nodiscard]] static bool only_waits(const Body& body) {
        return !body.operators.empty() &&
               std::all_of(body.operators.begin(), body.operators.end(),
                           [](const models::Operator& op) { return op.kind == models::OpKind::host_wait; });
    }

    /// The lists of the pass that begins with the action.
    [[nodiscard]] std::vector<SegmentListId> lists_of(ActionIndex first) const {
        const Action& begin = ranks_.actions[first];
        std::vector<SegmentListId> lists{begin.segments};
        for (ActionIndex a = first + 1; std::ssize(lists) < begin.part_count; ++a) {
            const Action& next = ranks_.actions[a];
            const bool continues =
                next.kind == begin.kind && next.chunk == begin.chunk && next.micro_batch == begin.micro_batch;
            if (continues) lists.push_back(next.segments);
        }
        return lists;
    }

    /// The layers that a pass runs over. Where it pauses inside a layer, its next part goes on from there.
    [[nodiscard]] std::vector<std::int32_t> layers_passed(ActionIndex pass,
                                                          const std::vector<SegmentListId>& lists) const {
        std::vector<std::int32_t> found;
        const Segment* paused = nullptr;  // the segment whose layer is not complete
        InstructionIndex next = 0;        // the first instruction of the whole body that has not been run
        for (const SegmentListId list : lists) {
            for (const Segment& segment : ranks_.segment_lists[list]) {
                const Body& body = program_.bodies[segment.body];
                if (!is_pass(body.phase) || only_waits(body)) continue;
                if (name_of(body.phase) != name_of(ranks_.actions[pass].kind)) {
                    refuse(pass, "it runs another kind of pass over layer {}", segment.layer);
                }
                const bool goes_on = paused != nullptr && segment.layer == paused->layer &&
                                     body.whole == program_.bodies[paused->body].whole && body.first_in_whole == next;
                if (paused != nullptr ? !goes_on : body.first_in_whole != 0) {
                    refuse(pass, "it does not go on where it paused in layer {}",
                           paused != nullptr ? paused->layer : segment.layer);
                }
                if (paused == nullptr) found.push_back(segment.layer);
                next = body.first_in_whole + static_cast<std::int32_t>(body.instructions.size());
                const bool is_complete =
                    body.whole < 0 || next == program_.bodies[body.whole].instructions.next_index();
                paused = is_complete ? nullptr : &segment;
            }
        }
        if (paused != nullptr) refuse(pass, "it does not complete layer {}", paused->layer);
        return found;
    }

    /// A forward passes the chunk's layers in order, a backward in reverse. Each pass is checked once per kind, chunk
    /// and segment lists.
    void check_layers() const {
        std::set<std::tuple<ActionKind, ChunkIndex, std::vector<SegmentListId>>> seen;
        for (const ActionIndex a : ranks_.actions.indices()) {
            const Action& action = ranks_.actions[a];
            if (!is_pass(action.kind) || !action.begins()) continue;
            const std::vector<SegmentListId> lists = lists_of(a);
            if (!seen.emplace(action.kind, action.chunk, lists).second) continue;
            std::vector<std::int32_t> expected = layers_of(ranks_.chunks[action.chunk]);
            if (action.kind != ActionKind::forward) std::reverse(expected.begin(), expected.end());
            const std::vector<std::int32_t> found = layers_passed(a, lists);
            if (found == expected) continue;
            refuse(a, "the {} layers that it passes are not the chunk's {} layers in order", found.size(),
                   expected.size());
        }
    }

    const ScheduleShape shape_ = schedule_shape(plan_);
    ActionsByKind once_;                                           // those that a step has once
    IndexedVector<ActionIndex, ActionIndex> last_part_;            // by the first action of a pass; of others: itself
    IndexedVector<ChunkIndex, std::vector<ActionsByKind>> table_;  // by chunk, then micro-batch
};

}  // namespace

void check_counts(const Program& program) {
    for (const ClassIndex c : program.classes.indices()) Counter(program, c).run();
}

}  // namespace orrery::program::rules
