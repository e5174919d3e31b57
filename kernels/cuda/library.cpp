#include "kernels/cuda/library.h"

#include <dlfcn.h>

#include "core/error.h"

namespace orrery::kernels::cuda {

Library::Library(const std::string& name) : name_(name) {
    const std::string built_with = std::string(ORRERY_CUDA_LIBRARIES) + "/" + name;
    handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) handle_ = dlopen(built_with.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) {
        throw JobError("cannot open " + name + ": neither on the loader's path (LD_LIBRARY_PATH) nor in " +
                       ORRERY_CUDA_LIBRARIES);
    }
}

void* Library::look_up(const char* name) const {
    return dlsym(handle_, name);
}

void* Library::address(const char* name) const {
    void* found = look_up(name);
    if (found == nullptr) throw JobError(name_ + " has no function " + name);
    return found;
}

}  // namespace orrery::kernels::cuda
