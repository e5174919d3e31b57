// What a calibration has timed, as samples of a device profile.
#pragma once

#include <cstdint>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "models/operator.h"
#include "topologies/profile.h"

namespace orrery::exec {

class OperatorSamples {
  public:
    /// Whether no operator of this kind, arithmetic and shape was asked for before.
    [[nodiscard]] bool is_new(const models::Operator& op);
    void add(const models::Operator& op, double seconds);
    /// Of the fastest matrix product in fp32 so far; 0 without one.
    [[nodiscard]] double best_flops_per_s() const;
    [[nodiscard]] std::vector<topologies::MatmulSample> take_matmuls() { return std::move(matmuls_); }
    [[nodiscard]] std::vector<topologies::OperatorSample> take_operators() { return std::move(operators_); }

  private:
    using Signature = std::tuple<models::OpKind, DType, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                                 std::int64_t, std::int64_t, std::int64_t>;
    std::set<Signature> seen_;
    std::vector<topologies::MatmulSample> matmuls_;
    std::vector<topologies::OperatorSample> operators_;
};

}  // namespace orrery::exec
