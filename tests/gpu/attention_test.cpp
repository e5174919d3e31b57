// The kernels of attention against double precision, for shapes that are no multiples of tiles.
#include "kernels/cuda/attention.h"

#include <limits>

#include "kernels/row_mask.h"
#include "tests/gpu/kernel_fixture.h"
#include "tests/unit/kernels/attention_parts.h"

namespace orrery::exec {
namespace {

using kernels::AttentionPart;
using kernels::bidirectional;
using kernels::PositionRun;
using kernels::scaled;
using kernels::shape;
using kernels::windowed;
using kernels::cuda::ConstFloatRows;
using kernels::cuda::FloatRows;
using kernels::cuda::Floats;

struct Case {
    const char* name;
    std::vector<PositionRun> queries, keys;
    AttentionPart part;
    bool has_slopes = false;
    double dropped = 0;
    std::int64_t first_column = 0;  // of the operands in wider rows
};

const std::vector<Case>& cases() {
    static const std::vector<Case> all{
        {.name = "one_position", .queries = {{0, 1}}, .keys = {{0, 1}}, .part = shape(1, 1, 1, 8)},
        {.name = "shared_keys", .queries = {{0, 101}}, .keys = {{0, 101}}, .part = shape(2, 4, 2, 40)},
        {.name = "window", .queries = {{0, 131}}, .keys = {{0, 131}}, .part = windowed(shape(1, 2, 2, 80), 37)},
        {.name = "bidirectional",
         .queries = {{0, 70}},
         .keys = {{0, 70}},
         .part = bidirectional(shape(1, 2, 1, 64)),
         .dropped = 0.25},
        {.name = "slopes",
         .queries = {{0, 99}},
         .keys = {{0, 99}},
         .part = shape(1, 3, 1, 32),
         .has_slopes = true,
         .dropped = 0.1},
        {.name = "odd_heads", .queries = {{0, 66}}, .keys = {{0, 66}}, .part = shape(2, 2, 1, 33)},
        {.name = "odd_columns",
         .queries = {{0, 40}},
         .keys = {{0, 40}},
         .part = scaled(shape(1, 2, 2, 64), 0.2),
         .first_column = 3},
        {.name = "gathered",
         .queries = {{0, 45}, {135, 45}},
         .keys = {{0, 45}, {135, 45}, {45, 45}, {90, 45}},
         .part = shape(1, 2, 1, 72)},
        {.name = "ring",
         .queries = {{0, 50}, {150, 50}},
         .keys = {{50, 50}, {100, 50}},
         .part = shape(2, 2, 2, 16),
         .dropped = 0.1},
        {.name = "latent", .queries = {{0, 70}}, .keys = {{0, 70}}, .part = shape(1, 2, 2, 192, 128)},
        {.name = "widest", .queries = {{0, 67}}, .keys = {{0, 67}}, .part = shape(1, 2, 1, 256)},
        {.name = "wide_values", .queries = {{0, 33}}, .keys = {{0, 33}}, .part = shape(1, 1, 1, 24, 200)},
    };
    return all;
}

/// Element (row, head, i) of rows of heads.
struct Heads {
    std::vector<float> values;
    std::int64_t width = 0, first = 0, dim = 0;
    [[nodiscard]] std::size_t at(std::int64_t row, std::int64_t head, std::int64_t i) const {
        return static_cast<std::size_t>(row * width + first + head * dim + i);
    }
    [[nodiscard]] double operator()(std::int64_t row, std::int64_t head, std::int64_t i) const {
        return static_cast<double>(values[at(row, head, i)]);
    }
};

std::vector<std::int64_t> positions_of(const std::vector<PositionRun>& runs) {
    std::vector<std::int64_t> positions;
    for (const PositionRun& run : runs) {
        for (std::int64_t i = 0; i < run.count; ++i) positions.push_back(run.first + i);
    }
    return positions;
}

class AttentionOnGpu : public KernelsOnGpu, public testing::WithParamInterface<std::tuple<std::size_t, DType>> {
  protected:
    AttentionOnGpu()
        : case_(cases()[std::get<0>(GetParam())]),
          type_(std::get<1>(GetParam())),
          part_(case_.part),
          queries_(positions_of(case_.queries)),
          keys_(positions_of(case_.keys)) {
        part_.queries = case_.queries;
        part_.keys = case_.keys;
        if (case_.dropped > 0) {
            for (std::int64_t i = 0; i < part_.micro_batch; ++i) samples_.push_back(5 + i);
            part_.dropout = {.probability = case_.dropped, .key = 77, .samples = samples_};
            part_.first_head = 3;
        }
        if (case_.has_slopes) slopes_ = {0.5F, 0.25F, 0.125F};
    }

