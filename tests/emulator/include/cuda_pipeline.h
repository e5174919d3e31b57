// Asynchronous copies to shared memory, as far as Orrery's kernels use them; see cuda_runtime.h and grid.h.
#pragma once

#include <cuda_runtime.h>

inline void __pipeline_memcpy_async(void* to, const void* from, std::size_t bytes) {
    ::emulated::start_copy(to, from, bytes);
}
inline void __pipeline_commit() {
    ::emulated::end_group_of_copies();
}
inline void __pipeline_wait_prior(std::size_t groups_left) {
    ::emulated::wait_for_copies(groups_left);
}
