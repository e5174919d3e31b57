// Rotary position embedding, with one thread per pair of elements.
#include "kernels/cuda/each.cuh"
#include "kernels/cuda/positions.h"
#include "kernels/cuda/rotary.h"

namespace orrery::kernels::cuda {
namespace {

/// The two elements of a pair.
struct Pair {
    float first, second;
};

/// The rotations of rows, with the sign of the sines.
struct Angles {
    PositionRuns positions;
    std::int64_t micro_batch;
    unsigned half;  // pairs of a head
    const float* cosines;
    const float* sines;
    float direction;

    Angles(const Rotation& rotation, std::int64_t rows, bool inverse)
        : positions(rotation.positions),
          micro_batch(rotation.micro_batch),
          half(static_cast<unsigned>(rotation.width / 2)),
          cosines(rotation.cosines),
          sines(rotation.sines),
          direction(inverse ? -1.0F : 1.0F) {
        ORRERY_CHECK(positions.positions() * micro_batch == rows,
                     "the number of rows does not match the number of positions");
    }
    __device__ Pair turned(std::int64_t row, unsigned pair, Pair x) const {
        const std::int64_t at = positions.position(position_index(row, micro_batch)) * half + pair;
        const float cosine = cosines[at];
        const float sine = direction * sines[at];
        return {x.first * cosine - x.second * sine, x.second * cosine + x.first * sine};
    }
};

__device__ Pair get_pair(ConstFloats x, std::int64_t at, unsigned half) {
    return {get(x, at), get(x, at + half)};
}
__device__ void put_pair(Floats y, std::int64_t at, unsigned half, Pair pair) {
    put(y, at, pair.first);
    put(y, at + half, pair.second);
}

/// Sizes of latent attention, in 32 bits because a thread divides by them.
struct Latent {
    unsigned heads, nope, half, value, head_dim;
    std::int64_t q_width, kv_width, row_width;

