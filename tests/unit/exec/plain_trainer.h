// Trains a model on one rank without a Program: the operators of its layers, one after the other.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "exec/cpu/cpu_operators.h"
#include "exec/weights.h"
#include "models/layer.h"

namespace orrery::exec {

/// Every slot of every layer has its own memory. Runs forward over all layers, then backward.
class PlainTrainer {
  public:
    PlainTrainer(const models::ModelSpec& model, std::int64_t sequence, std::int64_t micro_batch,
                 std::int64_t global_batch, std::uint64_t seed, double dropout = 0)
        : model_(model),
          seed_(seed),
          dropout_(dropout),
          global_batch_(global_batch),
          micro_batch_(micro_batch),
          data_("synthetic", seed, model.vocab, sequence) {
        models::LayerContext context;
        context.sequence = sequence;
        context.micro_batch = micro_batch;
        context.dropout = dropout;
        context.padded_vocab = model.vocab + 5;  // padding must not change the results
        context.tied_to_embedding = model.tied_embeddings;
        add_layer(models::build_layer(model, models::LayerKind::embedding, context), "", seed);
        for (std::int64_t i = 0; i < model.layers; ++i) {
            const models::LayerKind kind =
                model.is_expert_layer(i) ? models::LayerKind::expert_block : models::LayerKind::block;
            add_layer(models::build_layer(model, kind, context), "layers." + std::to_string(i) + ".", seed);
        }
        add_layer(models::build_layer(model, models::LayerKind::head, context), "", seed);
    }

    /// Runs forward and, if requested, backward over the step's global batch; returns the mean loss per token.
    double pass(std::int64_t step, bool backward) {
        loss_ = 0.0;
        for (std::int64_t first = 0; first < global_batch_; first += micro_batch_) {
            samples_.clear();
            for (std::int64_t i = 0; i < micro_batch_; ++i) samples_.push_back(step * global_batch_ + first + i);
            for (Built& built : layers_) run_steps(built, built.layer.forward);
            if (!backward) continue;
            for (auto built = layers_.rbegin(); built != layers_.rend(); ++built) {
                run_steps(*built, built->layer.backward);
            }
        }
        return loss_ / static_cast<double>(global_batch_ * data_.sequence());
    }

    void update(std::int64_t step) {
        for (Tensor& t : tensors_) {
            const std::vector<UpdateRange> ranges{
                {.elements = static_cast<std::int64_t>(t.value.size()), .decays = t.slot->weight_decay}};
            models::Operator op;
            op.kind = models::OpKind::adamw;
            op.elements = ranges.front().elements;
            OperatorPointers at;
            at.in[0] = t.gradient.data();
            at.out = {t.value.data(), t.m.data(), t.v.data(), t.gradient.data(), nullptr, nullptr};
            OperatorContext context = make_context();
            context.optimizer = {3e-4, 0.9, 0.95, 1e-8, 0.1, step + 1};
            context.updates = ranges;
            run(op, at, context);
        }
    }

    /// Squared L2 norm of the gradient of each global tensor.
    std::map<std::string, double> gradient_squares() const {
        std::map<std::string, double> squares;
        for (const Tensor& t : tensors_) {
            for_each_local_row(*t.slot, {}, [&](const ShardRow& row) {
                for (std::int64_t i = 0; i < row.local_cols; ++i) {
                    const auto g = static_cast<double>(t.gradient[static_cast<std::size_t>(row.local_offset + i)]);
                    if (row.global_row < 0) {
                        EXPECT_EQ(g, 0.0) << "padding of " << row.part->name;
                    }
                    squares[t.prefix + row.part->name] += g * g;
                }
            });
        }
        return squares;
    }

    /// parameters += distance * gradient.
    void move_along_gradient(double distance) {
        for (Tensor& t : tensors_) {
            for (std::size_t i = 0; i < t.value.size(); ++i) {
                t.value[i] =
                    static_cast<float>(static_cast<double>(t.value[i]) + distance * static_cast<double>(t.gradient[i]));
            }
        }
    }

    std::set<models::OpKind> kinds_run;

  private:
    struct Tensor {
        const models::SlotDecl* slot = nullptr;
        std::string prefix;
        std::vector<float> value, gradient, m, v;
    };
    struct Built {
        models::Layer layer;
        std::int64_t index = 0;
        IndexedVector<models::SlotIndex, void*> memory;
        IndexedVector<models::SlotIndex, std::size_t> tensors;  // index in tensors_ of a parameter
    };

