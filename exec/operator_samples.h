// Collects the operator timings of a calibration as samples of a device profile.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "models/operator.h"
#include "topologies/profile.h"

namespace orrery::exec {

class OperatorSamples {
  public:
    /// Whether an operator of this kind, arithmetic and shape was added before.
    [[nodiscard]] bool has(const models::Operator& op) const;
    /// The sample of an operator that is added several times is the median.
    void add(const models::Operator& op, double seconds);

    struct Samples {  // sorted by kind and shape
        std::vector<topologies::MatmulSample> matmuls;
        std::vector<topologies::OperatorSample> operators;
        std::map<DType, double> best_flops_per_s;  // of the fastest GEMM of each type
    };
    [[nodiscard]] Samples samples() const;

  private:
    using Signature = std::tuple<models::OpKind, DType, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                                 std::int64_t, std::int64_t, std::int64_t, std::int64_t>;
    struct Timings {
        models::Operator op;
        std::vector<double> seconds;
        [[nodiscard]] double median() const;
    };
    std::map<Signature, Timings> timings_;
};

}  // namespace orrery::exec
