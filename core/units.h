// Quantities with their unit in the type, so that quantities of different units cannot be added.
#pragma once

#include <cmath>
#include <compare>
#include <cstdint>
#include <limits>

#include "core/error.h"

namespace orrery {

/// A number with a unit. Only operations that keep the unit exist; `value()` returns the bare number.
template <typename Tag, typename Rep>
class Quantity {
  public:
    using rep = Rep;
    constexpr Quantity() = default;
    explicit constexpr Quantity(Rep value) : value_(value) {}
    [[nodiscard]] constexpr Rep value() const { return value_; }

    constexpr auto operator<=>(const Quantity&) const = default;  // NOLINT(modernize-use-nullptr): clang 14
    constexpr Quantity& operator+=(Quantity other) {
        if constexpr (std::numeric_limits<Rep>::is_integer) {
            ORRERY_CHECK(!__builtin_add_overflow(value_, other.value_, &value_), "quantity overflow");
        } else {
            value_ += other.value_;
        }
        return *this;
    }
    constexpr Quantity& operator-=(Quantity other) {
        if constexpr (std::numeric_limits<Rep>::is_integer) {
            ORRERY_CHECK(!__builtin_sub_overflow(value_, other.value_, &value_), "quantity overflow");
        } else {
            value_ -= other.value_;
        }
        return *this;
    }
    friend constexpr Quantity operator+(Quantity a, Quantity b) { return a += b; }
    friend constexpr Quantity operator-(Quantity a, Quantity b) { return a -= b; }
    friend constexpr Quantity operator*(Quantity a, Rep factor) {
        if constexpr (std::numeric_limits<Rep>::is_integer) {
            Rep product{};
            ORRERY_CHECK(!__builtin_mul_overflow(a.value_, factor, &product), "quantity overflow");
            return Quantity(product);
        } else {
            return Quantity(a.value_ * factor);
        }
    }
    friend constexpr Quantity operator*(Rep factor, Quantity a) { return a * factor; }

  private:
    Rep value_{};
};

using Bytes = Quantity<struct BytesTag, std::int64_t>;
using Picoseconds = Quantity<struct PicosecondsTag, std::int64_t>;  // int64 holds 106 days
using BytesPerSecond = Quantity<struct BytesPerSecondTag, double>;

inline constexpr double kPicosecondsPerSecond = 1e12;
inline constexpr std::int64_t kPicosecondsPerNanosecond = 1000;
inline constexpr double kGigabyte = 1e9;                   // GB, bandwidths
inline constexpr double kGibibyte = 1024.0 * 1024 * 1024;  // GiB, memory capacity

/// Throws InputError and not BugError, since durations follow from the user's sizes and rates.
[[noreturn]] inline void refuse_time(const std::string& what) {
    throw InputError(what + " ends after more than 106 days; allowed: what the simulator's clock can count");
}
/// The only conversion from seconds to simulated time. Rounds up, so that work never takes zero time.
[[nodiscard]] inline Picoseconds picoseconds_from_seconds(double seconds) {
    const double picoseconds = std::ceil(seconds * kPicosecondsPerSecond);
    ORRERY_CHECK(picoseconds >= 0, "a duration is negative or not a number");
    if (picoseconds >= 9.2e18) refuse_time("an operation of " + std::to_string(seconds) + " s");
    return Picoseconds(static_cast<std::int64_t>(picoseconds));
}
[[nodiscard]] constexpr double to_seconds(Picoseconds time) {
    return static_cast<double>(time.value()) / kPicosecondsPerSecond;
}
[[nodiscard]] constexpr double to_gib(Bytes bytes) {
    return static_cast<double>(bytes.value()) / kGibibyte;
}

/// a*b; throws InputError on overflow, since sizes come from the user.
[[nodiscard]] inline std::int64_t checked_product(std::int64_t a, std::int64_t b) {
    std::int64_t product = 0;
    if (__builtin_mul_overflow(a, b, &product)) {
        throw InputError("a size is too large: " + std::to_string(a) + " * " + std::to_string(b) +
                         " does not fit in 63 bits");
    }
    return product;
}

}  // namespace orrery