    [[nodiscard]] Heads random(std::int64_t rows, std::int64_t heads, std::int64_t dim, std::int64_t first) {
        const std::int64_t width = first + heads * dim + first;
        return {numbers(rows * width, type_), width, first, dim};
    }
    /// The row of a position's sample.
    [[nodiscard]] std::int64_t row(std::size_t position, std::int64_t sample) const {
        return static_cast<std::int64_t>(position) * part_.micro_batch + sample;
    }
    /// Calls body(head, sample, query, key, score, factor of dropout) for the pairs that count.
    template <typename Body>
    void for_each_pair(const Body& body) const {
        const double scale = part_.scale != 0 ? part_.scale : 1 / std::sqrt(static_cast<double>(part_.head_dim));
        const std::uint64_t heads_key = RandomStream(part_.dropout.key, "head").key();
        const std::int32_t threshold = kernels::RowMask::threshold(case_.dropped);
        for (std::int64_t head = 0; head < part_.heads; ++head) {
            const std::uint64_t key_of_head =
                mix64(heads_key ^ mix64(static_cast<std::uint64_t>(part_.first_head + head)));
            for (std::int64_t sample = 0; sample < part_.micro_batch; ++sample) {
                for (std::size_t i = 0; i < queries_.size(); ++i) {
                    const kernels::RowMask mask(key_of_head, samples_.empty() ? 0 : samples_.front() + sample,
                                                queries_[i], threshold);
                    for (std::size_t j = 0; j < keys_.size(); ++j) {
                        const std::int64_t distance = queries_[i] - keys_[j];
                        if (part_.causal && distance < 0) continue;
                        if (part_.sliding_window > 0 && distance >= part_.sliding_window) continue;
                        double score = 0;
                        for (std::int64_t d = 0; d < part_.head_dim; ++d) {
                            score += q_(row(i, sample), head, d) * k_(row(j, sample), kv_head(head), d);
                        }
                        score *= scale;
                        if (case_.has_slopes) {
                            score -= static_cast<double>(slopes_[static_cast<std::size_t>(head)]) *
                                     static_cast<double>(distance);
                        }
                        const bool keeps = case_.dropped == 0 || mask.keeps(static_cast<std::uint32_t>(keys_[j]));
                        body(head, sample, i, j, score, keeps ? 1 / (1 - case_.dropped) : 0.0);
                    }
                }
            }
        }
    }
    [[nodiscard]] std::int64_t kv_head(std::int64_t head) const { return head / (part_.heads / part_.kv_heads); }
    [[nodiscard]] std::size_t lse_at(std::int64_t head, std::size_t query, std::int64_t sample) const {
        return static_cast<std::size_t>(head * part_.query_rows() + row(query, sample));
    }

    void make_inputs() {
        const std::int64_t first = case_.first_column;
        q_ = random(part_.query_rows(), part_.heads, part_.head_dim, first);
        k_ = random(part_.key_rows(), part_.kv_heads, part_.head_dim, first);
        v_ = random(part_.key_rows(), part_.kv_heads, part_.value_width(), first);
        d_o_ = random(part_.query_rows(), part_.heads, part_.value_width(), 0);
        const float* const slopes =
            slopes_.empty() ? nullptr : static_cast<const float*>(on_device(slopes_, DType::fp32).data);
        part_.alibi_slopes = slopes;
    }
    void compute_exactly() {
        const auto lses = static_cast<std::size_t>(part_.heads * part_.query_rows());
        std::vector<double> sums(lses);
        for_each_pair([&](std::int64_t head, std::int64_t sample, std::size_t i, std::size_t, double score, double) {
            sums[lse_at(head, i, sample)] += std::exp(score);
        });
        exact_lse_.resize(lses);
        for (std::size_t i = 0; i < lses; ++i) exact_lse_[i] = std::log(sums[i]);
        exact_o_.resize(d_o_.values.size());
        for_each_pair(
            [&](std::int64_t head, std::int64_t sample, std::size_t i, std::size_t j, double score, double kept) {
                const double probability = std::exp(score - exact_lse_[lse_at(head, i, sample)]);
                for (std::int64_t d = 0; d < part_.value_width(); ++d) {
                    exact_o_[d_o_.at(row(i, sample), head, d)].add(probability * kept, probability * kept,
                                                                   v_(row(j, sample), kv_head(head), d));
                }
            });
    }
    /// `o`: as given to the backward pass, rounded.
    void differentiate_exactly(const Heads& o) {
        const double scale = part_.scale != 0 ? part_.scale : 1 / std::sqrt(static_cast<double>(part_.head_dim));
        exact_dq_.resize(q_.values.size());
        exact_dk_.resize(k_.values.size());
        exact_dv_.resize(v_.values.size());
        for_each_pair(
            [&](std::int64_t head, std::int64_t sample, std::size_t i, std::size_t j, double score, double kept) {
                const std::int64_t query = row(i, sample), key = row(j, sample), shared = kv_head(head);
                const double probability = std::exp(score - exact_lse_[lse_at(head, i, sample)]);
                double gradient = 0, magnitude = 0;  // of the score
                for (std::int64_t d = 0; d < part_.value_width(); ++d) {
                    const double of_o = d_o_(query, head, d);
                    exact_dv_[v_.at(key, shared, d)].add(probability * kept, probability * kept, of_o);
                    const double of_v = kept * v_(key, shared, d), subtracted = o(query, head, d);
                    gradient += scale * probability * of_o * (of_v - subtracted);
                    magnitude += scale * probability * std::abs(of_o) * (std::abs(of_v) + std::abs(subtracted));
                }
                for (std::int64_t d = 0; d < part_.head_dim; ++d) {
                    exact_dq_[q_.at(query, head, d)].add(gradient, magnitude, k_(key, shared, d));
                    exact_dk_[k_.at(key, shared, d)].add(gradient, magnitude, q_(query, head, d));
                }
            });
    }
    /// In bf16, probabilities and gradients of scores are factors of products, and the results are rounded.
    [[nodiscard]] Rounding rounding() const {
        constexpr double kOfFp32 = 1e-5;  // long sums, exponentials
        const double of_type = type_ == DType::bf16 ? kRoundingOfBf16 : 0;
        return {.of_terms = of_type, .of_sums = kOfFp32, .of_result = of_type + kOfFp32};
    }
    /// Where a kernel may write.
    [[nodiscard]] std::vector<Exact> of_head_columns(std::vector<Exact> exact, const Heads& heads,
                                                     const std::vector<float>& before) const {
        for (std::size_t i = 0; i < exact.size(); ++i) {
            const auto column = static_cast<std::int64_t>(i) % heads.width - heads.first;
            if (column < 0 || column >= heads.width - 2 * heads.first) exact[i] = {static_cast<double>(before[i]), 0};
        }
        return exact;
    }

