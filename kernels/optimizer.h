// Optimizers over flat parameters, and gradient norm and scaling.
#pragma once

#include <cstdint>

namespace orrery::kernels {

struct AdamW {
    double learning_rate = 0;
    double beta1 = 0;
    double beta2 = 0;
    double epsilon = 0;
    double weight_decay = 0;  // adamw: first p *= 1 - learning_rate * weight_decay; adam: g += weight_decay * p
    std::int64_t step = 1;    // 1 for the first update
};
struct SgdMomentum {
    double learning_rate = 0;
    double momentum = 0;
    double weight_decay = 0;  // g += weight_decay * p
};

// Every optimizer has three forms: fp32 parameters; bf16 parameters with fp32 master weights, which are updated and
// then rounded to the parameters; and the same with bf16 gradients. All of them set the gradient to zero afterwards.
// AdamW and Adam have each form also with m and v in bf16: an update computes in fp32 and rounds what it stores.

/// Decoupled weight decay (arXiv 1711.05101): parameters, m and v are updated from the gradient.
void adamw(std::int64_t elements, const AdamW& options, float* parameters, float* m, float* v, float* gradient);
void adamw(std::int64_t elements, const AdamW& options, float* master, float* m, float* v, float* gradient,
           std::uint16_t* parameters);
void adamw(std::int64_t elements, const AdamW& options, float* master, float* m, float* v, std::uint16_t* gradient,
           std::uint16_t* parameters);

void adamw(std::int64_t elements, const AdamW& options, float* parameters, std::uint16_t* m, std::uint16_t* v,
           float* gradient);
void adamw(std::int64_t elements, const AdamW& options, float* master, std::uint16_t* m, std::uint16_t* v,
           float* gradient, std::uint16_t* parameters);
void adamw(std::int64_t elements, const AdamW& options, float* master, std::uint16_t* m, std::uint16_t* v,
           std::uint16_t* gradient, std::uint16_t* parameters);

/// Adam (arXiv 1412.6980): weight decay is part of the gradient, and so of m and v.
void adam(std::int64_t elements, const AdamW& options, float* parameters, float* m, float* v, float* gradient);
void adam(std::int64_t elements, const AdamW& options, float* master, float* m, float* v, float* gradient,
          std::uint16_t* parameters);
void adam(std::int64_t elements, const AdamW& options, float* master, float* m, float* v, std::uint16_t* gradient,
          std::uint16_t* parameters);
void adam(std::int64_t elements, const AdamW& options, float* parameters, std::uint16_t* m, std::uint16_t* v,
          float* gradient);
void adam(std::int64_t elements, const AdamW& options, float* master, std::uint16_t* m, std::uint16_t* v,
          float* gradient, std::uint16_t* parameters);
void adam(std::int64_t elements, const AdamW& options, float* master, std::uint16_t* m, std::uint16_t* v,
          std::uint16_t* gradient, std::uint16_t* parameters);

/// m = momentum * m + g; p -= learning_rate * m. As in PyTorch, m does not include the learning rate. m starts at zero.
void sgd_momentum(std::int64_t elements, const SgdMomentum& options, float* parameters, float* m, float* gradient);
void sgd_momentum(std::int64_t elements, const SgdMomentum& options, float* master, float* m, float* gradient,
                  std::uint16_t* parameters);
void sgd_momentum(std::int64_t elements, const SgdMomentum& options, float* master, float* m, std::uint16_t* gradient,
                  std::uint16_t* parameters);

/// Summed in double, in which squares of fp32 values cannot overflow: the sum is finite if and only if all elements
/// are.
[[nodiscard]] double sum_of_squares(std::int64_t elements, const float* x);
[[nodiscard]] double sum_of_squares(std::int64_t elements, const std::uint16_t* x);  // bf16
/// x *= factor.
void scale(std::int64_t elements, float factor, float* x);
void scale(std::int64_t elements, float factor, std::uint16_t* x);  // bf16

}  // namespace orrery::kernels