    void* allocate(std::int64_t bytes) {
        buffers_.emplace_back(static_cast<std::size_t>(bytes));
        // Filled with NaN, so that reading uninitialised memory shows.
        std::fill(buffers_.back().begin(), buffers_.back().end(), std::byte{0xff});
        return buffers_.back().data();
    }

    void add_layer(models::Layer layer, const std::string& prefix, std::uint64_t seed) {
        Built& built = layers_.emplace_back();
        built.layer = std::move(layer);
        built.index = static_cast<std::int64_t>(layers_.size()) - 2;  // the embedding is -1
        const models::Slots& slots = built.layer.slots;
        built.memory.resize(slots.size());
        built.tensors.resize(slots.size());
        for (const models::SlotIndex i : slots.indices()) {
            const models::SlotDecl& slot = slots[i];
            switch (slot.role) {
                case models::SlotRole::hidden_in:
                    built.memory[i] = hidden_;
                    break;
                case models::SlotRole::hidden_gradient:
                    if (hidden_gradient_ == nullptr) hidden_gradient_ = allocate(slot.bytes());
                    built.memory[i] = hidden_gradient_;
                    break;
                case models::SlotRole::parameter:
                    if (!slot.tied) add_tensor(slot, prefix, seed);
                    built.tensors[i] = slot.tied ? 0 : tensors_.size() - 1;
                    built.memory[i] = tensors_[built.tensors[i]].value.data();
                    break;
                case models::SlotRole::gradient:
                    built.memory[i] = tensors_[built.tensors[slot.parameter_slot]].gradient.data();
                    break;
                case models::SlotRole::loss:
                    built.memory[i] = &loss_;
                    break;
                case models::SlotRole::hidden_out:
                case models::SlotRole::saved:
                case models::SlotRole::transient:
                    built.memory[i] = allocate(slot.bytes());
                    break;
                case models::SlotRole::weight_copy:
                    throw std::logic_error("fp32 products read the weights themselves");
            }
        }
        for (const models::SlotIndex i : slots.indices()) {
            if (slots[i].role == models::SlotRole::hidden_out) hidden_ = built.memory[i];
        }
    }

    void add_tensor(const models::SlotDecl& slot, const std::string& prefix, std::uint64_t seed) {
        const auto size = static_cast<std::size_t>(slot.elements());
        const std::vector<float> zeros(size, 0.0F);
        tensors_.push_back({&slot, prefix, zeros, zeros, zeros, zeros});
        fill_parameter(slot, prefix, {}, seed, tensors_.back().value);
    }

    OperatorContext make_context() const {
        OperatorContext context;
        context.model = &model_;
        context.loss_scale = 1.0 / static_cast<double>(global_batch_ * data_.sequence());
        context.data = &data_;
        context.samples = samples_;
        context.dropout = dropout_;
        context.seed = seed_;
        return context;
    }

    void run(const models::Operator& op, const OperatorPointers& at, const OperatorContext& context) {
        kinds_run.insert(op.kind);
        backend_.run(op, at, context);
    }

    void run_steps(Built& built, const std::vector<models::Step>& steps) {
        for (const models::Step& step : steps) {
            const auto* op = std::get_if<models::Operator>(&step);
            ASSERT_NE(op, nullptr) << "a single rank has no boundaries";
            const OperatorPointers at = bind(
                *op, [&](models::SlotIndex slot) -> const auto& { return built.layer.slots[slot]; },
                [&](models::SlotIndex slot) { return built.memory[slot]; });
            OperatorContext context = make_context();
            context.layer = built.index;
            run(*op, at, context);
        }
    }

    models::ModelSpec model_;
    std::uint64_t seed_;
    double dropout_;
    std::int64_t global_batch_;
    std::int64_t micro_batch_;
    TokenSource data_;
    CpuOperators backend_;
    std::deque<Built> layers_;     // a deque, because tensors point to slots
    std::vector<Tensor> tensors_;  // [0] is the embedding
    std::vector<std::vector<std::byte>> buffers_;
    std::vector<std::int64_t> samples_;
    void* hidden_ = nullptr;
    void* hidden_gradient_ = nullptr;
    double loss_ = 0.0;
};

}  // namespace orrery::exec
