// Rule "counts": each class runs every pass, transfer and update that the plan requires, once and in order.
#include <algorithm>
#include <set>
#include <tuple>

#include "sim/program/validate_rules.h"
#include "sim/program/vocabulary.h"

namespace orrery::program::rules {
namespace {

constexpr std::string_view kCounts = "counts";
/// The actions of one chunk and micro-batch, by kind; -1: none.
using ActionsByKind = EnumArray<ActionKind, ActionIndex, static_cast<std::size_t>(ActionKind::exchange) + 1>;

bool is_once_a_step(ActionKind kind) {
    return kind == ActionKind::sync_gradients || kind == ActionKind::optimizer_step;
}

class Counter {
  public:
    Counter(const Program& program, ClassIndex c)
        : program_(program), plan_(*program.plan), c_(c), ranks_(program.classes[c]), shape_(shape_of(plan_)) {}

    void run() {
        check_chunks();
        check_step_end();
        fill_table();
        for (const ChunkIndex k : ranks_.chunks.indices()) {
            const MicroBatches passing = micro_batches_of(plan_, ranks_.chunks[k]);
            for (std::int32_t m = 0; m < static_cast<std::int32_t>(plan_.micro_batches()); ++m) {
                check_micro_batch(k, m, m >= passing.begin && m < passing.end);
            }
        }
        check_layers();
    }

  private:
    [[nodiscard]] std::int64_t pipeline_rank() const { return is_replicated(program_) ? 0 : c_.value(); }
    [[nodiscard]] Site at(ActionIndex action) const { return {.rank_class = c_, .action = action}; }

    void check_chunks() const {
        const std::int64_t chunks = shape_.chunks + (plan_.parallelism.spreads_vocabulary() ? 2 : 0);
        if (ranks_.pp_index != pipeline_rank() || static_cast<std::int64_t>(ranks_.chunks.size()) != chunks) {
            fail(program_, kCounts, at(-1),
                 "pipeline rank " + std::to_string(ranks_.pp_index) + " has " + std::to_string(ranks_.chunks.size()) +
                     " chunks; the plan requires pipeline rank " + std::to_string(pipeline_rank()) + " with " +
                     std::to_string(chunks));
        }
        const std::int64_t stages = virtual_stages(shape_);
        const bool has_ends = !plan_.parallelism.spreads_vocabulary();
        for (const ChunkIndex k : ranks_.chunks.indices()) {
            const Chunk& chunk = ranks_.chunks[k];
            if (k.value() >= shape_.chunks) {
                check_vocabulary_chunk(k);
                continue;
            }
            const ChunkPlace place = chunk_place(shape_, ranks_.pp_index, k);
            std::int64_t first = 0;
            for (std::int64_t s = 0; s < place.virtual_stage; ++s) {
                first += plan_.parallelism.stage_layers.at(static_cast<std::size_t>(s));
            }
            const std::int64_t count = plan_.parallelism.stage_layers.at(static_cast<std::size_t>(place.virtual_stage));
            const bool placed = chunk.virtual_stage == place.virtual_stage && chunk.direction == place.direction &&
                                chunk.up == place.up && chunk.part == ChunkPart::stage &&
                                chunk.has_embedding == (place.virtual_stage == 0 && has_ends) &&
                                chunk.has_head == (place.virtual_stage == stages - 1 && has_ends);
            if (placed && chunk.first_block == first && chunk.block_count == count) continue;
            fail(program_, kCounts, at(-1),
                 "chunk " + std::to_string(k.value()) + ": its blocks are not those of the plan's virtual stage " +
                     std::to_string(place.virtual_stage));
        }
    }

    void check_vocabulary_chunk(ChunkIndex k) const {
        const Chunk& chunk = ranks_.chunks[k];
        const ChunkPart part = k == kOutputChunk ? ChunkPart::vocabulary_output : ChunkPart::vocabulary_input;
        if (chunk.part == part && chunk.virtual_stage == -1 && chunk.block_count == 0 && !chunk.has_embedding &&
            !chunk.has_head) {
            return;
        }
        fail(program_, kCounts, at(-1), "chunk " + std::to_string(k.value()) + " is not its part of the vocabulary");
    }

