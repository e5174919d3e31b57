// The optimizers. Each is a single loop template, instantiated for all combinations of types.
#include "kernels/optimizer.h"

#include <cmath>

#include "core/float16.h"
#include "kernels/cpu/vector.h"

namespace orrery::kernels {
namespace {

/// Stands for absent bf16 parameters.
struct NoCopy {};

ORRERY_INLINE float read(float x) {
    return x;
}
ORRERY_INLINE float read(std::uint16_t x) {
    return from_bf16(x);
}
ORRERY_INLINE void write(float* values, std::int64_t i, float value) {
    values[i] = value;
}
ORRERY_INLINE void write(std::uint16_t* values, std::int64_t i, float value) {
    values[i] = to_bf16(value);
}
ORRERY_INLINE void write(NoCopy, std::int64_t, float) {}

enum class WeightDecay { decoupled, in_gradient };

template <WeightDecay decay, typename Moment, typename Gradient, typename Parameters>
ORRERY_INLINE void adam_loop(std::int64_t elements, const AdamW& options, float* master, Moment* m, Moment* v,
                             Gradient* gradient, Parameters parameters) {
    constexpr bool kDecoupled = decay == WeightDecay::decoupled;
    const double steps = static_cast<double>(options.step);
    const double correction1 = 1.0 - std::pow(options.beta1, steps);
    const double correction2 = 1.0 - std::pow(options.beta2, steps);
    const float keep = static_cast<float>(kDecoupled ? 1.0 - options.learning_rate * options.weight_decay : 1.0);
    const float pull = static_cast<float>(kDecoupled ? 0.0 : options.weight_decay);
    const float rate = static_cast<float>(options.learning_rate / correction1);
    const float root = static_cast<float>(std::sqrt(correction2));
    const float beta1 = static_cast<float>(options.beta1);
    const float beta2 = static_cast<float>(options.beta2);
    const float rest1 = static_cast<float>(1.0 - options.beta1);
    const float rest2 = static_cast<float>(1.0 - options.beta2);
    const float epsilon = static_cast<float>(options.epsilon);
    ORRERY_INDEPENDENT
    for (std::int64_t i = 0; i < elements; ++i) {
        const float g = kDecoupled ? read(gradient[i]) : read(gradient[i]) + pull * master[i];
        const float new_m = read(m[i]) * beta1 + g * rest1;
        const float new_v = read(v[i]) * beta2 + (g * g) * rest2;
        write(m, i, new_m);
        write(v, i, new_v);
        const float kept = kDecoupled ? master[i] * keep : master[i];
        const float updated = kept - rate * (new_m / (std::sqrt(new_v) / root + epsilon));
        master[i] = updated;
        write(parameters, i, updated);
        gradient[i] = Gradient{};
    }
}

template <typename Gradient, typename Parameters>
ORRERY_INLINE void sgd_loop(std::int64_t elements, const SgdMomentum& options, float* master, float* m,
                            Gradient* gradient, Parameters parameters) {
    const float rate = static_cast<float>(options.learning_rate);
    const float momentum = static_cast<float>(options.momentum);
    const float pull = static_cast<float>(options.weight_decay);
    ORRERY_INDEPENDENT
    for (std::int64_t i = 0; i < elements; ++i) {
        const float new_m = m[i] * momentum + (read(gradient[i]) + pull * master[i]);
        const float updated = master[i] - rate * new_m;
        m[i] = new_m;
        master[i] = updated;
        write(parameters, i, updated);
        gradient[i] = Gradient{};
    }
}

}  // namespace

ORRERY_VECTOR
void adamw(std::int64_t elements, const AdamW& options, float* parameters, float* m, float* v, float* gradient) {
    adam_loop<WeightDecay::decoupled>(elements, options, parameters, m, v, gradient, NoCopy{});
}
ORRERY_VECTOR
void adamw(std::int64_t elements, const AdamW& options, float* master, float* m, float* v, float* gradient,
           std::uint16_t* parameters) {
    adam_loop<WeightDecay::decoupled>(elements, options, master, m, v, gradient, parameters);
}
ORRERY_VECTOR
void adamw(std::int64_t elements, const AdamW& options, float* master, float* m, float* v, std::uint16_t* gradient,
           std::uint16_t* parameters) {
    adam_loop<WeightDecay::decoupled>(elements, options, master, m, v, gradient, parameters);
}
ORRERY_VECTOR
void adamw(std::int64_t elements, const AdamW& options, float* parameters, std::uint16_t* m, std::uint16_t* v,
           float* gradient) {
    adam_loop<WeightDecay::decoupled>(elements, options, parameters, m, v, gradient, NoCopy{});
}
ORRERY_VECTOR
void adamw(std::int64_t elements, const AdamW& options, float* master, std::uint16_t* m, std::uint16_t* v,
           float* gradient, std::uint16_t* parameters) {
    adam_loop<WeightDecay::decoupled>(elements, options, master, m, v, gradient, parameters);
}
ORRERY_VECTOR
void adamw(std::int64_t elements, const AdamW& options, float* master, std::uint16_t* m, std::uint16_t* v,
           std::uint16_t* gradient, std::uint16_t* parameters) {
    adam_loop<WeightDecay::decoupled>(elements, options, master, m, v, gradient, parameters);
}

ORRERY_VECTOR
void adam(std::int64_t elements, const AdamW& options, float* parameters, float* m, float* v, float* gradient) {
    adam_loop<WeightDecay::in_gradient>(elements, options, parameters, m, v, gradient, NoCopy{});
}
ORRERY_VECTOR
void adam(std::int64_t elements, const AdamW& options, float* master, float* m, float* v, float* gradient,
          std::uint16_t* parameters) {
    adam_loop<WeightDecay::in_gradient>(elements, options, master, m, v, gradient, parameters);
}
ORRERY_VECTOR
void adam(std::int64_t elements, const AdamW& options, float* master, float* m, float* v, std::uint16_t* gradient,
          std::uint16_t* parameters) {
    adam_loop<WeightDecay::in_gradient>(elements, options, master, m, v, gradient, parameters);
}
ORRERY_VECTOR
void adam(std::int64_t elements, const AdamW& options, float* parameters, std::uint16_t* m, std::uint16_t* v,
          float* gradient) {
    adam_loop<WeightDecay::in_gradient>(elements, options, parameters, m, v, gradient, NoCopy{});
}
ORRERY_VECTOR
void adam(std::int64_t elements, const AdamW& options, float* master, std::uint16_t* m, std::uint16_t* v,
          float* gradient, std::uint16_t* parameters) {
    adam_loop<WeightDecay::in_gradient>(elements, options, master, m, v, gradient, parameters);
}
ORRERY_VECTOR
void adam(std::int64_t elements, const AdamW& options, float* master, std::uint16_t* m, std::uint16_t* v,
          std::uint16_t* gradient, std::uint16_t* parameters) {
    adam_loop<WeightDecay::in_gradient>(elements, options, master, m, v, gradient, parameters);
}

ORRERY_VECTOR
void sgd_momentum(std::int64_t elements, const SgdMomentum& options, float* parameters, float* m, float* gradient) {
    sgd_loop(elements, options, parameters, m, gradient, NoCopy{});
}
ORRERY_VECTOR
void sgd_momentum(std::int64_t elements, const SgdMomentum& options, float* master, float* m, float* gradient,
                  std::uint16_t* parameters) {
    sgd_loop(elements, options, master, m, gradient, parameters);
}
ORRERY_VECTOR
void sgd_momentum(std::int64_t elements, const SgdMomentum& options, float* master, float* m, std::uint16_t* gradient,
                  std::uint16_t* parameters) {
    sgd_loop(elements, options, master, m, gradient, parameters);
}

ORRERY_VECTOR
double sum_of_squares(std::int64_t elements, const float* x) {
    return lane_sum<double>(elements,
                            [&](std::int64_t i) { return static_cast<double>(x[i]) * static_cast<double>(x[i]); });
}
ORRERY_VECTOR
double sum_of_squares(std::int64_t elements, const std::uint16_t* x) {
    return lane_sum<double>(elements, [&](std::int64_t i) {
        const auto value = static_cast<double>(from_bf16(x[i]));
        return value * value;
    });
}

ORRERY_VECTOR
void scale(std::int64_t elements, float factor, float* x) {
    for (std::int64_t i = 0; i < elements; ++i) x[i] *= factor;
}
ORRERY_VECTOR
void scale(std::int64_t elements, float factor, std::uint16_t* x) {
    for (std::int64_t i = 0; i < elements; ++i) x[i] = to_bf16(from_bf16(x[i]) * factor);
}

}  // namespace orrery::kernels
