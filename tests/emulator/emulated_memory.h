// Memory of an emulated device besides what a program allocates. Not NVIDIA's figures: enough to see whether each is
// counted.
#pragma once

#include <cstdint>

namespace emulated {

inline constexpr std::int64_t kContextBytes = std::int64_t{300} << 20U;
/// Of a communicator with resources of its own, and of one that shares those of another.
inline constexpr std::int64_t kOwnBytes = std::int64_t{48} << 20U;
inline constexpr std::int64_t kSharedBytes = std::int64_t{2} << 20U;

/// An A100's, which has all that is emulated.
inline constexpr int kComputeCapability = 80;

}  // namespace emulated