    void check_step_end() const {
        const bool updates = !is_replicated(program_) || c_ == 0;
        if (updates && (ranks_.actions.empty() || ranks_.actions.back().kind != ActionKind::optimizer_step)) {
            fail(program_, kCounts, at(-1), "the step does not end with the optimizer_step");
        }
        ActionIndex last_backward = -1, sync = -1;
        for (const ActionIndex here : ranks_.actions.indices()) {
            const ActionKind kind = ranks_.actions[here].kind;
            if (kind == ActionKind::backward || kind == ActionKind::backward_weight) last_backward = here;
            if (kind == ActionKind::optimizer_step && (!updates || here + 1 < ranks_.actions.next_index())) {
                fail(program_, kCounts, at(here), "it is not the last action of the step");
            }
            if (kind != ActionKind::sync_gradients) continue;
            if (sync >= 0) {
                fail(program_, kCounts, at(here), "it duplicates action " + std::to_string(sync.value()));
            }
            sync = here;
        }
        if (sync >= 0) check_order(last_backward, sync);
    }

    [[nodiscard]] ActionIndex& entry(ChunkIndex chunk, std::int32_t micro_batch, ActionKind kind) {
        return table_[chunk][static_cast<std::size_t>(micro_batch)][kind];
    }

    /// Fills in the action of each chunk, micro-batch and kind. The table omits actions without a micro-batch, and the
    /// exchanges of torch DataParallel, of which a micro-batch has several.
    void fill_table() {
        const std::int64_t batches = plan_.micro_batches();
        ActionsByKind none;
        none.fill(-1);
        table_.assign(ranks_.chunks.size(), std::vector<ActionsByKind>(static_cast<std::size_t>(batches), none));
        for (const ActionIndex here : ranks_.actions.indices()) {
            const Action& action = ranks_.actions[here];
            if (is_once_a_step(action.kind) != (action.micro_batch == -1) || action.micro_batch < -1 ||
                action.micro_batch >= batches) {
                fail(program_, kCounts, at(here),
                     "it has micro-batch " + std::to_string(action.micro_batch) + " of " + std::to_string(batches));
            }
            if (action.kind == ActionKind::exchange) {
                if (!is_replicated(program_))
                    fail(program_, kCounts, at(here), "the plan does not use torch DataParallel");
                continue;
            }
            if (is_once_a_step(action.kind)) continue;
            ActionIndex& known = entry(action.chunk, action.micro_batch, action.kind);
            if (known >= 0) {
                fail(program_, kCounts, at(here), "it duplicates action " + std::to_string(known.value()));
            }
            known = here;
        }
    }

    void check_order(ActionIndex first, ActionIndex second) const {
        if (first < second) return;
        fail(program_, kCounts, at(second),
             "it is issued before action " + std::to_string(first.value()) + " (" +
                 std::string(name_of(ranks_.actions[first].kind)) + "), on which it depends");
    }

    void check_micro_batch(ChunkIndex k, std::int32_t m, bool passes) {
        const Chunk& chunk = ranks_.chunks[k];
        const auto find = [&](ActionKind kind, bool expected) {
            const ActionIndex found = entry(k, m, kind);
            if ((found >= 0) == expected) return found;
            if (found >= 0) {
                fail(program_, kCounts, at(found),
                     passes ? "the stage has no such neighbour, or does not split its backward pass that way"
                            : "its micro-batch does not pass this chunk");
            }
            fail(program_, kCounts, at(-1),
                 "no " + std::string(name_of(kind)) + " of micro-batch " + std::to_string(m) + " in chunk " +
                     std::to_string(k.value()));
        };
        const bool split = row_of(shape_.schedule).splits_backward();
        const bool is_stage = chunk.part == ChunkPart::stage;
        const auto elsewhere = [&](std::int64_t stage) {
            return is_stage && stage >= 0 && stage < virtual_stages(shape_) &&
                   stage_holder(shape_, stage, chunk.direction).rank != ranks_.pp_index;
        };
        const bool has_backward = chunk.part != ChunkPart::vocabulary_output ||
                                  plan_.parallelism.vocabulary_parallel != VocabularyParallel::interlaced;
        const bool receives = passes && elsewhere(chunk.virtual_stage - 1);
        const bool sends = passes && elsewhere(chunk.virtual_stage + 1);
        const ActionIndex forward = find(ActionKind::forward, passes);
        // DualPipe does not split all backward passes.
        const bool is_split = split && entry(k, m, ActionKind::backward) < 0;
        const ActionIndex whole = find(ActionKind::backward, passes && !is_split && has_backward);
        const ActionIndex input = find(ActionKind::backward_input, passes && is_split);
        const ActionIndex weight = find(ActionKind::backward_weight, passes && is_split);
        const ActionIndex recv_forward = find(ActionKind::recv_forward, receives);
        const ActionIndex send_backward = find(ActionKind::send_backward, receives);
        const ActionIndex send_forward = find(ActionKind::send_forward, sends);
        const ActionIndex recv_backward = find(ActionKind::recv_backward, sends);
        if (!passes) return;
        const ActionIndex backward = is_split ? input : whole;
        if (has_backward) check_order(forward, backward);
        if (!is_stage) return check_vocabulary_pass(k, m, forward, backward);
        if (is_split) check_order(input, weight);
        if (receives) {
            check_order(recv_forward, forward);
            check_order(backward, send_backward);
        }
        if (sends) {
            check_order(forward, send_forward);
            check_order(recv_backward, backward);
        }
        check_neighbours(k, m, forward, backward);
    }

