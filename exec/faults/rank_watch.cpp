#include "exec/faults/rank_watch.h"

#include "exec/faults/process_facts.h"

namespace orrery::exec {
namespace {

bool has_moved(const RankSnapshot& before, const RankSnapshot& now) {
    return before.stage != now.stage || before.instructions != now.instructions || before.messages != now.messages ||
           before.exchanging != now.exchanging;
}

}  // namespace

void RankWatch::observe(Clock::time_point now, const RankSnapshot& page) {
    if (has_moved(view_.page, page)) {
        seen_ = news_ = busy_ = now;
        view_ = {.page = page, .exists = true};
        return;
    }
    const auto seconds_since = [&](Clock::time_point then) {
        return std::chrono::duration<double>(now - then).count();
    };
    const ProcessFacts facts = page.pid == 0 ? ProcessFacts{} : process_facts(page.pid);
    view_.page = page;
    view_.exists = facts.exists && facts.start_ticks == page.start_ticks;
    view_.is_stopped = facts.is_stopped;
    if (view_.exists) seen_ = now;
    if (facts.runs || facts.cpu_ticks != cpu_ticks_) busy_ = now;
    cpu_ticks_ = facts.cpu_ticks;
    view_.gone_s = seconds_since(seen_);
    view_.quiet_s = seconds_since(news_);
    view_.idle_s = seconds_since(busy_);
}

void RankWatch::forgive(Clock::duration lost) {
    for (Clock::time_point* time : {&seen_, &news_, &busy_}) *time += lost;
}

}  // namespace orrery::exec
