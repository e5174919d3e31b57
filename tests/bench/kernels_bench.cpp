// Every kernel family compared with a plain loop, and the FLOP/s of GEMMs and attention. A multiply-add counts as two
// FLOPs; causal attention counts only unmasked pairs.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "core/random.h"
#include "kernels/kernels.h"

namespace orrery::kernels {
namespace {

std::vector<float> values(std::int64_t count) {
    const RandomStream stream(1, "bench");
    std::vector<float> result(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < result.size(); ++i) result[i] = static_cast<float>(stream.uniform(i)) - 0.5F;
    return result;
}

void report_flops(benchmark::State& state, double flops) {
    set_blas_threads(1);
    state.counters["FLOP/s"] = benchmark::Counter(flops * static_cast<double>(state.iterations()),
                                                  benchmark::Counter::kIsRate, benchmark::Counter::kIs1000);
}
void report_bytes(benchmark::State& state, double bytes) {
    state.SetBytesProcessed(static_cast<std::int64_t>(bytes * static_cast<double>(state.iterations())));
}

// ---- linear ---------------------------------------------------------------------------------------------------------

void naive_linear(benchmark::State& state) {
    const LinearShape s{state.range(0), state.range(1), state.range(2)};
    const auto x = values(s.rows * s.k);
    const auto w = values(s.n * s.k);
    auto y = values(s.rows * s.n);
    for ([[maybe_unused]] auto _ : state) {
        for (std::int64_t r = 0; r < s.rows; ++r) {
            for (std::int64_t c = 0; c < s.n; ++c) {
                float sum = 0.0F;
                for (std::int64_t i = 0; i < s.k; ++i) {
                    sum += x[static_cast<std::size_t>(r * s.k + i)] * w[static_cast<std::size_t>(c * s.k + i)];
                }
                y[static_cast<std::size_t>(r * s.n + c)] = sum;
            }
        }
        benchmark::ClobberMemory();
    }
    report_flops(state, 2.0 * static_cast<double>(s.rows * s.n * s.k));
}
BENCHMARK(naive_linear)->Args({256, 768, 768})->Unit(benchmark::kMicrosecond);

enum class Pass { forward, backward_input, backward_weight };
void linear(benchmark::State& state, Pass pass) {
    const LinearShape s{state.range(0), state.range(1), state.range(2)};
    auto x = values(s.rows * s.k);
    auto w = values(s.n * s.k);
    auto bias = values(s.n);
    auto y = values(s.rows * s.n);
    set_blas_threads(1);
    for ([[maybe_unused]] auto _ : state) {
        if (pass == Pass::forward) linear_forward(s, {x.data(), s.k}, w.data(), bias.data(), {y.data(), s.n});
        if (pass == Pass::backward_input) linear_backward_input(s, {y.data(), s.n}, w.data(), {x.data(), s.k});
        if (pass == Pass::backward_weight)
            linear_backward_weight(s, {y.data(), s.n}, {x.data(), s.k}, w.data(), bias.data());
        benchmark::ClobberMemory();
    }
    report_flops(state, 2.0 * static_cast<double>(s.rows * s.n * s.k));
}
BENCHMARK_CAPTURE(linear, forward, Pass::forward)
    ->Args({32, 64, 64})
    ->Args({256, 256, 256})
    ->Args({256, 768, 768})
    ->Args({1024, 1024, 4096})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(linear, backward_input, Pass::backward_input)->Args({256, 768, 768})->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(linear, backward_weight, Pass::backward_weight)->Args({256, 768, 768})->Unit(benchmark::kMicrosecond);

// ---- attention ------------------------------------------------------------------------------------------------------

struct AttentionBuffers {
    AttentionShape s;
    std::vector<float> qkv, o, lse, d_o, dqkv, scratch;
    explicit AttentionBuffers(AttentionShape shape)
        : s(shape),
          qkv(values(rows() * (s.heads + 2 * s.kv_heads) * s.head_dim)),
          o(values(rows() * s.heads * s.head_dim)),
          lse(values(rows() * s.heads)),
          d_o(o),
          dqkv(qkv),
          scratch(values(attention_scratch_elements(s.sequence, s.head_dim))) {}
    [[nodiscard]] std::int64_t rows() const { return s.sequence * s.micro_batch; }
    [[nodiscard]] double pair_flops() const {
        const auto length = static_cast<double>(s.sequence);
        return length * (length + 1) * static_cast<double>(s.heads * s.micro_batch * s.head_dim);  // 2 d per pair
    }
};
AttentionShape attention_shape(const benchmark::State& state) {
    return {state.range(0), state.range(1), state.range(2), state.range(3), state.range(4), 0};
}

void naive_attention(benchmark::State& state) {
    AttentionBuffers b(attention_shape(state));
    const std::int64_t d = b.s.head_dim;
    const std::int64_t width = (b.s.heads + 2 * b.s.kv_heads) * d;
    std::vector<float> p(static_cast<std::size_t>(b.s.sequence));
    for ([[maybe_unused]] auto _ : state) {
        for (std::int64_t sample = 0; sample < b.s.micro_batch; ++sample) {
            for (std::int64_t head = 0; head < b.s.heads; ++head) {
                const std::int64_t k_head = b.s.heads + head * b.s.kv_heads / b.s.heads;
                for (std::int64_t query = 0; query < b.s.sequence; ++query) {
                    const std::int64_t row = query * b.s.micro_batch + sample;
                    float total = 0.0F;
                    for (std::int64_t key = 0; key <= query; ++key) {
                        const float* q = b.qkv.data() + row * width + head * d;
                        const float* k = b.qkv.data() + (key * b.s.micro_batch + sample) * width + k_head * d;
                        float score = 0.0F;
                        for (std::int64_t i = 0; i < d; ++i) score += q[i] * k[i];
                        p[static_cast<std::size_t>(key)] = std::exp(score / std::sqrt(static_cast<float>(d)));
                        total += p[static_cast<std::size_t>(key)];
                    }
                    float* out = b.o.data() + (row * b.s.heads + head) * d;
                    for (std::int64_t i = 0; i < d; ++i) out[i] = 0.0F;
                    for (std::int64_t key = 0; key <= query; ++key) {
                        const float* v =
                            b.qkv.data() + (key * b.s.micro_batch + sample) * width + (k_head + b.s.kv_heads) * d;
                        const float weight = p[static_cast<std::size_t>(key)] / total;
                        for (std::int64_t i = 0; i < d; ++i) out[i] += weight * v[i];
                    }
                }
            }
        }
        benchmark::ClobberMemory();
    }
    report_flops(state, 2 * b.pair_flops());
}
BENCHMARK(naive_attention)->Args({512, 1, 4, 2, 64})->Unit(benchmark::kMicrosecond);

void attention_forward_pass(benchmark::State& state) {
    AttentionBuffers b(attention_shape(state));
    set_blas_threads(1);
    for ([[maybe_unused]] auto _ : state) {
        attention_forward(b.s, b.qkv.data(), b.o.data(), b.lse.data(), b.scratch.data());
        benchmark::ClobberMemory();
    }
    report_flops(state, 2 * b.pair_flops());
}
void attention_backward_pass(benchmark::State& state) {
    AttentionBuffers b(attention_shape(state));
    set_blas_threads(1);
    attention_forward(b.s, b.qkv.data(), b.o.data(), b.lse.data(), b.scratch.data());
    for ([[maybe_unused]] auto _ : state) {
        attention_backward(b.s, b.d_o.data(), b.qkv.data(), b.o.data(), b.lse.data(), b.dqkv.data(), b.scratch.data());
        benchmark::ClobberMemory();
    }
    report_flops(state, 5 * b.pair_flops());
}
void attention_shapes(benchmark::internal::Benchmark* bench) {
    // sequence, micro-batch, query heads, key/value heads, head dim
    bench->Args({32, 4, 4, 4, 16})->Args({128, 4, 8, 8, 32})->Args({512, 1, 4, 2, 64})->Args({2048, 1, 2, 1, 128});
    bench->Unit(benchmark::kMicrosecond);
}
BENCHMARK(attention_forward_pass)->Apply(attention_shapes);
BENCHMARK(attention_backward_pass)->Apply(attention_shapes);

/// One context-parallel rank: the queries of its chunks over the gathered keys of all ranks.
void attention_part(benchmark::State& state, bool backward, double dropout) {
    constexpr std::int64_t kHeads = 4, kKvHeads = 2, kDim = 64;
    const std::int64_t sequence = state.range(0), ranks = state.range(1), chunk = sequence / (2 * ranks);
    std::vector<PositionRun> keys;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
        keys.push_back({rank * chunk, chunk});
        keys.push_back({(2 * ranks - 1 - rank) * chunk, chunk});
    }
    const std::vector<PositionRun> queries{keys[2], keys[3]};  // of rank 1
    const std::vector<std::int64_t> samples{3};
    const AttentionPart part{.queries = queries,
                             .keys = keys,
                             .micro_batch = 1,
                             .heads = kHeads,
                             .kv_heads = kKvHeads,
                             .head_dim = kDim,
                             .dropout = {.probability = dropout, .key = 7, .samples = samples}};
    auto q = values(part.query_rows() * kHeads * kDim), kv = values(part.key_rows() * 2 * kKvHeads * kDim);
    auto o = q, dq = q, dkv = kv;
    auto lse = values(part.query_rows() * kHeads);
    auto scratch = values(attention_part_scratch_elements(part.query_rows(), part.key_rows()));
    constexpr std::int64_t kWidth = kKvHeads * kDim;
    const ConstRows q_rows{q.data(), kHeads * kDim}, k{kv.data(), 2 * kWidth}, v{kv.data() + kWidth, 2 * kWidth};
    const Rows dk{dkv.data(), 2 * kWidth}, dv{dkv.data() + kWidth, 2 * kWidth};
    set_blas_threads(1);
    attention_forward(part, q_rows, k, v, o.data(), lse.data(), scratch.data());
    for ([[maybe_unused]] auto _ : state) {
        if (backward) {
            attention_backward(part, q.data(), q_rows, k, v, o.data(), lse.data(), {dq.data(), kHeads * kDim}, dk, dv,
                               scratch.data());
        } else {
            attention_forward(part, q_rows, k, v, o.data(), lse.data(), scratch.data());
        }
        benchmark::ClobberMemory();
    }
    const auto length = static_cast<double>(sequence);
    report_flops(state, (backward ? 10.0 : 4.0) * length * length / 2 / static_cast<double>(ranks) * kHeads * kDim);
}
BENCHMARK_CAPTURE(attention_part, forward, false, 0.0)->Args({2048, 4})->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(attention_part, forward_dropout, false, 0.1)->Args({2048, 4})->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(attention_part, backward, true, 0.0)->Args({2048, 4})->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(attention_part, backward_dropout, true, 0.1)->Args({2048, 4})->Unit(benchmark::kMicrosecond);

// ---- mixture of experts ---------------------------------------------------------------------------------------------

void naive_expert_linear(benchmark::State& state) {
    constexpr std::int64_t kRowsOfAll = 512, kGroups = 8, kOut = 256, kIn = 256;
    const auto x = values(kRowsOfAll * kIn), w = values(kGroups * kOut * kIn);
    auto y = values(kRowsOfAll * kOut);
    for ([[maybe_unused]] auto _ : state) {
        for (std::int64_t r = 0; r < kRowsOfAll; ++r) {
            const float* weight = w.data() + r * kGroups / kRowsOfAll * kOut * kIn;
            for (std::int64_t c = 0; c < kOut; ++c) {
                float sum = 0.0F;
                for (std::int64_t i = 0; i < kIn; ++i) {
                    sum += x[static_cast<std::size_t>(r * kIn + i)] * weight[c * kIn + i];
                }
                y[static_cast<std::size_t>(r * kOut + c)] = sum;
            }
        }
        benchmark::ClobberMemory();
    }
    report_flops(state, 2.0 * static_cast<double>(kRowsOfAll * kOut * kIn));
}
BENCHMARK(naive_expert_linear)->Unit(benchmark::kMicrosecond);

void expert_linear(benchmark::State& state, Pass pass) {
    constexpr std::int64_t kRowsOfAll = 512, kGroups = 8, kOut = 256, kIn = 256;
    auto x = values(kRowsOfAll * kIn), w = values(kGroups * kOut * kIn), y = values(kRowsOfAll * kOut);
    const std::vector<std::int64_t> counts{120, 8, 64, 64, 0, 128, 64, 64};
    const ExpertLinearShape shape{kGroups, kOut, kIn, counts.data()};
    set_blas_threads(1);
    for ([[maybe_unused]] auto _ : state) {
        if (pass == Pass::forward) expert_linear_forward(shape, x.data(), w.data(), y.data());
        if (pass == Pass::backward_input) expert_linear_backward_input(shape, y.data(), w.data(), x.data());
        if (pass == Pass::backward_weight) expert_linear_backward_weight(shape, y.data(), x.data(), w.data());
        benchmark::ClobberMemory();
    }
    report_flops(state, 2.0 * static_cast<double>(kRowsOfAll * kOut * kIn));
}
BENCHMARK_CAPTURE(expert_linear, forward, Pass::forward)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(expert_linear, backward_input, Pass::backward_input)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(expert_linear, backward_weight, Pass::backward_weight)->Unit(benchmark::kMicrosecond);

enum class Routing { softmax, deepseek_v3, backward, permute, combine, combine_backward };
void routing(benchmark::State& state, Routing kind) {
    constexpr std::int64_t kTokens = 512, kExperts = 64, kTopK = 4, kHidden = 512;
    RouterShape shape{.tokens = kTokens, .experts = kExperts, .top_k = kTopK};
    if (kind == Routing::deepseek_v3) {
        shape.sigmoid_scores = true;
        shape.expert_groups = 8;
        shape.top_k_groups = 4;
    }
    auto logits = values(kTokens * kExperts), p = values(kTokens * kTopK), dp = p;
    const auto correction = values(kExperts), x = values(kTokens * kHidden);
    auto y = values(kTokens * kTopK * kHidden), out = x;
    std::vector<std::int32_t> experts(kTokens * kTopK), rows = experts;
    std::vector<std::int64_t> counts(kExperts);
    router_forward(shape, logits.data(), nullptr, p.data(), experts.data());
    count_experts(kTokens * kTopK, kExperts, experts.data(), counts.data());
    expert_rows(kTokens * kTopK, kExperts, experts.data(), counts.data(), rows.data());
    const PermuteShape permuted{kTokens, kTopK, kHidden};
    for ([[maybe_unused]] auto _ : state) {
        switch (kind) {
            case Routing::softmax:
                router_forward(shape, logits.data(), nullptr, p.data(), experts.data());
                break;
            case Routing::deepseek_v3:
                router_forward(shape, logits.data(), correction.data(), p.data(), experts.data());
                break;
            case Routing::backward:
                router_backward(shape, dp.data(), p.data(), experts.data(), nullptr, logits.data());
                break;
            case Routing::permute:
                permute_forward(permuted, x.data(), rows.data(), y.data());
                break;
            case Routing::combine:
                combine_forward(permuted, y.data(), p.data(), rows.data(), out.data());
                break;
            case Routing::combine_backward:
                combine_backward(permuted, x.data(), y.data(), p.data(), rows.data(), y.data(), dp.data());
                break;
        }
        benchmark::ClobberMemory();
    }
    constexpr double kElements[] = {kExperts,        kExperts,        kExperts,
                                    kTopK * kHidden, kTopK * kHidden, 2.0 * kTopK * kHidden};
    report_bytes(state, 4.0 * kTokens * kElements[static_cast<int>(kind)]);
}
BENCHMARK_CAPTURE(routing, softmax, Routing::softmax)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(routing, deepseek_v3, Routing::deepseek_v3)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(routing, backward, Routing::backward)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(routing, permute, Routing::permute)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(routing, combine, Routing::combine)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(routing, combine_backward, Routing::combine_backward)->Unit(benchmark::kMicrosecond);

// ---- memory-bound kernels: plain loop, then ours --------------------------------------------------------------------

constexpr std::int64_t kRows = 512;
constexpr std::int64_t kWidth = 1024;
constexpr double kMatrixBytes = static_cast<double>(kRows * kWidth) * 4.0;

void naive_rms_norm(benchmark::State& state) {
    const auto x = values(kRows * kWidth);
    const auto w = values(kWidth);
    auto y = x;
    for ([[maybe_unused]] auto _ : state) {
        for (std::size_t r = 0; r < kRows; ++r) {
            double sum = 0.0;
            for (std::size_t i = 0; i < kWidth; ++i) {
                sum += static_cast<double>(x[r * kWidth + i]) * static_cast<double>(x[r * kWidth + i]);
            }
            const auto inverse = static_cast<float>(1.0 / std::sqrt(sum / static_cast<double>(kWidth) + 1e-5));
            for (std::size_t i = 0; i < kWidth; ++i) y[r * kWidth + i] = x[r * kWidth + i] * inverse * w[i];
        }
        benchmark::ClobberMemory();
    }
    report_bytes(state, 2 * kMatrixBytes);
}
BENCHMARK(naive_rms_norm)->Unit(benchmark::kMicrosecond);

enum class NormPass { rms_forward, rms_backward, layer_forward, layer_backward };
void norm(benchmark::State& state, NormPass pass) {
    const auto x = values(kRows * kWidth);
    const auto w = values(kWidth);
    auto y = x;
    auto dw = w;
    auto db = w;
    auto stats = values(2 * kRows);
    const NormShape s{kRows, kWidth};
    for ([[maybe_unused]] auto _ : state) {
        switch (pass) {
            case NormPass::rms_forward:
                rms_norm_forward(s, 1e-5, x.data(), w.data(), y.data(), stats.data());
                break;
            case NormPass::rms_backward:
                rms_norm_backward(s, x.data(), x.data(), w.data(), stats.data(), y.data(), y.data(), dw.data());
                break;
            case NormPass::layer_forward:
                layer_norm_forward(s, 1e-5, x.data(), w.data(), w.data(), y.data(), stats.data());
                break;
            case NormPass::layer_backward:
                layer_norm_backward(s, x.data(), x.data(), w.data(), stats.data(), y.data(), y.data(), dw.data(),
                                    db.data());
                break;
        }
        benchmark::ClobberMemory();
    }
    report_bytes(state, (pass == NormPass::rms_forward || pass == NormPass::layer_forward ? 2 : 4) * kMatrixBytes);
}
BENCHMARK_CAPTURE(norm, rms_forward, NormPass::rms_forward)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(norm, rms_backward, NormPass::rms_backward)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(norm, layer_forward, NormPass::layer_forward)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(norm, layer_backward, NormPass::layer_backward)->Unit(benchmark::kMicrosecond);

void naive_gelu(benchmark::State& state) {
    const auto x = values(kRows * kWidth);
    auto y = x;
    for ([[maybe_unused]] auto _ : state) {
        for (std::size_t i = 0; i < x.size(); ++i) {
            const float v = x[i];
            y[i] = 0.5F * v * (1.0F + std::tanh(0.79788456F * (v + 0.044715F * v * v * v)));
        }
        benchmark::ClobberMemory();
    }
    report_bytes(state, 2 * kMatrixBytes);
}
BENCHMARK(naive_gelu)->Unit(benchmark::kMicrosecond);

enum class Activation { gelu_forward, gelu_backward, swiglu_forward, swiglu_backward };
void activation(benchmark::State& state, Activation kind) {
    const auto x = values(kRows * kWidth);
    const auto gate_up = values(2 * kRows * kWidth);
    auto y = values(2 * kRows * kWidth);
    for ([[maybe_unused]] auto _ : state) {
        if (kind == Activation::gelu_forward) gelu_forward(kRows * kWidth, x.data(), y.data());
        if (kind == Activation::gelu_backward) gelu_backward(kRows * kWidth, x.data(), x.data(), y.data());
        if (kind == Activation::swiglu_forward) swiglu_forward(kRows, kWidth, gate_up.data(), y.data());
        if (kind == Activation::swiglu_backward) swiglu_backward(kRows, kWidth, x.data(), gate_up.data(), y.data());
        benchmark::ClobberMemory();
    }
    constexpr double kMatrices[] = {2, 3, 3, 5};
    report_bytes(state, kMatrices[static_cast<int>(kind)] * kMatrixBytes);
}
BENCHMARK_CAPTURE(activation, gelu_forward, Activation::gelu_forward)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(activation, gelu_backward, Activation::gelu_backward)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(activation, swiglu_forward, Activation::swiglu_forward)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(activation, swiglu_backward, Activation::swiglu_backward)->Unit(benchmark::kMicrosecond);

void naive_cross_entropy_sum(benchmark::State& state) {
    const auto logits = values(kRows * kWidth);
    std::vector<float> sums(kRows);
    for ([[maybe_unused]] auto _ : state) {
        for (std::size_t r = 0; r < kRows; ++r) {
            double sum = 0.0;
            for (std::size_t i = 0; i < kWidth; ++i)
                sum += static_cast<double>(std::exp(logits[r * kWidth + i] - 0.5F));
            sums[r] = static_cast<float>(sum);
        }
        benchmark::ClobberMemory();
    }
    report_bytes(state, kMatrixBytes);
}
BENCHMARK(naive_cross_entropy_sum)->Unit(benchmark::kMicrosecond);

void cross_entropy(benchmark::State& state, int piece) {
    auto logits = values(kRows * kWidth);
    std::vector<float> row_max(kRows, 0.5F);
    std::vector<float> sums(2 * kRows);
    const std::vector<std::int32_t> targets(kRows, 3);
    const VocabShard shard{kRows, kWidth, kWidth, 0};
    for ([[maybe_unused]] auto _ : state) {
        if (piece == 0) cross_entropy_max(shard, logits.data(), row_max.data());
        if (piece == 1) cross_entropy_sum(shard, logits.data(), row_max.data(), targets.data(), sums.data());
        if (piece == 2) cross_entropy_backward(shard, 0.1F, row_max.data(), targets.data(), logits.data());
        benchmark::ClobberMemory();
    }
    report_bytes(state, (piece == 2 ? 2 : 1) * kMatrixBytes);
}
BENCHMARK_CAPTURE(cross_entropy, max, 0)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(cross_entropy, sum, 1)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(cross_entropy, backward, 2)->Unit(benchmark::kMicrosecond);

void naive_adamw(benchmark::State& state) {
    auto p = values(kRows * kWidth);
    auto m = p;
    auto v = std::vector<float>(p.size(), 1.0F);
    auto g = p;
    for ([[maybe_unused]] auto _ : state) {
        for (std::size_t i = 0; i < p.size(); ++i) {
            m[i] = 0.9F * m[i] + 0.1F * g[i];
            v[i] = 0.95F * v[i] + 0.05F * g[i] * g[i];
            p[i] = p[i] * 0.99F - 1e-3F * (m[i] / (std::sqrt(v[i]) + 1e-8F));
            g[i] = 0.0F;
        }
        benchmark::ClobberMemory();
    }
    report_bytes(state, 8 * kMatrixBytes);
}
BENCHMARK(naive_adamw)->Unit(benchmark::kMicrosecond);

enum class Flat {
    adamw,
    residual_add,
    add,
    maximum,
    rotate,
    bias_backward,
    adam,
    sgd_momentum,
    adamw_bf16,
    sum_of_squares,
    cast_to_bf16,
    copy_columns,
    residual_add_dropout,
    dropout_backward
};
void flat(benchmark::State& state, Flat kind) {
    constexpr std::int64_t kElements = kRows * kWidth;
    auto p = values(kElements);
    auto m = p;
    auto v = std::vector<float>(p.size(), 1.0F);
    auto g = p;
    auto bias = values(kWidth);
    std::vector<std::uint16_t> half(p.size()), half_gradient(p.size());
    std::vector<std::uint8_t> mask(p.size());
    const std::vector<PositionRun> positions{{0, kRows}};
    const std::vector<std::int64_t> samples{3};
    const DropoutRows rows{
        .positions = positions, .width = kWidth, .dropout = {.probability = 0.1, .key = 7, .samples = samples}};
    double sum = 0.0;
    const AdamW options{1e-3, 0.9, 0.95, 1e-8, 0.1, 3};
    for ([[maybe_unused]] auto _ : state) {
        switch (kind) {
            case Flat::adamw:
                adamw(kElements, options, p.data(), m.data(), v.data(), g.data());
                break;
            case Flat::residual_add:
                residual_add(kRows, kWidth, p.data(), m.data(), bias.data(), g.data());
                break;
            case Flat::add:
                add(kElements, m.data(), p.data());
                break;
            case Flat::maximum:
                maximum(kElements, m.data(), p.data());
                break;
            case Flat::rotate:  // 8 heads of 64: rows of (4 + 2 * 6) * 64
                rotate({kRows, 4, 6, 64}, 1, m.data(), v.data(), false, p.data());
                break;
            case Flat::bias_backward:
                bias_backward(kRows, kWidth, {p.data(), kWidth}, bias.data());
                break;
            case Flat::adam:
                adam(kElements, options, p.data(), m.data(), v.data(), g.data());
                break;
            case Flat::sgd_momentum:
                sgd_momentum(kElements, {1e-3, 0.9, 0.1}, p.data(), m.data(), g.data());
                break;
            case Flat::adamw_bf16:
                adamw(kElements, options, p.data(), m.data(), v.data(), half_gradient.data(), half.data());
                break;
            case Flat::sum_of_squares:
                benchmark::DoNotOptimize(sum += sum_of_squares(kElements, p.data()));
                break;
            case Flat::cast_to_bf16:
                cast_to_bf16(kElements, p.data(), half.data());
                break;
            case Flat::copy_columns:  // the second half of the columns
                copy_columns(kRows, kWidth / 2, {p.data() + kWidth / 2, kWidth}, {m.data(), kWidth / 2});
                break;
            case Flat::residual_add_dropout:
                residual_add_dropout(rows, p.data(), m.data(), bias.data(), nullptr, g.data(), mask.data());
                break;
            case Flat::dropout_backward:
                dropout_backward(kElements, 0.1, p.data(), mask.data(), g.data());
                break;
        }
        benchmark::ClobberMemory();
    }
    constexpr double kMatrices[] = {8, 3, 3, 3, 1.25, 1, 8, 6, 7.5, 1, 1.5, 1, 3.25, 2.25};
    report_bytes(state, kMatrices[static_cast<int>(kind)] * kMatrixBytes);
}
BENCHMARK_CAPTURE(flat, adamw, Flat::adamw)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(flat, residual_add, Flat::residual_add)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(flat, residual_add_dropout, Flat::residual_add_dropout)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(flat, dropout_backward, Flat::dropout_backward)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(flat, add, Flat::add)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(flat, maximum, Flat::maximum)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(flat, rotate, Flat::rotate)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(flat, bias_backward, Flat::bias_backward)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(flat, adam, Flat::adam)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(flat, sgd_momentum, Flat::sgd_momentum)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(flat, adamw_bf16, Flat::adamw_bf16)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(flat, sum_of_squares, Flat::sum_of_squares)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(flat, cast_to_bf16, Flat::cast_to_bf16)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(flat, copy_columns, Flat::copy_columns)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace orrery::kernels