    const Case& case_;
    DType type_;
    AttentionPart part_;
    std::vector<std::int64_t> queries_, keys_, samples_;
    std::vector<float> slopes_;
    Heads q_, k_, v_, d_o_;
    std::vector<double> exact_lse_;
    std::vector<Exact> exact_o_, exact_dq_, exact_dk_, exact_dv_;
};

TEST_P(AttentionOnGpu, IsThatOfDoublePrecision) {
    make_inputs();
    compute_exactly();
    const auto rows_of = [&](const Heads& heads) {
        return ConstFloatRows{on_device(heads.values, type_).from(heads.first), heads.width};
    };
    const ConstFloatRows q = rows_of(q_), k = rows_of(k_), v = rows_of(v_);
    const Floats o = on_device(numbers(std::ssize(exact_o_), type_), type_);
    const Floats lse = on_device(numbers(std::ssize(exact_lse_), DType::fp32), DType::fp32);
    auto* const lse_data = static_cast<float*>(lse.data);
    kernels::cuda::attention_forward(stream(), part_, q, k, v, o, lse_data);
    Heads got_o{read(o, std::ssize(exact_o_)), d_o_.width, 0, d_o_.dim};
    expect_rounded(got_o.values, exact_o_, rounding(), "o");
    const std::vector<float> got_lse = read(lse, std::ssize(exact_lse_));
    for (std::size_t i = 0; i < got_lse.size(); ++i) {
        if (exact_lse_[i] == -std::numeric_limits<double>::infinity()) {
            ASSERT_EQ(got_lse[i], -std::numeric_limits<float>::infinity()) << i;
        } else {
            ASSERT_NEAR(static_cast<double>(got_lse[i]), exact_lse_[i], 1e-5 * (1 + std::abs(exact_lse_[i]))) << i;
        }
    }

    differentiate_exactly(got_o);
    const auto before_q = numbers(std::ssize(q_.values), type_), before_k = numbers(std::ssize(k_.values), type_),
               before_v = numbers(std::ssize(v_.values), type_);
    const Floats dq = on_device(before_q, type_), dk = on_device(before_k, type_), dv = on_device(before_v, type_);
    const Floats scratch = on_device(numbers(std::ssize(exact_lse_), DType::fp32), DType::fp32);
    kernels::cuda::attention_backward(stream(), part_, on_device(d_o_.values, type_), q, k, v, o, lse_data,
                                      FloatRows{dq.from(q_.first), q_.width}, FloatRows{dk.from(k_.first), k_.width},
                                      FloatRows{dv.from(v_.first), v_.width}, static_cast<float*>(scratch.data));
    expect_rounded(read(dq, std::ssize(before_q)), of_head_columns(exact_dq_, q_, before_q), rounding(), "dq");
    expect_rounded(read(dk, std::ssize(before_k)), of_head_columns(exact_dk_, k_, before_k), rounding(), "dk");
    expect_rounded(read(dv, std::ssize(before_v)), of_head_columns(exact_dv_, v_, before_v), rounding(), "dv");
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionOnGpu,
                         testing::Combine(testing::Range<std::size_t>(0, cases().size()),
                                          testing::Values(DType::fp32, DType::bf16)),
                         [](const auto& one) {
                             return std::string(cases()[std::get<0>(one.param)].name) + "_" +
                                    std::string(name_of(std::get<1>(one.param)));
                         });

}  // namespace
}  // namespace orrery::exec
