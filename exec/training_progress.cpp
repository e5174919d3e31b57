#include "exec/training_progress.h"

#include <algorithm>

#include "exec/weights.h"

namespace orrery::exec {
namespace {

bool trains(RankStage stage) {
    return stage == RankStage::training || stage == RankStage::saving;
}

}  // namespace

bool speaks_for_loss(const program::Program& program, std::int64_t rank) {
    if (vocabulary_index(program, rank) > 0) return false;
    if (program.plan->parallelism.vocabulary_parallel != program::VocabularyParallel::none) return true;
    const auto& chunks = program.classes[program.class_of(rank)].chunks;
    return std::any_of(chunks.begin(), chunks.end(), [](const program::Chunk& chunk) { return chunk.has_head; });
}

double mean_loss(const program::Program& program, double sum) {
    const program::Training& training = program.plan->training;
    return sum / static_cast<double>(training.global_batch_size * training.sequence_length);
}

std::optional<TrainingProgress> progress_of(const JobPages& pages, const program::Program& program) {
    TrainingProgress progress;
    for (int rank = 0; rank < pages.ranks(); ++rank) {
        const RankSnapshot page = pages.read(rank);
        if (!trains(page.stage)) return {};
        progress.first_step = page.first_step;
        progress.steps_done = rank == 0 ? page.steps_done : std::min(progress.steps_done, page.steps_done);
    }
    if (progress.steps_done == 0) return {};
    double sum = 0;
    for (int rank = 0; rank < pages.ranks(); ++rank) {
        if (speaks_for_loss(program, rank)) sum += pages.loss_sum(rank, progress.steps_done - 1);
    }
    progress.loss = mean_loss(program, sum);
    return progress;
}

std::optional<TrainingProgress> progress_of(const FlightRecorder& recorder, const program::Program& program) {
    const RankSnapshot page = recorder.snapshot();
    if (page.steps_done == 0) return {};
    return TrainingProgress{.first_step = page.first_step,
                            .steps_done = page.steps_done,
                            .loss = mean_loss(program, recorder.last_loss_sum())};
}

}  // namespace orrery::exec
