// Data files that are compiled into the binary, so that an installed orrery needs no data folder.
#pragma once

#include <span>
#include <string_view>

namespace orrery {

struct EmbeddedFile {
    std::string_view name;  // file name without extension
    std::string_view content;
};

}  // namespace orrery