    /// The order of a vocabulary part's passes relative to those of the stage on the same rank with which it exchanges
    /// hidden states and gradients.
    void check_vocabulary_pass(ChunkIndex k, std::int32_t m, ActionIndex forward, ActionIndex backward) {
        const Parallelism& p = plan_.parallelism;
        const bool is_output = ranks_.chunks[k].part == ChunkPart::vocabulary_output;
        const ActionIndex stage_forward = entry(0, m, ActionKind::forward);
        const ActionIndex stage_backward = entry(0, m, ActionKind::backward);
        if (is_output && ranks_.pp_index == p.pp - 1) {
            check_order(stage_forward, forward);
            check_order(p.vocabulary_gradient_from_forward() ? forward : backward, stage_backward);
        }
        if (!is_output && ranks_.pp_index == 0) {
            check_order(forward, stage_forward);
            check_order(stage_backward, backward);
        }
    }

    /// If the previous virtual stage is on the same rank, its forward comes before this one's and its backward after.
    void check_neighbours(ChunkIndex k, std::int32_t m, ActionIndex forward, ActionIndex backward) {
        const Chunk& chunk = ranks_.chunks[k];
        if (chunk.virtual_stage == 0) return;
        const StageHolder before = stage_holder(shape_, chunk.virtual_stage - 1, chunk.direction);
        if (before.rank != ranks_.pp_index) return;
        const ChunkIndex other = before.chunk;
        const ActionIndex previous_forward = entry(other, m, ActionKind::forward);
        const ActionIndex previous_backward =
            std::max(entry(other, m, ActionKind::backward_input), entry(other, m, ActionKind::backward));
        if (previous_forward >= 0) check_order(previous_forward, forward);
        if (previous_backward >= 0) check_order(backward, previous_backward);
    }

    /// The layers of a chunk in forward order: embedding (-1), blocks, head (L).
    [[nodiscard]] std::vector<std::int32_t> layers_of(const Chunk& chunk) const {
        std::vector<std::int32_t> layers;
        if (chunk.has_embedding || chunk.part == ChunkPart::vocabulary_input) layers.push_back(-1);
        for (std::int64_t i = 0; i < chunk.block_count; ++i) {
            layers.push_back(static_cast<std::int32_t>(chunk.first_block + i));
        }
        const bool has_norm = chunk.part == ChunkPart::stage && plan_.parallelism.spreads_vocabulary() &&
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
            Phase phase{};
            if (action.kind == ActionKind::forward) {
                phase = Phase::forward;
            } else if (action.kind == ActionKind::backward) {
                phase = Phase::backward;
            } else if (action.kind == ActionKind::backward_input) {
                phase = Phase::backward_input;
            } else if (action.kind == ActionKind::backward_weight) {
                phase = Phase::backward_weight;
            } else {
                continue;
            }
            if (!seen.emplace(action.kind, action.chunk, action.segments).second) continue;
            std::vector<std::int32_t> expected = layers_of(ranks_.chunks[action.chunk]);
            if (phase != Phase::forward) std::reverse(expected.begin(), expected.end());
            std::vector<std::int32_t> found;
            for (const Segment& segment : ranks_.segment_lists[action.segments]) {
                const Body& body = program_.bodies[segment.body];
                if (only_waits(body)) continue;
                const Phase runs = body.phase;
                if (runs == phase) found.push_back(segment.layer);
                const bool passes = runs == Phase::forward || runs == Phase::backward ||
                                    runs == Phase::backward_input || runs == Phase::backward_weight;
                if (passes && runs != phase) {
                    fail(program_, kCounts, at(a),
                         "it runs another kind of pass over layer " + std::to_string(segment.layer));
                }
            }
            if (found == expected) continue;
            fail(program_, kCounts, at(a),
                 "the " + std::to_string(found.size()) + " layers that it passes are not the chunk's " +
                     std::to_string(expected.size()) + " layers in order");
        }
    }

    const Program& program_;
    const Plan& plan_;
    ClassIndex c_;
    const RankClass& ranks_;
    ScheduleShape shape_;
    IndexedVector<ChunkIndex, std::vector<ActionsByKind>> table_;  // by chunk, then micro-batch
};

}  // namespace

void check_counts(const Program& program) {
    for (const ClassIndex c : program.classes.indices()) Counter(program, c).run();
}

}  // namespace orrery::program::rules
