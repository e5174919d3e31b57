#include "exec/faults/injection.h"

#include <unistd.h>

#include <array>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <new>
#include <sstream>
#include <string_view>
#include <utility>

#include "core/error.h"

namespace orrery::exec {
namespace {

constexpr const char* kVariable = "ORRERY_FAULT";
constexpr std::chrono::milliseconds kSlowness{2500};
constexpr std::array<std::pair<std::string_view, FaultKind>, 11> kKinds{{{"kill", FaultKind::kill},
                                                                         {"stop", FaultKind::stop},
                                                                         {"crash", FaultKind::crash},
                                                                         {"exit", FaultKind::exit},
                                                                         {"hang", FaultKind::hang},
                                                                         {"spin", FaultKind::spin},
                                                                         {"fail", FaultKind::fail},
                                                                         {"bug", FaultKind::bug},
                                                                         {"oom", FaultKind::oom},
                                                                         {"nan", FaultKind::nan},
                                                                         {"slow", FaultKind::slow}}};

void compute_until(std::chrono::steady_clock::time_point end) {
    while (std::chrono::steady_clock::now() < end) {
    }
}

FaultKind kind_of(const std::string& name) {
    std::string allowed;
    for (const auto& [known, kind] : kKinds) {
        if (known == name) return kind;
        allowed.append(allowed.empty() ? "" : ", ").append(known);
    }
    throw InputError("environment", kVariable, name, allowed + ", each followed by :rank=R[,step=S][,at=TEXT]");
}

template <typename Integer>
Integer number_of(const std::string& key, const std::string& text) {
    Integer value = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (failed != std::errc{} || end != text.data() + text.size() || value < 0) {
        throw InputError("environment", std::string(kVariable) + ": " + key, text, "0, 1, …");
    }
    return value;
}

}  // namespace

Fault parse_fault(const std::string& text) {
    const std::size_t colon = text.find(':');
    Fault fault{.kind = kind_of(text.substr(0, colon)), .rank = -1};
    std::istringstream pairs(colon == std::string::npos ? "" : text.substr(colon + 1));
    for (std::string pair; std::getline(pairs, pair, ',');) {
        const std::size_t equals = pair.find('=');
        const std::string key = pair.substr(0, equals);
        const std::string value = equals == std::string::npos ? "" : pair.substr(equals + 1);
        if (key == "rank") {
            fault.rank = number_of<int>(key, value);
        } else if (key == "step") {
            fault.step = number_of<std::int64_t>(key, value);
        } else if (key == "at" && !value.empty()) {
            fault.at = value;
        } else {
            throw InputError("environment", kVariable, pair, "rank=R, step=S, at=TEXT");
        }
    }
    if (fault.rank < 0) throw InputError("environment", kVariable, text, "a fault with rank=R");
    return fault;
}

std::optional<Fault> fault_of_rank(int rank) {
    const char* text = std::getenv(kVariable);
    if (text == nullptr) return {};
    Fault fault = parse_fault(text);
    return fault.rank == rank ? std::optional(std::move(fault)) : std::nullopt;
}

void strike_at_init(int rank) {
    const std::optional<Fault> fault = fault_of_rank(rank);
    if (fault.has_value() && fault->at == kAtInit) strike(*fault);
}

bool strike(const Fault& fault) {
    switch (fault.kind) {
        case FaultKind::kill:
            raise(SIGKILL);
            break;
        case FaultKind::stop:
            raise(SIGSTOP);
            break;
        case FaultKind::crash:
            raise(SIGSEGV);
            break;
        case FaultKind::exit:
            std::_Exit(3);
        case FaultKind::hang:
            for (;;) pause();
        case FaultKind::spin:
            compute_until(std::chrono::steady_clock::time_point::max());
            break;
        case FaultKind::fail:
            throw JobError("thrown on purpose");
        case FaultKind::bug:
            throw BugError("thrown on purpose");
        case FaultKind::oom:
            throw std::bad_alloc();
        case FaultKind::nan:
            return true;
        case FaultKind::slow:
            compute_until(std::chrono::steady_clock::now() + kSlowness);
            break;
    }
    return false;
}

}  // namespace orrery::exec
