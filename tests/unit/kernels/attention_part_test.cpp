// Attention over parts of a sequence: compares every part with the definition, and merged parts with the whole.
#include <limits>
#include <memory>

#include "kernels/kernels.h"
#include "tests/unit/kernels/attention_parts.h"
#include "tests/unit/kernels/reference.h"

namespace orrery::kernels {
namespace {

using reference::Doubles;
using reference::Floats;
using reference::wide;
using Runs = std::vector<PositionRun>;

constexpr double kNothing = -std::numeric_limits<double>::infinity();

struct Case {
    std::string name;
    Runs queries, keys;
    AttentionPart part;
    bool alibi = false;
    double dropout = 0;
};

std::vector<std::int64_t> positions_of(const Runs& runs) {
    std::vector<std::int64_t> positions;
    for (const PositionRun& run : runs) {
        for (std::int64_t i = 0; i < run.count; ++i) positions.push_back(run.first + i);
    }
    return positions;
}
/// The position runs of rank `rank` of `ranks`.
Runs runs_of(std::int64_t rank, std::int64_t ranks, std::int64_t sequence) {
    const std::int64_t chunk = sequence / (2 * ranks);
    return {{rank * chunk, chunk}, {(2 * ranks - 1 - rank) * chunk, chunk}};
}
Runs gathered_runs(std::int64_t ranks, std::int64_t sequence) {
    Runs all;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
        for (const PositionRun& run : runs_of(rank, ranks, sequence)) all.push_back(run);
    }
    return all;
}

/// The operands of a case, and the expected results by definition.
struct Operands {
    Runs queries, keys;  // `part` points to them
    AttentionPart part;
    std::vector<std::int64_t> query_positions, key_positions;
    Floats slopes;
    std::vector<std::int64_t> samples;
    Floats factors;                             // [query row, head, key]: dropout factors; empty without dropout
    static constexpr std::int64_t kMargin = 3;  // columns before the operand in wider rows, which must not change
    std::int64_t q_width, k_width, v_width;
    Floats q, k, v, d_o;

    explicit Operands(const Case& c)
        : queries(c.queries),
          keys(c.keys),
          part(c.part),
          query_positions(positions_of(c.queries)),
          key_positions(positions_of(c.keys)) {
        part.queries = queries;
        part.keys = keys;
        if (c.alibi) {
            slopes.resize(static_cast<std::size_t>(part.heads));
            alibi_slopes(part.heads, 0, part.heads, slopes.data());
            part.alibi_slopes = slopes.data();
        }
        if (c.dropout > 0) {
            for (std::int64_t i = 0; i < part.micro_batch; ++i) samples.push_back(70 + i);
            part.dropout = {.probability = c.dropout, .key = 3, .samples = samples};
            factors = dropout_factors();
        }
        q_width = part.heads * part.head_dim;
        k_width = part.kv_heads * part.head_dim;
        v_width = part.kv_heads * part.value_width();
        q = reference::values("q", part.query_rows() * q_width, 1.5);
        k = reference::values("k", part.key_rows() * k_width, 1.5);
        v = reference::values("v", part.key_rows() * v_width);
        d_o = reference::values("do", o_elements());
    }
    Operands(const Operands&) = delete;
    Operands& operator=(const Operands&) = delete;
    [[nodiscard]] std::int64_t o_elements() const { return part.query_rows() * part.heads * part.value_width(); }

