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

/// The actions of one chunk and micro-batch, by kind; -1: none.
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
            if (known >= 0) refuse(here, "it duplicates action {}", known);
            known = here;
        }
    }

    /// Checks the order of two actions; -1: there is none, and nothing to check.
    void check_order(ActionIndex first, ActionIndex second) const {
        if (first < 0 || second < 0 || first < second) return;
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

    /// A forward passes the chunk's layers in order, a backward in reverse. Each segment list is checked once per kind
    /// and chunk.
    void check_layers() const {
        std::set<std::tuple<ActionKind, ChunkIndex, SegmentListId>> seen;
        for (const ActionIndex a : ranks_.actions.indices()) {
            const Action& action = ranks_.actions[a];
            if (!is_pass(action.kind)) continue;
            if (!seen.emplace(action.kind, action.chunk, action.segments).second) continue;
            std::vector<std::int32_t> expected = layers_of(ranks_.chunks[action.chunk]);
            if (action.kind != ActionKind::forward) std::reverse(expected.begin(), expected.end());
            std::vector<std::int32_t> found;
            for (const Segment& segment : ranks_.segment_lists[action.segments]) {
                const Body& body = program_.bodies[segment.body];
                if (!is_pass(body.phase) || only_waits(body)) continue;
                if (name_of(body.phase) != name_of(action.kind)) {
                    refuse(a, "it runs another kind of pass over layer {}", segment.layer);
                }
                found.push_back(segment.layer);
            }
            if (found == expected) continue;
            refuse(a, "the {} layers that it passes are not the chunk's {} layers in order", found.size(),
                   expected.size());
        }
    }

    const ScheduleShape shape_ = schedule_shape(plan_);
    ActionsByKind once_;                                           // those that a step has once
    IndexedVector<ChunkIndex, std::vector<ActionsByKind>> table_;  // by chunk, then micro-batch
};

}  // namespace

void check_counts(const Program& program) {
    for (const ClassIndex c : program.classes.indices()) Counter(program, c).run();
}

}  // namespace orrery::program::rules
