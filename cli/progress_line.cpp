#include "cli/progress_line.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>

#include "cli/commands.h"
#include "reports/table.h"

namespace orrery::cli {
namespace {

constexpr std::chrono::milliseconds kInterval{250};
constexpr const char* kEraseLine = "\r\x1b[K";

/// "1 h 02 min", "3 min 20 s", "9 s": rounded up, so that a running job never shows 0 s.
std::string time_left(double seconds) {
    const auto left = static_cast<std::int64_t>(std::ceil(seconds));
    if (left >= 3600) return fmt::format("{} h {:02} min", left / 3600, left % 3600 / 60);
    if (left >= 60) return fmt::format("{} min {:02} s", left / 60, left % 60);
    return fmt::format("{} s", left);
}

/// Shows the text, which is ASCII, in place of the line, and no more of it than fits: the rest would stay there. The
/// cursor returns to the first column, so that other output overwrites the line.
void show_line(std::string text) {
    winsize size{};
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && text.size() >= size.ws_col)
        text.resize(size.ws_col - 1U);
    say(kEraseLine + text + "\r");
}

}  // namespace

std::string progress_words(const exec::TrainingProgress& progress, std::int64_t steps, bool has_loss,
                           std::optional<double> step_s) {
    std::string text =
        progress.first_step == 0
            ? fmt::format("step {} of {}", progress.steps_done, steps)
            : fmt::format("step {} ({} of {})", progress.first_step + progress.steps_done, progress.steps_done, steps);
    if (has_loss) text += fmt::format(", loss {:.6f}", progress.loss);
    if (!step_s) return text;
    return text + fmt::format(", {} a step, {} left", reports::format_seconds(*step_s),
                              time_left(*step_s * static_cast<double>(steps - progress.steps_done)));
}

void ProgressLine::show(const std::optional<exec::TrainingProgress>& progress) {
    if (!progress) {
        if (is_shown_) say(kEraseLine);
        is_shown_ = false;
        return;
    }
    const Clock::time_point now = Clock::now();
    if (first_done_ == 0) {
        first_done_ = progress->steps_done;
        first_seen_ = now;
    } else if (now - shown_ < kInterval) {
        return;
    }
    std::optional<double> step_s;
    if (progress->steps_done > first_done_) {
        step_s = std::chrono::duration<double>(now - first_seen_).count() /
                 static_cast<double>(progress->steps_done - first_done_);
    }
    show_line(progress_words(*progress, steps_, has_loss_, step_s));
    shown_ = now;
    is_shown_ = true;
}

std::string search_words(const sim::SearchProgress& progress) {
    std::string text =
        fmt::format("{}: {} of {} plans decided", progress.implementation, reports::format_integer(progress.decided),
                    reports::format_integer(progress.considered));
    if (progress.elapsed_s > 0) {
        const auto rate = static_cast<std::int64_t>(static_cast<double>(progress.decided) / progress.elapsed_s);
        text += fmt::format(", {} a second", reports::format_integer(rate));
    }
    text +=
        std::isinf(progress.best_step_s) ? "; no plan yet" : "; best " + reports::format_seconds(progress.best_step_s);
    return text + ", the rest at least " + reports::format_seconds(progress.least_open_s);
}

std::function<void(const std::string&)> status_line() {
    if (isatty(STDERR_FILENO) == 0) return {};
    return [](const std::string& text) { text.empty() ? say(kEraseLine) : show_line(text); };
}

std::function<void(const sim::SearchProgress&)> search_line() {
    auto show = status_line();
    if (!show) return {};
    return [show](const sim::SearchProgress& progress) { show(progress.is_over ? "" : search_words(progress)); };
}

}  // namespace orrery::cli
