// A device profile's timed operators, indexed by kind and computation type.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "core/dtype.h"
#include "core/index.h"
#include "models/operator.h"
#include "sim/cost/interpolation.h"
#include "topologies/profile.h"

namespace orrery::sim {

class Timings {
  public:
    explicit Timings(const topologies::DeviceProfile& device);

    /// Whether any GEMM was timed.
    [[nodiscard]] bool has_products() const;
    /// Whether the kind was timed in exactly this type.
    [[nodiscard]] bool has(models::OpKind kind, DType dtype) const;

    // Each of these uses timings in the type itself or, without any, those in another type.

    /// FLOP/s by shape of the timed GEMMs that apply to this kind: its own, else those of its dense counterpart, else
    /// all. Empty if none were timed.
    [[nodiscard]] const std::vector<ShapePoint>& product_rates(models::OpKind kind, DType dtype) const;
    /// Seconds per FLOP over the sequence length, for the nearest timed head dimension; null if none was timed.
    [[nodiscard]] const std::vector<CurvePoint>* attention(models::OpKind kind, DType dtype,
                                                           std::int64_t head_dim) const;
    /// Seconds over bytes read plus bytes written; null if the kind was not timed.
    [[nodiscard]] const std::vector<CurvePoint>* seconds_over_bytes(models::OpKind kind, DType dtype) const;

  private:
    struct HeadCurve {
        double log_head_dim = 0;
        std::vector<CurvePoint> seconds_per_flop;
    };
    template <typename Value>
    using ByKind = EnumArray<models::OpKind, std::vector<Value>, models::kOpKindCount>;
    struct OfType {
        ByKind<ShapePoint> product_rates;
        std::vector<ShapePoint> all_product_rates;
        ByKind<CurvePoint> seconds_over_bytes;
        ByKind<HeadCurve> attention;
    };
    void add(const topologies::MatmulSample& sample);
    void add(std::span<const topologies::OperatorSample> samples);
    /// The first timings that are not empty, in the type itself before other types.
    template <typename Value, typename Pick>
    [[nodiscard]] const std::vector<Value>* first_of(DType dtype, const Pick& pick) const;

    std::map<DType, OfType> by_type_;
};

}  // namespace orrery::sim
