// Strong index types: each kind of element has an index type of its own, and a vector or array of such elements is
// indexed by that type alone, so that the indices of different kinds cannot be mixed up.
#pragma once

#include <array>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/error.h"

namespace orrery {

/// An index from 0; -1 may stand for "none". Integer constants convert to it implicitly, other integers only through
/// of().
template <typename Tag, std::signed_integral Rep = std::int32_t>
class Index {
  public:
    constexpr Index() = default;
    consteval Index(int literal) : value_(static_cast<Rep>(literal)) {}  // NOLINT(google-explicit-constructor)
    template <std::integral N>
    [[nodiscard]] static constexpr Index of(N value) {
        Index index;
        index.value_ = static_cast<Rep>(value);
        if constexpr (sizeof(Rep) < sizeof(std::int32_t)) {
            ORRERY_CHECK(static_cast<N>(index.value_) == value, "a value is too large for its index type");
        }
        return index;
    }
    [[nodiscard]] constexpr std::int32_t value() const { return value_; }
    [[nodiscard]] constexpr std::size_t position() const { return static_cast<std::size_t>(value_); }

    constexpr auto operator<=>(const Index&) const = default;
    constexpr Index& operator++() {
        ++value_;
        return *this;
    }
    constexpr Index operator+(std::int32_t count) const { return of(value_ + count); }
    constexpr Index operator-(std::int32_t count) const { return of(value_ - count); }
    /// How many indices this one lies after `earlier`.
    constexpr std::int32_t operator-(Index earlier) const { return value_ - earlier.value_; }

  private:
    Rep value_ = 0;
};

/// The position in a container of an index that has no type of its own.
[[nodiscard]] constexpr std::size_t at(std::int64_t index) {
    return static_cast<std::size_t>(index);
}

/// The indices from `first` up to but excluding `last`, in steps of kStep (1 or -1).
template <typename I, std::int32_t kStep = 1>
class IndexRange {
  public:
    class Iterator {
      public:
        constexpr explicit Iterator(I index) : index_(index) {}
        constexpr I operator*() const { return index_; }
        constexpr Iterator& operator++() {
            index_ = index_ + kStep;
            return *this;
        }
        constexpr bool operator==(const Iterator&) const = default;

      private:
        I index_;
    };
    constexpr IndexRange(I first, I last) : first_(first), last_(last) {}
    [[nodiscard]] constexpr Iterator begin() const { return Iterator(first_); }
    [[nodiscard]] constexpr Iterator end() const { return Iterator(last_); }

  private:
    I first_, last_;
};

/// A vector indexed by I.
template <typename I, typename T>
class IndexedVector : public std::vector<T> {
  public:
    using std::vector<T>::vector;
    [[nodiscard]] typename std::vector<T>::reference operator[](I index) {
        return std::vector<T>::operator[](index.position());
    }
    [[nodiscard]] typename std::vector<T>::const_reference operator[](I index) const {
        return std::vector<T>::operator[](index.position());
    }
    /// Throws std::out_of_range for an index outside the vector.
    [[nodiscard]] typename std::vector<T>::reference at(I index) { return std::vector<T>::at(index.position()); }
    [[nodiscard]] typename std::vector<T>::const_reference at(I index) const {
        return std::vector<T>::at(index.position());
    }
    /// The index that the next element will have.
    [[nodiscard]] I next_index() const { return I::of(this->size()); }
    [[nodiscard]] IndexRange<I> indices() const { return {I{}, next_index()}; }
    [[nodiscard]] IndexRange<I, -1> indices_backward() const { return {next_index() - 1, I{} - 1}; }
    /// Appends the element and returns its index.
    I add(T element) {
        const I index = next_index();
        this->push_back(std::move(element));
        return index;
    }
};

/// An array with one element for each value of an enum whose values are 0 to kCount - 1.
template <typename Enum, typename T, std::size_t kCount>
class EnumArray : public std::array<T, kCount> {
  public:
    [[nodiscard]] constexpr T& operator[](Enum value) {
        return std::array<T, kCount>::operator[](static_cast<std::size_t>(value));
    }
    [[nodiscard]] constexpr const T& operator[](Enum value) const {
        return std::array<T, kCount>::operator[](static_cast<std::size_t>(value));
    }
};

/// All values of an enum of kCount values: `for (const Stream stream : enum_values<Stream, kStreamCount>())`.
template <typename Enum, std::size_t kCount>
[[nodiscard]] constexpr std::array<Enum, kCount> enum_values() {
    std::array<Enum, kCount> values{};
    for (std::size_t i = 0; i < kCount; ++i) values[i] = static_cast<Enum>(i);
    return values;
}

}  // namespace orrery
