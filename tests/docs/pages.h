// The pages of this repository.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "core/file.h"
#include "tests/docs/page.h"

namespace orrery::docs {

inline const std::filesystem::path kRoot = ORRERY_SOURCE_DIR;

/// README.md, CONTRIBUTING.md and the pages of docs, as paths from the root.
inline std::vector<std::string> page_paths() {
    std::vector<std::string> paths{"README.md", "CONTRIBUTING.md"};
    for (const auto& entry : std::filesystem::directory_iterator(kRoot / "docs")) {
        if (entry.path().extension() == ".md") paths.push_back("docs/" + entry.path().filename().string());
    }
    std::sort(paths.begin(), paths.end());
    return paths;
}

inline Page read_page_of_root(const std::string& path) {
    return read_page(path, read_text_file((kRoot / path).string()));
}

}  // namespace orrery::docs