    Latent(const LatentHeads& shape, const Rotation& rotation)
        : heads(static_cast<unsigned>(shape.heads)),
          nope(static_cast<unsigned>(shape.nope_dim)),
          half(static_cast<unsigned>(shape.rope_dim / 2)),
          value(static_cast<unsigned>(shape.value_dim)),
          head_dim(static_cast<unsigned>(shape.nope_dim + shape.rope_dim)),
          q_width(shape.q_width()),
          kv_width(shape.kv_width()),
          row_width(shape.row_width()) {
        ORRERY_CHECK(rotation.width == shape.rope_dim, "the width of the rotation differs from that of the rope part");
    }
    /// Work items of a head, one after the other: its query without position, the pairs of its query, its key without
    /// position, the pairs of its key, and its value.
    [[nodiscard]] std::int64_t items() const { return std::int64_t{2} * nope + std::int64_t{2} * half + value; }
};

}  // namespace

void rotate(StreamHandle stream, const HeadShape& shape, const Rotation& rotation, bool inverse, Floats qkv) {
    ORRERY_CHECK(rotation.width % 2 == 0 && rotation.width <= shape.head_dim,
                 "the width of the rotation must be even and at most that of a head");
    const Angles angles(rotation, shape.rows, inverse);
    const std::int64_t width = shape.row_width();
    const auto head_dim = static_cast<unsigned>(shape.head_dim);
    for_each_of_rows(stream, shape.rows, (shape.heads + shape.kv_heads) * angles.half, "rotate",
                     [=] __device__(std::int64_t row, std::int64_t column) {
                         const unsigned head = static_cast<unsigned>(column) / angles.half;
                         const unsigned pair = static_cast<unsigned>(column) % angles.half;
                         const std::int64_t at = row * width + head * head_dim + pair;
                         put_pair(qkv, at, angles.half, angles.turned(row, pair, get_pair(qkv, at, angles.half)));
                     });
}

void latent_rotate_forward(StreamHandle stream, const LatentHeads& shape, const Rotation& rotation, ConstFloats q,
                           ConstFloats kv, ConstFloatRows k_rope, Floats qkv) {
    const Angles angles(rotation, shape.rows, false);
    const Latent sizes(shape, rotation);
    const auto items = static_cast<unsigned>(sizes.items());
    for_each_of_rows(stream, shape.rows, std::int64_t{sizes.heads} * items, "latent_rotate_forward",
                     [=] __device__(std::int64_t row, std::int64_t column) {
                         const unsigned head = static_cast<unsigned>(column) / items;
                         unsigned item = static_cast<unsigned>(column) % items;
                         const std::int64_t from_q = row * sizes.q_width + head * sizes.head_dim;
                         const std::int64_t from_kv = row * sizes.kv_width + head * (sizes.nope + sizes.value);
                         const std::int64_t to_q = row * sizes.row_width + head * sizes.head_dim;
                         const std::int64_t to_k = to_q + sizes.q_width;
                         if (item < sizes.nope) return put(qkv, to_q + item, get(q, from_q + item));
                         item -= sizes.nope;
                         if (item < sizes.half) {
                             const Pair pair = get_pair(q, from_q + sizes.nope + item, sizes.half);
                             return put_pair(qkv, to_q + sizes.nope + item, sizes.half, angles.turned(row, item, pair));
                         }
                         item -= sizes.half;
                         if (item < sizes.nope) return put(qkv, to_k + item, get(kv, from_kv + item));
                         item -= sizes.nope;
                         if (item < sizes.half) {
                             const Pair pair = get_pair(k_rope.data, row * k_rope.width + item, sizes.half);
                             return put_pair(qkv, to_k + sizes.nope + item, sizes.half, angles.turned(row, item, pair));
                         }
                         item -= sizes.half;
                         const std::int64_t to_v = row * sizes.row_width + 2 * sizes.q_width + head * sizes.value;
                         put(qkv, to_v + item, get(kv, from_kv + sizes.nope + item));
                     });
}

void latent_rotate_backward(StreamHandle stream, const LatentHeads& shape, const Rotation& rotation, ConstFloats dqkv,
                            Floats dq, Floats dkv, FloatRows dk_rope) {
    const Angles angles(rotation, shape.rows, true);
    const Latent sizes(shape, rotation);
    // The pairs of the keys are those of all heads together, and come last.
    const auto items = static_cast<unsigned>(sizes.items()) - sizes.half;
    for_each_of_rows(
        stream, shape.rows, std::int64_t{sizes.heads} * items + sizes.half, "latent_rotate_backward",
        [=] __device__(std::int64_t row, std::int64_t column) {
            const unsigned head = static_cast<unsigned>(column) / items;
            unsigned item = static_cast<unsigned>(column) % items;
            const std::int64_t first_key = row * sizes.row_width + sizes.q_width;
            if (head == sizes.heads) {
                Pair sum{0.0F, 0.0F};
                for (unsigned h = 0; h < sizes.heads; ++h) {
                    const Pair one = get_pair(dqkv, first_key + h * sizes.head_dim + sizes.nope + item, sizes.half);
                    sum = {sum.first + one.first, sum.second + one.second};
                }
                // Rotates the sum, because the rotation is linear.
                return put_pair(dk_rope.data, row * dk_rope.width + item, sizes.half, angles.turned(row, item, sum));
            }
            const std::int64_t to_q = row * sizes.q_width + head * sizes.head_dim;
            const std::int64_t to_kv = row * sizes.kv_width + head * (sizes.nope + sizes.value);
            const std::int64_t from_q = row * sizes.row_width + head * sizes.head_dim;
            if (item < sizes.nope) return put(dq, to_q + item, get(dqkv, from_q + item));
            item -= sizes.nope;
            if (item < sizes.half) {
                const Pair pair = get_pair(dqkv, from_q + sizes.nope + item, sizes.half);
                return put_pair(dq, to_q + sizes.nope + item, sizes.half, angles.turned(row, item, pair));
            }
            item -= sizes.half;
            if (item < sizes.nope) return put(dkv, to_kv + item, get(dqkv, from_q + sizes.q_width + item));
            item -= sizes.nope;
            const std::int64_t from_v = row * sizes.row_width + 2 * sizes.q_width + head * sizes.value;
            put(dkv, to_kv + sizes.nope + item, get(dqkv, from_v + item));
        });
}

}  // namespace orrery::kernels::cuda
