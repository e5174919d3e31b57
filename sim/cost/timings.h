// A device profile's timed operators, ready to be looked up by kind and by the type that is computed in.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "core/dtype.h"
#include "models/operator.h"
#include "sim/cost/interpolation.h"
#include "topologies/profile.h"

namespace orrery::sim {

class Timings {
  public:
    explicit Timings(const topologies::DeviceProfile& device);

    /// Whether any product was timed.
    [[nodiscard]] bool has_products() const;
    /// Whether the kind was timed in exactly this type.
    [[nodiscard]] bool has(models::OpKind kind, DType dtype) const;

    // Each of these takes what was timed in the type itself, and without it what was timed in another.

    /// FLOP/s by shape of the timed products that stand for this kind: its own, those of its dense sibling, or all of
    /// them. Empty without any.
    [[nodiscard]] const std::vector<ShapePoint>& product_rates(models::OpKind kind, DType dtype) const;
    /// Seconds per FLOP over the sequence length, of the head dimension timed that is nearest; null without any.
    [[nodiscard]] const std::vector<CurvePoint>* attention(models::OpKind kind, DType dtype,
                                                           std::int64_t head_dim) const;
    /// Seconds over bytes read and written; null without any.
    [[nodiscard]] const std::vector<CurvePoint>* seconds_over_bytes(models::OpKind kind, DType dtype) const;

  private:
    struct HeadCurve {
        double log_head_dim = 0;
        std::vector<CurvePoint> seconds_per_flop;
    };
    template <typename Value>
    using ByKind = std::array<std::vector<Value>, models::kOpKindCount>;
    struct OfType {
        ByKind<ShapePoint> product_rates;
        std::vector<ShapePoint> all_product_rates;
        ByKind<CurvePoint> seconds_over_bytes;
        ByKind<HeadCurve> attention;
    };
    void add(const topologies::MatmulSample& sample);
    void add(std::span<const topologies::OperatorSample> samples);
    /// The first that is not empty, the type's own before others.
    template <typename Value, typename Pick>
    [[nodiscard]] const std::vector<Value>* first_of(DType dtype, const Pick& pick) const;

    std::map<DType, OfType> by_type_;
};

}  // namespace orrery::sim
