#include <limits>
#include <type_traits>

#include "core/float16.h"
#include "kernels/kernels.h"
#include "tests/unit/kernels/reference.h"

namespace orrery::kernels {
namespace {

using reference::Doubles;
using reference::Floats;
using reference::wide;
using Halves = std::vector<std::uint16_t>;

constexpr std::int64_t kElements = 101;
constexpr std::int64_t kSteps = 4;

enum class Rule { adamw, adam, sgd };
std::string name_of(Rule rule) {
    return rule == Rule::adamw ? "adamw" : rule == Rule::adam ? "adam" : "sgd_momentum";
}
AdamW adam_options(double decay, std::int64_t step) {
    return {.learning_rate = 0.01, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = decay, .step = step};
}
SgdMomentum sgd_options(double decay) {
    return {.learning_rate = 0.05, .momentum = 0.9, .weight_decay = decay};
}

/// Parameters, m and v in double.
struct Expected {
    Doubles p, m, v;
    void step(Rule rule, double decay, std::int64_t step, const Floats& gradient) {
        const auto t = static_cast<double>(step);
        for (std::size_t i = 0; i < p.size(); ++i) {
            double g = static_cast<double>(gradient[i]);
            if (rule == Rule::adamw) {
                p[i] -= 0.01 * decay * p[i];
            } else {
                g += decay * p[i];
            }
            if (rule == Rule::sgd) {
                m[i] = 0.9 * m[i] + g;
                p[i] -= 0.05 * m[i];
                continue;
            }
            m[i] = 0.9 * m[i] + 0.1 * g;
            v[i] = 0.95 * v[i] + 0.05 * g * g;
            const double mean = m[i] / (1.0 - std::pow(0.9, t));
            const double square = v[i] / (1.0 - std::pow(0.95, t));
            p[i] -= 0.01 * mean / (std::sqrt(square) + 1e-8);
        }
    }
};

template <typename Moment, typename Gradient, typename... Copy>
void update(Rule rule, double decay, std::int64_t step, Floats& p, std::vector<Moment>& m, std::vector<Moment>& v,
            std::vector<Gradient>& g, Copy... parameters) {
    if (rule == Rule::adamw) {
        adamw(kElements, adam_options(decay, step), p.data(), m.data(), v.data(), g.data(), parameters...);
    } else if (rule == Rule::adam) {
        adam(kElements, adam_options(decay, step), p.data(), m.data(), v.data(), g.data(), parameters...);
    } else if constexpr (std::is_same_v<Moment, float>) {
        sgd_momentum(kElements, sgd_options(decay), p.data(), m.data(), g.data(), parameters...);
    }
}

TEST(Optimizer, MatchesTheUpdateRuleOverSteps) {
    for (const Rule rule : {Rule::adamw, Rule::adam, Rule::sgd}) {
        for (const double decay : {0.0, 0.1}) {
            Floats p = reference::values("p", kElements), m(p.size(), 0.0F), v(p.size(), 0.0F);
            Expected expected{wide(p), Doubles(p.size(), 0.0), Doubles(p.size(), 0.0)};
            for (std::int64_t step = 1; step <= kSteps; ++step) {
                Floats g = reference::values(std::to_string(step), kElements);
                expected.step(rule, decay, step, g);
                update(rule, decay, step, p, m, v, g);
                EXPECT_EQ(g, Floats(p.size(), 0.0F));
            }
            reference::expect_close(p, expected.p, 1e-6, name_of(rule) + " parameters");
            reference::expect_close(m, expected.m, 1e-6, name_of(rule) + " m");
            reference::expect_close(v, expected.v, 1e-6, name_of(rule) + " v");
        }
    }
}

/// Master weights are bitwise equal to fp32 parameters; bf16 parameters are their rounded values.
TEST(Optimizer, Bf16ParametersFollowTheirMasters) {
    for (const Rule rule : {Rule::adamw, Rule::adam, Rule::sgd}) {
        Floats p = reference::values("p", kElements), m(p.size(), 0.0F), v(p.size(), 0.0F);
        Floats master = p, master_m = m, master_v = v;
        Floats master_16 = p, m_16 = m, v_16 = v;
        Halves parameters(p.size()), parameters_16(p.size());
        for (std::int64_t step = 1; step <= kSteps; ++step) {
            Floats g = reference::values(std::to_string(step), kElements);
            Halves g_16(g.size());
            cast_to_bf16(kElements, g.data(), g_16.data());
            cast_from_bf16(kElements, g_16.data(), g.data());
            Floats same = g;
            update(rule, 0.1, step, p, m, v, g);
            update(rule, 0.1, step, master, master_m, master_v, same, parameters.data());
            update(rule, 0.1, step, master_16, m_16, v_16, g_16, parameters_16.data());
            EXPECT_EQ(same, Floats(p.size(), 0.0F));
            EXPECT_EQ(g_16, Halves(p.size(), 0));
        }
        EXPECT_EQ(master, p) << name_of(rule);
        EXPECT_EQ(master_16, p) << name_of(rule);
        EXPECT_EQ(master_m, m) << name_of(rule);
        EXPECT_EQ(m_16, m) << name_of(rule);
        EXPECT_EQ(v_16, v) << name_of(rule);
        EXPECT_EQ(parameters_16, parameters);
        for (std::size_t i = 0; i < p.size(); ++i) EXPECT_EQ(parameters[i], to_bf16(p[i]));
    }
}

Halves rounded(const Floats& values) {
    Halves halves(values.size());
    cast_to_bf16(std::ssize(values), values.data(), halves.data());
    return halves;
}
void round_to_bf16(Floats& values) {
    const Halves halves = rounded(values);
    cast_from_bf16(std::ssize(values), halves.data(), values.data());
}

/// The update itself is that of fp32 moments: only what it stores is rounded, and the next step starts from that.
TEST(Optimizer, Bf16MomentsAreRoundedWhereTheyAreStored) {
    for (const Rule rule : {Rule::adamw, Rule::adam}) {
        Floats p = reference::values("p", kElements), m(p.size(), 0.0F), v(p.size(), 0.0F);
        Floats plain = p, master = p, master_16 = p;
        Halves plain_m(p.size(), 0), plain_v = plain_m, master_m = plain_m, master_v = plain_m, m_16 = plain_m,
                                     v_16 = plain_m;
        Halves parameters(p.size()), parameters_16(p.size());
        for (std::int64_t step = 1; step <= kSteps; ++step) {
            Floats g = reference::values(std::to_string(step), kElements);
            round_to_bf16(g);
            Halves g_16 = rounded(g);
            Floats same = g, again = g;
            update(rule, 0.1, step, p, m, v, g);
            const Floats exact_m = m;
            round_to_bf16(m);
            round_to_bf16(v);
            EXPECT_NE(m, exact_m);
            update(rule, 0.1, step, plain, plain_m, plain_v, same);
            update(rule, 0.1, step, master, master_m, master_v, again, parameters.data());
            update(rule, 0.1, step, master_16, m_16, v_16, g_16, parameters_16.data());
            for (const Floats* weights : {&plain, &master, &master_16}) EXPECT_EQ(*weights, p) << name_of(rule);
            for (const Halves* moments : {&plain_m, &master_m, &m_16}) EXPECT_EQ(*moments, rounded(m));
            for (const Halves* moments : {&plain_v, &master_v, &v_16}) EXPECT_EQ(*moments, rounded(v));
            EXPECT_EQ(again, Floats(p.size(), 0.0F));
            EXPECT_EQ(g_16, Halves(p.size(), 0));
        }
        EXPECT_EQ(parameters, rounded(p));
        EXPECT_EQ(parameters_16, rounded(p));
    }
}

TEST(Optimizer, SumOfSquaresIsFiniteOnlyIfAllElementsAre) {
    for (const std::int64_t elements : {0, 1, 16, 1000}) {
        const Floats x = reference::values("x", elements);
        Halves half(x.size());
        cast_to_bf16(elements, x.data(), half.data());
        double expected = 0.0, expected_half = 0.0;
        for (std::size_t i = 0; i < x.size(); ++i) {
            expected += static_cast<double>(x[i]) * static_cast<double>(x[i]);
            expected_half += static_cast<double>(from_bf16(half[i])) * static_cast<double>(from_bf16(half[i]));
        }
        EXPECT_NEAR(sum_of_squares(elements, x.data()), expected, 1e-12 * expected);
        EXPECT_NEAR(sum_of_squares(elements, half.data()), expected_half, 1e-12 * expected_half);
    }
    Floats x(40, std::numeric_limits<float>::max());
    EXPECT_TRUE(std::isfinite(sum_of_squares(40, x.data())));
    for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
        x[37] = bad;
        EXPECT_FALSE(std::isfinite(sum_of_squares(40, x.data())));
    }
}

TEST(Optimizer, ScaleAndCast) {
    const Floats x = reference::values("x", kElements);
    Floats scaled = x;
    scale(kElements, 0.3F, scaled.data());
    Halves half(x.size());
    cast_to_bf16(kElements, x.data(), half.data());
    const Halves before = half;
    scale(kElements, 0.3F, half.data());
    Floats back(x.size());
    cast_from_bf16(kElements, before.data(), back.data());
    for (std::size_t i = 0; i < x.size(); ++i) {
        EXPECT_EQ(scaled[i], x[i] * 0.3F);
        EXPECT_EQ(before[i], to_bf16(x[i]));
        EXPECT_EQ(back[i], from_bf16(before[i]));
        EXPECT_EQ(half[i], to_bf16(back[i] * 0.3F));
    }
}

}  // namespace
}  // namespace orrery::kernels
