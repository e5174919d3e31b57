// A shared library that is opened when it is first needed, so that a program which may use a GPU starts without one.
#pragma once

#include <string>

namespace orrery::kernels::cuda {

class Library {
  public:
    /// Looks where the system's loader does, then in the folder of the CUDA that this was built with. Throws JobError
    /// naming both when it is in neither.
    explicit Library(const std::string& name);

    /// Throws JobError naming library and function when it is not there.
    template <typename Function>
    [[nodiscard]] Function* function(const char* name) const {
        return reinterpret_cast<Function*>(address(name));
    }

  private:
    [[nodiscard]] void* address(const char* name) const;

    std::string name_;
    void* handle_ = nullptr;  // stays open until the process ends: its threads and exit handlers may outlive us
};

}  // namespace orrery::kernels::cuda