    /// The factor of each probability, 0 or 1 / (1 - probability). They are the output of the kernel for equally
    /// likely keys whose values are unit vectors (times the number of keys).
    [[nodiscard]] Floats dropout_factors() const {
        const auto count = static_cast<std::int64_t>(key_positions.size());
        AttentionPart plain = part;
        plain.kv_heads = plain.head_dim = 1;
        plain.value_dim = count;
        plain.causal = false;
        plain.sliding_window = 0;
        plain.alibi_slopes = nullptr;
        const Floats zeros(static_cast<std::size_t>(part.query_rows() * part.heads + part.key_rows()), 0.0F);
        Floats values(static_cast<std::size_t>(part.key_rows() * count), 0.0F);
        for (std::int64_t row = 0; row < part.key_rows(); ++row) {
            values[static_cast<std::size_t>(row * count + row / part.micro_batch)] = static_cast<float>(count);
        }
        Floats result(static_cast<std::size_t>(part.query_rows() * part.heads * count)), unused = zeros;
        const auto positions = static_cast<std::int64_t>(query_positions.size());
        Floats scratch(static_cast<std::size_t>(attention_part_scratch_elements(positions, count)));
        attention_forward(plain, {zeros.data(), part.heads}, {zeros.data(), 1}, {values.data(), count}, result.data(),
                          unused.data(), scratch.data());
        return result;
    }
    [[nodiscard]] bool sees(std::int64_t query, std::int64_t key) const {
        if (!part.causal) return true;
        return key <= query && (part.sliding_window == 0 || key > query - part.sliding_window);
    }
    /// o followed by lse, by definition; `all` is q, k, v concatenated.
    [[nodiscard]] Doubles naive(const Doubles& all) const {
        const std::int64_t d = part.head_dim, e = part.value_width(), b = part.micro_batch;
        const auto k_at = static_cast<std::int64_t>(q.size()), v_at = k_at + static_cast<std::int64_t>(k.size());
        Doubles o(static_cast<std::size_t>(o_elements()), 0.0);
        Doubles lse(static_cast<std::size_t>(part.query_rows() * part.heads), kNothing);
        const auto at = [&](std::int64_t i) { return all[static_cast<std::size_t>(i)]; };
        const double scale = part.scale != 0 ? part.scale : 1.0 / std::sqrt(static_cast<double>(d));
        for (std::int64_t row = 0; row < part.query_rows(); ++row) {
            for (std::int64_t head = 0; head < part.heads; ++head) {
                const std::int64_t kv_head = head * part.kv_heads / part.heads;
                const std::int64_t query = query_positions[static_cast<std::size_t>(row / b)];
                double total = 0.0;
                for (const bool weigh : {false, true}) {
                    for (std::size_t index = 0; index < key_positions.size(); ++index) {
                        const std::int64_t key = key_positions[index];
                        if (!sees(query, key)) continue;
                        const std::int64_t key_row = static_cast<std::int64_t>(index) * b + row % b;
                        double score = 0.0;
                        for (std::int64_t i = 0; i < d; ++i) {
                            score += at(row * q_width + head * d + i) * at(k_at + key_row * k_width + kv_head * d + i);
                        }
                        score *= scale;
                        if (part.alibi_slopes != nullptr) {
                            score += static_cast<double>(part.alibi_slopes[head]) * static_cast<double>(key - query);
                        }
                        if (!weigh) {
                            total += std::exp(score);
                            continue;
                        }
                        double weight = std::exp(score) / total;
                        if (!factors.empty()) {
                            const std::size_t first =
                                static_cast<std::size_t>(row * part.heads + head) * key_positions.size();
                            weight *= static_cast<double>(factors[first + index]);
                        }
                        for (std::int64_t i = 0; i < e; ++i) {
                            o[static_cast<std::size_t>((row * part.heads + head) * e + i)] +=
                                weight * at(v_at + key_row * v_width + kv_head * e + i);
                        }
                    }
                }
                lse[static_cast<std::size_t>(head * part.query_rows() + row)] = std::log(total);
            }
        }
        o.insert(o.end(), lse.begin(), lse.end());
        return o;
    }
    [[nodiscard]] Doubles inputs() const {
        Doubles all = wide(q);
        all.insert(all.end(), k.begin(), k.end());
        all.insert(all.end(), v.begin(), v.end());
        return all;
    }
};

/// A matrix inside wider rows, with sentinel values around it.
struct Framed {
    std::int64_t rows, width;
    Floats data;
    explicit Framed(std::int64_t row_count, std::int64_t columns, const Floats* values = nullptr)
        : rows(row_count), width(columns), data(static_cast<std::size_t>(row_count * total() + total()), 77.0F) {
        if (values == nullptr) return;
        for (std::int64_t r = 0; r < rows; ++r) copy(width, values->data() + r * width, view().data + r * total());
    }
    [[nodiscard]] std::int64_t total() const { return width + Operands::kMargin + 2; }
    [[nodiscard]] Rows view() { return {data.data() + Operands::kMargin, total()}; }
    /// The matrix. Expects that nothing around it has changed.
    [[nodiscard]] Floats content() {
        Floats result(static_cast<std::size_t>(rows * width));
        for (std::int64_t r = 0; r < rows; ++r) {
            float* row = view().data + r * total();
            copy(width, row, result.data() + r * width);
            fill(width, 77.0F, row);
        }
        EXPECT_EQ(data, Floats(data.size(), 77.0F)) << "the kernel has written outside its columns";
        return result;
    }
};

std::int64_t scratch_elements(const Operands& x) {
    return attention_part_scratch_elements(static_cast<std::int64_t>(x.query_positions.size()),
                                           static_cast<std::int64_t>(x.key_positions.size()));
}

struct Result {
    Floats o, lse;
};
Result run_forward(const Operands& x) {
    Framed q(x.part.query_rows(), x.q_width, &x.q), k(x.part.key_rows(), x.k_width, &x.k),
        v(x.part.key_rows(), x.v_width, &x.v);
    constexpr float kSentinel = 12345.0F;
    Floats scratch(static_cast<std::size_t>(scratch_elements(x) + 16), std::numeric_limits<float>::quiet_NaN());
    std::fill(scratch.end() - 16, scratch.end(), kSentinel);
    Result result{Floats(static_cast<std::size_t>(x.o_elements()), std::numeric_limits<float>::quiet_NaN()),
                  Floats(static_cast<std::size_t>(x.part.query_rows() * x.part.heads))};
    attention_forward(x.part, q.view(), k.view(), v.view(), result.o.data(), result.lse.data(), scratch.data());
    for (auto guard = scratch.end() - 16; guard != scratch.end(); ++guard) EXPECT_EQ(*guard, kSentinel);
    return result;
}
struct Gradients {
    Floats dq, dk, dv;
};
Gradients run_backward(const Operands& x, const Result& final_result) {
    Framed q(x.part.query_rows(), x.q_width, &x.q), k(x.part.key_rows(), x.k_width, &x.k),
        v(x.part.key_rows(), x.v_width, &x.v);
    Framed dq(x.part.query_rows(), x.q_width), dk(x.part.key_rows(), x.k_width), dv(x.part.key_rows(), x.v_width);
    Floats scratch(static_cast<std::size_t>(scratch_elements(x)), std::numeric_limits<float>::quiet_NaN());
    attention_backward(x.part, x.d_o.data(), q.view(), k.view(), v.view(), final_result.o.data(),
                       final_result.lse.data(), dq.view(), dk.view(), dv.view(), scratch.data());
    return {dq.content(), dk.content(), dv.content()};
}

void expect_lse(const Floats& lse, const Doubles& expected) {
    ASSERT_EQ(lse.size(), expected.size());
    for (std::size_t i = 0; i < lse.size(); ++i) {
        if (expected[i] == kNothing) {
            EXPECT_EQ(lse[i], -std::numeric_limits<float>::infinity()) << i;
        } else {
            ASSERT_NEAR(static_cast<double>(lse[i]), expected[i], 1e-5) << i;
        }
    }
}

class AttentionParts : public ::testing::TestWithParam<Case> {};

TEST_P(AttentionParts, ForwardAndBackward) {
    const Operands x(GetParam());
    const Doubles expected = x.naive(x.inputs());
    const auto split = expected.begin() + static_cast<std::ptrdiff_t>(x.o_elements());
    const Result result = run_forward(x);
    reference::expect_close(result.o, {expected.begin(), split}, 3e-6, "o");
    expect_lse(result.lse, {split, expected.end()});

    const Gradients gradients = run_backward(x, result);
    Floats all = gradients.dq;
    all.insert(all.end(), gradients.dk.begin(), gradients.dk.end());
    all.insert(all.end(), gradients.dv.begin(), gradients.dv.end());
    const auto o_of = [&](const Doubles& at) {
        Doubles o = x.naive(at);
        o.resize(static_cast<std::size_t>(x.o_elements()));
        return o;
    };
    reference::expect_gradient(o_of, x.inputs(), wide(x.d_o), all, 3e-5, "gradients", 60);
    const Gradients again = run_backward(x, result);
    EXPECT_EQ(again.dq, gradients.dq);
    EXPECT_EQ(again.dk, gradients.dk);
    EXPECT_EQ(again.dv, gradients.dv);
}

constexpr std::int64_t kLong = kAttentionBlock + 9;

INSTANTIATE_TEST_SUITE_P(
    Cases, AttentionParts,
    ::testing::Values(Case{"latent", {{0, 13}}, {{0, 13}}, shape(2, 2, 2, 6, 4)},
                      Case{"own_runs", runs_of(1, 3, 24), runs_of(1, 3, 24), shape(2, 4, 2, 3)},
                      Case{"earlier_ranks_keys", runs_of(2, 3, 24), runs_of(0, 3, 24), shape(1, 2, 1, 3)},
                      Case{"later_ranks_keys", runs_of(0, 3, 24), runs_of(2, 3, 24), shape(1, 2, 1, 3)},
                      Case{"gathered", runs_of(1, 4, 32), gathered_runs(4, 32), shape(2, 2, 1, 4, 3)},
                      Case{"gathered_long", runs_of(0, 2, 4 * kLong), gathered_runs(2, 4 * kLong), shape(1, 1, 1, 2)},
                      Case{"gathered_window", runs_of(2, 4, 64), gathered_runs(4, 64), windowed(shape(1, 2, 1, 4), 9)},
                      Case{"window_across_blocks",
                           {{0, kLong}, {200, kLong}},
                           {{150, 60}, {0, kLong}, {210, 30}},
                           windowed(shape(1, 1, 1, 3), 70)},
                      Case{"bidirectional", {{5, 9}}, {{0, 20}, {40, 3}}, bidirectional(shape(2, 2, 2, 4))},
                      Case{"bidirectional_long", {{0, kLong}}, {{0, kLong}}, bidirectional(shape(1, 2, 1, 3))},
                      Case{"alibi", runs_of(1, 3, 36), gathered_runs(3, 36), shape(1, 6, 2, 4), true},
                      Case{"alibi_bidirectional", {{3, 7}}, {{0, 20}}, bidirectional(shape(1, 3, 3, 4)), true},
                      Case{"given_scale", {{0, 9}}, {{0, 9}}, scaled(shape(1, 1, 1, 4), 0.8)},
                      Case{"dropout", {{0, 29}}, {{0, 29}}, shape(2, 4, 2, 3), false, 0.3},
                      Case{"dropout_long", {{0, kLong}}, {{0, kLong}}, shape(1, 2, 1, 3), false, 0.5},
                      Case{"dropout_gathered", runs_of(1, 4, 32), gathered_runs(4, 32), shape(2, 2, 1, 4, 3), true,
                           0.3},
                      Case{"dropout_window", {{0, 40}}, {{0, 40}}, windowed(shape(1, 2, 1, 4), 9), false, 0.2},
                      Case{"dropout_some_rows_see_nothing", {{0, 20}}, {{7, 5}}, shape(2, 2, 1, 3), false, 0.3},
                      Case{"some_rows_see_nothing", {{0, 20}}, {{7, 5}}, shape(2, 2, 1, 3)},
                      Case{"only_expired_keys", {{50, 10}}, {{0, 20}}, windowed(shape(1, 1, 1, 3), 8)}),
    [](const auto& test) { return test.param.name; });

TEST(AttentionParts, QueriesWithoutVisibleKeysGiveZeros) {
    const Operands x(Case{"", {{0, 5}}, {{9, 4}}, shape(2, 2, 1, 3)});
    const Result result = run_forward(x);
    EXPECT_EQ(result.o, Floats(result.o.size(), 0.0F));
    EXPECT_EQ(result.lse, Floats(result.lse.size(), -std::numeric_limits<float>::infinity()));
    const Gradients gradients = run_backward(x, result);
    EXPECT_EQ(gradients.dq, Floats(gradients.dq.size(), 0.0F));
    EXPECT_EQ(gradients.dk, Floats(gradients.dk.size(), 0.0F));
    EXPECT_EQ(gradients.dv, Floats(gradients.dv.size(), 0.0F));
}

TEST(AttentionParts, NoQueriesOrNoKeysGiveZeros) {
    const Operands no_queries(Case{"", {}, {{0, 4}}, shape(1, 1, 1, 3)});
    const Gradients gradients = run_backward(no_queries, run_forward(no_queries));
    EXPECT_EQ(gradients.dk, Floats(gradients.dk.size(), 0.0F));
    const Operands no_keys(Case{"", {{0, 4}}, {}, shape(1, 1, 1, 3)});
    const Result result = run_forward(no_keys);
    EXPECT_EQ(result.o, Floats(result.o.size(), 0.0F));
    EXPECT_EQ(run_backward(no_keys, result).dq, Floats(no_keys.q.size(), 0.0F));
}

/// Ring attention: a rank's queries attend to the keys of one rank after another.
TEST(AttentionParts, MergedPartsMatchTheWhole) {
    constexpr std::int64_t kRanks = 3, kSequence = 36;
    for (const auto& [alibi, dropout] : {std::pair{false, 0.0}, {true, 0.0}, {false, 0.4}}) {
        for (std::int64_t rank = 0; rank < kRanks; ++rank) {
            const Case whole_case{"",
                                  runs_of(rank, kRanks, kSequence),
                                  gathered_runs(kRanks, kSequence),
                                  windowed(shape(2, 4, 2, 5, 3), alibi ? 0 : 11),
                                  alibi,
                                  dropout};
            const Operands whole(whole_case);
            const Result expected = run_forward(whole);
            const std::int64_t share = kSequence / kRanks * whole.part.micro_batch;
            std::vector<Case> cases;
            for (std::int64_t other = 0; other < kRanks; ++other) {
                cases.push_back(
                    {"", whole_case.queries, runs_of(other, kRanks, kSequence), whole_case.part, alibi, dropout});
            }
            const auto part_of = [&](std::int64_t other) {
                auto x = std::make_unique<Operands>(cases[static_cast<std::size_t>(other)]);
                copy(share * x->k_width, whole.k.data() + other * share * x->k_width, x->k.data());
                copy(share * x->v_width, whole.v.data() + other * share * x->v_width, x->v.data());
                return x;
            };
            // Start with the last rank, to whose keys most queries of the first rank do not attend.
            Result running = run_forward(*part_of(kRanks - 1));
            for (std::int64_t other = 0; other + 1 < kRanks; ++other) {
                const Result part = run_forward(*part_of(other));
                attention_merge(whole.part.query_rows(), whole.part.heads, whole.part.value_width(), part.o.data(),
                                part.lse.data(), running.o.data(), running.lse.data());
            }
            reference::expect_close(running.o, wide(expected.o), 1e-6, "o");
            reference::expect_close(running.lse, wide(expected.lse), 1e-6, "lse");

            const Gradients gradients = run_backward(whole, expected);
            Floats dq(gradients.dq.size(), 0.0F), dk, dv;
            for (std::int64_t other = 0; other < kRanks; ++other) {
                const Gradients part = run_backward(*part_of(other), running);
                add(static_cast<std::int64_t>(dq.size()), part.dq.data(), dq.data());
                dk.insert(dk.end(), part.dk.begin(), part.dk.end());
                dv.insert(dv.end(), part.dv.begin(), part.dv.end());
            }
            reference::expect_close(dq, wide(gradients.dq), 3e-6, "dq");
            reference::expect_close(dk, wide(gradients.dk), 3e-6, "dk");
            reference::expect_close(dv, wide(gradients.dv), 3e-6, "dv");
        }
    }
}

TEST(AttentionMerge, ASideWithoutKeysDoesNotCount) {
    constexpr float kNone = -std::numeric_limits<float>::infinity();
    // Two heads of one row: the first has keys only in the running result, the second only in the part.
    Floats o{1.0F, 2.0F, 0.0F, 0.0F};
    Floats lse{0.5F, kNone};
    const Floats part_o{0.0F, 0.0F, 3.0F, 4.0F};
    const Floats part_lse{kNone, -7.0F};
    attention_merge(1, 2, 2, part_o.data(), part_lse.data(), o.data(), lse.data());
    EXPECT_EQ(o, (Floats{1.0F, 2.0F, 3.0F, 4.0F}));
    EXPECT_EQ(lse, (Floats{0.5F, -7.0F}));
    Floats none{0.0F};
    Floats none_lse{kNone};
    attention_merge(1, 1, 1, part_o.data(), part_lse.data(), none.data(), none_lse.data());
    EXPECT_EQ(none, Floats{0.0F});
    EXPECT_EQ(none_lse, Floats{kNone});
    // If the lse are far apart, the smaller side must vanish without overflow.
    Floats far{1.0F};
    Floats far_lse{900.0F};
    const Floats small{5.0F}, small_lse{-900.0F};
    attention_merge(1, 1, 1, small.data(), small_lse.data(), far.data(), far_lse.data());
    EXPECT_EQ(far, Floats{1.0F});
    EXPECT_EQ(far_lse, Floats{900.0F});
}

TEST(AlibiSlopes, PublishedValues) {
    Floats eight(8);
    alibi_slopes(8, 0, 8, eight.data());
    for (int i = 0; i < 8; ++i) EXPECT_EQ(eight[static_cast<std::size_t>(i)], std::ldexp(1.0F, -1 - i));
    Floats twelve(12);
    alibi_slopes(12, 0, 12, twelve.data());
    for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(twelve[i], eight[i]);
    for (int i = 0; i < 4; ++i) {  // the odd terms of the series for 16 heads
        EXPECT_NEAR(static_cast<double>(twelve[static_cast<std::size_t>(8 + i)]), std::exp2(-0.5 * (2 * i + 1)), 1e-7);
    }
    Floats middle(5);
    alibi_slopes(12, 6, 5, middle.data());
    for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(middle[i], twelve[6 + i]);
}

}  // namespace
}  // namespace orrery::kernels
