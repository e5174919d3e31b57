// A shared library that is opened when it is first needed, so that the program also starts on machines without a GPU.
#pragma once

#include <string>

namespace orrery::kernels::cuda {

class Library {
  public:
    /// Searches the loader's path, then the library folder of the CUDA version used for the build. Throws JobError
    /// naming both if the library is in neither.
    explicit Library(const std::string& name);

    /// Throws JobError naming library and function if the library does not have it.
    template <typename Function>
    [[nodiscard]] Function* function(const char* name) const {
        return reinterpret_cast<Function*>(address(name));
    }

    /// Null if the library does not have it.
    template <typename Function>
    [[nodiscard]] Function* find(const char* name) const {
        return reinterpret_cast<Function*>(look_up(name));
    }

  private:
    [[nodiscard]] void* address(const char* name) const;
    [[nodiscard]] void* look_up(const char* name) const;

    std::string name_;
    void* handle_ = nullptr;  // never closed: the library's threads and exit handlers may outlive this object
};

}  // namespace orrery::kernels::cuda
