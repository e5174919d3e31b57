// Plans whose vocabulary is cut over the stages: the passes of the vocabulary are chunks of their own, so counts,
// parameters and bytes have closed forms of their own here. Rule names are those of the other plans.
#include <map>

#include "sim/program/validate_rules.h"
#include "sim/program/vocabulary.h"

namespace orrery::program::rules {
namespace {

class VocabularyRules {
  public:
    explicit VocabularyRules(const Program& program)
        : program_(program),
          plan_(*program.plan),
          padded_(models::padded_vocabulary(plan_.model, plan_.implementation.vocab_multiple, plan_.parallelism.pp)) {}

    void run() const {
        for (std::size_t c = 0; c < program_.classes.size(); ++c) {
            check_counts(static_cast<std::int32_t>(c));
            check_bytes(static_cast<std::int32_t>(c));
        }
        check_parameters();
    }

  private:
    [[nodiscard]] const RankClass& ranks(std::int32_t c) const { return program_.classes[static_cast<std::size_t>(c)]; }

    /// Each pass once a micro-batch: the blocks forward and backward, S and T (interlaced: one pass), the lookup and
    /// its gradient.
    void check_counts(std::int32_t c) const {
        constexpr std::int32_t kChunks = 3;
        if (ranks(c).chunks.size() != kChunks) {
            fail(program_, "counts", {.rank_class = c}, std::to_string(ranks(c).chunks.size()) + " chunks, not 3");
        }
        std::map<std::pair<std::int32_t, ActionKind>, std::int64_t> counts;
        for (const Action& action : ranks(c).actions) {
            if (action.kind == ActionKind::forward || action.kind == ActionKind::backward) {
                ++counts[{action.chunk, action.kind}];
            }
        }
        for (std::int32_t chunk = 0; chunk < kChunks; ++chunk) {
            for (const ActionKind kind : {ActionKind::forward, ActionKind::backward}) {
                const bool one_pass = plan_.parallelism.vocabulary_parallel == VocabularyParallel::interlaced &&
                                      chunk == kOutputChunk && kind == ActionKind::backward;
                const std::int64_t expected = one_pass ? 0 : plan_.micro_batches();
                if (counts[{chunk, kind}] == expected) continue;
                fail(program_, "counts", {.rank_class = c},
                     std::to_string(counts[{chunk, kind}]) + " actions " + std::string(name_of(kind)) + " of chunk " +
                         std::to_string(chunk) + ", not " + std::to_string(expected));
            }
        }
    }

    /// Over the pipeline: X and the gradient of the lookup are broadcast, dX and the lookup reduced, and for the loss
    /// every rank's maximum and two sums a token gathered, in fp32. Between neighbours: M each way.
    void check_bytes(std::int32_t c) const {
        const std::int64_t tokens = plan_.training.sequence_length * plan_.training.micro_batch_size;
        const std::int64_t m = plan_.micro_batches();
        const std::int64_t hidden = tokens * plan_.model.hidden * size_of(plan_.training.precision.activation);
        std::map<std::pair<GroupAxis, CommKind>, std::int64_t> expected{
            {{GroupAxis::pipeline, CommKind::broadcast}, 2 * m * hidden},
            {{GroupAxis::pipeline, CommKind::reduce}, 2 * m * hidden},
            {{GroupAxis::pipeline, CommKind::all_gather},
             3 * m * plan_.parallelism.pp * tokens * size_of(DType::fp32)}};
        if (c > 0) {
            expected[{GroupAxis::down_forward, CommKind::recv}] = m * hidden;
            expected[{GroupAxis::down_backward, CommKind::send}] = m * hidden;
        }
        if (c + 1 < plan_.parallelism.pp) {
            expected[{GroupAxis::down_forward, CommKind::send}] = m * hidden;
            expected[{GroupAxis::down_backward, CommKind::recv}] = m * hidden;
        }
        std::map<std::pair<GroupAxis, CommKind>, std::int64_t> issued;
        for (const Action& action : ranks(c).actions) {
            for (const Segment& segment : ranks(c).segment_lists[static_cast<std::size_t>(action.segments)]) {
                for (const Instruction& instruction :
                     program_.bodies[static_cast<std::size_t>(segment.body)].instructions) {
                    const Communication& comm = instruction.communication;
                    const bool ours = is_pair(comm.axis) || comm.axis == GroupAxis::pipeline;
                    if (instruction.is_communication && ours) issued[{comm.axis, comm.kind}] += comm.bytes();
                }
            }
        }
        for (const auto& [key, bytes] : expected) issued[key] += 0;
        for (const auto& [key, bytes] : issued) {
            if (bytes == expected[key]) continue;
            fail(program_, "bytes", {.rank_class = c},
                 std::string(name_of(key.second)) + " on the axis " + std::string(name_of(key.first)) + " moves " +
                     std::to_string(bytes) + " bytes a step; by the closed form it is " +
                     std::to_string(expected[key]));
        }
    }

    /// Everything once over the stages, the vocabulary padded.
    void check_parameters() const {
        std::int64_t total = 0;
        for (const RankClass& one : program_.classes) {
            for (const Parameter& parameter : one.parameters) total += parameter.elements;
        }
        const std::int64_t matrices = plan_.model.tied_embeddings ? 1 : 2;
        std::int64_t expected =
            models::parameter_count(plan_.model) + matrices * (padded_ - plan_.model.vocab) * plan_.model.hidden;
        if (plan_.model.head_bias) expected += padded_ - plan_.model.vocab;
        // Experts are spread over ep ranks of a stage, of which a class holds one.
        if (plan_.parallelism.ep > 1 || plan_.parallelism.etp > 1) return;
        if (total == expected) return;
        fail(program_, "parameters", {},
             "its stages hold " + std::to_string(total) + " parameters in all, not " + std::to_string(expected));
    }

    const Program& program_;
    const Plan& plan_;
    std::int64_t padded_;
};

}  // namespace

void check_vocabulary(const Program& program) {
    VocabularyRules(program).run();
}

}  // namespace orrery::program::rules
