#include "exec/checkpoint/state.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "exec/data.h"
#include "exec/update_operator.h"

namespace orrery::exec {
TrainingState::TrainingState(const program::Program& program, std::int64_t rank, const Shards& shards,
                             const Arena& arena)
    : program_(program), rank_(rank), shards_(shards) {
    const UpdateOperator update = update_operator_of(program, program.classes[program.class_of(rank)]);
    if (update.op == nullptr) return;
    const DType resting = arena.resting_dtype();
    const auto add_resting = [&](StateKind kind, DType dtype) {
        buffers_.push_back({.kind = kind,
                            .dtype = dtype,
                            .first = arena.parameters_at_rest({}),
                            .order = Order::parameters,
                            .held = resting});
    };
    add_resting(StateKind::parameter, program.plan->training.precision.parameter);
    // bf16 parameters that rest in fp32 are their own master weights.
    if (buffers_.front().dtype != resting) add_resting(StateKind::master, resting);
    const auto add = [&](StateKind kind, const program::Slot* slot) {
        if (slot == nullptr) return;
        buffers_.push_back({.kind = kind,
                            .dtype = slot->decl.dtype,
                            .first = static_cast<std::byte*>(arena.flat_address(*slot)),
                            .is_copy = kind == StateKind::parameter,
                            .held = slot->decl.dtype});
    };
    const bool adam = update.op->kind == models::OpKind::adamw;
    if (update.op->offloaded && !arena.parameters_rest_on_host()) add(StateKind::parameter, update.out(0));
    add(adam ? StateKind::adam_m : StateKind::momentum, update.out(1));
    if (adam) add(StateKind::adam_v, update.out(2));
    add(StateKind::master, update.out(4));
}

void TrainingState::add_blocks(const Buffer& buffer, const std::vector<ShardPiece>& pieces,
                               const std::vector<TensorSlice>& slices, std::vector<StateBlock>& blocks) const {
    const std::int64_t element = size_of(buffer.held);
    for (const TensorSlice& slice : slices) {
        const ShardPiece& piece = pieces[slice.piece];
        const std::int64_t place = buffer.order == Order::parameters ? shards_.parameter_place(piece, slice.flat)
                                                                     : shards_.state_place(piece, slice.flat);
        blocks.push_back({.tensor = slice.tensor,
                          .kind = buffer.kind,
                          .dtype = buffer.dtype,
                          .held = buffer.held,
                          .row = slice.row,
                          .col = slice.col,
                          .rows = slice.rows,
                          .cols = slice.cols,
                          .first = buffer.first + place * element,
                          .stride_bytes = slice.flat_stride * element});
    }
}

std::vector<StateBlock> TrainingState::needed() const {
    const std::vector<ShardPiece> resting = shards_.parameters_at_rest();
    const std::vector<TensorSlice> parameters = slices_of(program_, rank_, resting);
    const std::vector<TensorSlice> updated = slices_of(program_, rank_, shards_.pieces());
    std::vector<StateBlock> blocks;
    for (const Buffer& buffer : buffers_) {
        if (buffer.held != buffer.dtype) continue;
        if (buffer.order == Order::parameters) {
            add_blocks(buffer, resting, parameters, blocks);
        } else {
            add_blocks(buffer, shards_.pieces(), updated, blocks);
        }
    }
    return blocks;
}

std::vector<StateBlock> TrainingState::owned() const {
    std::vector<TensorSlice> slices = slices_of(program_, rank_, shards_.pieces());
    std::erase_if(slices, [&](const TensorSlice& slice) { return !shards_.is_first_copy(*slice.parameter); });
    std::vector<StateBlock> blocks;
    for (const Buffer& buffer : buffers_) {
        if (!buffer.is_copy) add_blocks(buffer, shards_.pieces(), slices, blocks);
    }
    return blocks;
}

std::map<std::string, std::string> bound_settings(const program::Plan& plan) {
    const auto text = [](const nlohmann::json& value) { return value.dump(); };
    const program::Training& training = plan.training;
    std::map<std::string, std::string> settings{
        {"/training/sequence_length", text(training.sequence_length)},
        {"/training/global_batch_size", text(training.global_batch_size)},
        {"/training/precision", text(program::name_of(training.precision))},
        {"/training/optimizer/kind", text(program::name_of(training.optimizer.kind))},
        {"/training/dropout", text(training.dropout)},
        {"/training/seed", text(training.seed)},
        {"/training/data",
         text(TokenSource(training.data, training.seed, plan.model.vocab, training.sequence_length).identity())}};
    const auto model = nlohmann::json::parse(models::to_json_text(plan.model)).flatten();
    for (const auto& [pointer, value] : model.items()) {
        if (pointer != "/schema" && pointer != "/name") settings["/model" + pointer] = text(value);
    }
    return settings;
}

void check_settings(const program::Program& program, const std::string& plan_path, const Manifest& manifest,
                    const std::string& checkpoint_path) {
    const std::map<std::string, std::string> mine = bound_settings(*program.plan);
    const std::string as_in = ", as in " + checkpoint_path;
    for (const auto& [key, value] : mine) {
        const auto stored = manifest.settings.find(key);
        const std::string allowed = stored == manifest.settings.end() ? "nothing" : stored->second;
        if (allowed != value) throw InputError(plan_path, key, value, allowed + as_in);
    }
    for (const auto& [key, value] : manifest.settings) {
        if (!mine.contains(key)) throw InputError(plan_path, key, "nothing", value + as_in);
    }
    if (manifest.tensors != whole_tensors(program)) {
        throw InputError(plan_path, "/model", "a model with other tensors", "the tensors of " + checkpoint_path);
    }
}

}  // namespace orrery::exec
