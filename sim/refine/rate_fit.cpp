#include "sim/refine/rate_fit.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <set>

#include "core/error.h"
#include "sim/program/work_rates.h"
#include "sim/refine/least_squares.h"

namespace orrery::sim {
namespace {

using Eigen::MatrixXd;
using Eigen::VectorXd;

bool counts(const std::vector<bool>& chosen, std::size_t run) {
    return chosen.empty() || chosen[run];
}

/// Weight of each run; 0 for runs that are not chosen.
std::vector<double> weights_of(const RateProblem& problem, const std::vector<bool>& chosen) {
    std::map<std::string, double> of_group, of_source;
    for (std::size_t i = 0; i < problem.runs.size(); ++i) {
        if (counts(chosen, i)) ++of_group[problem.runs[i].group];
    }
    std::vector<double> weights(problem.runs.size());
    for (std::size_t i = 0; i < weights.size(); ++i) {
        const RunToFit& run = problem.runs[i];
        if (!counts(chosen, i)) continue;
        weights[i] = std::min(1.0, kGroupRuns / of_group[run.group]);
        of_source[run.source] += weights[i];
    }
    for (std::size_t i = 0; i < weights.size(); ++i) {
        if (weights[i] > 0) weights[i] *= std::sqrt(std::min(1.0, kSourceRuns / of_source[problem.runs[i].source]));
    }
    return weights;
}

class Fitter {
  public:
    Fitter(const RateProblem& problem, double reach, const std::vector<bool>& chosen)
        : problem_(problem), weights_(weights_of(problem, chosen)), reach_(reach) {
        const auto n = static_cast<Eigen::Index>(problem.rates.size());
        prior_ = VectorXd(n);
        sd_ = VectorXd(n);
        start_ = VectorXd(n);
        for (Eigen::Index i = 0; i < n; ++i) {
            const FittedRate& rate = problem.rates[static_cast<std::size_t>(i)];
            ORRERY_CHECK(rate.prior > 0 && rate.sd > 0 && rate.start > 0,
                         "the rate '" + rate.name + "' has no positive prior");
            prior_[i] = std::log(rate.prior);
            sd_[i] = rate.sd;
            start_[i] = std::log(rate.start);
        }
    }

    RateFit run() {
        VectorXd x = start_;
        RateFit fit;
        fit.objective_before = objective(x);
        double damping = 0;
        double best = fit.objective_before;
        MatrixXd normal;
        for (int iteration = 0; iteration < kIterations; ++iteration) {
            VectorXd gradient;
            linearise(x, normal, gradient);
            MatrixXd damped = normal;
            damped.diagonal() *= 1 + damping;
            VectorXd next = x - damped.ldlt().solve(gradient);
            for (Eigen::Index i = 0; i < x.size(); ++i)
                next[i] = std::clamp(next[i], start_[i] - reach_, start_[i] + reach_);
            const double value = objective(next);
            if (value > best) {
                damping = damping == 0 ? 0.01 : damping * 4;
                if (damping > 1e4) break;
                continue;
            }
            const double moved = (next - x).cwiseAbs().maxCoeff();
            x = next;
            best = value;
            damping /= 4;
            if (moved < 1e-4) break;
        }
        VectorXd gradient;
        linearise(x, normal, gradient);
        finish(x, normal.inverse(), fit);
        fit.objective_after = best;
        return fit;
    }

    [[nodiscard]] double objective(const VectorXd& x) const {
        double sum = ((x - prior_).array() / sd_.array()).square().sum();
        for (std::size_t i = 0; i < problem_.runs.size(); ++i) {
            if (weights_[i] == 0) continue;
            const double error = std::log(step_of(problem_.runs[i], x, nullptr) / problem_.runs[i].measured_s);
            const double scaled = error / kSoftError;
            sum += weights_[i] * 2 * (std::sqrt(1 + scaled * scaled) - 1);
        }
        return sum;
    }
    [[nodiscard]] const VectorXd& start() const { return start_; }

  private:
    static constexpr int kIterations = 60;
    /// Terms may have opposite signs; a step is at least this share of its predicted time.
    static constexpr double kLeastShare = 0.05;

    /// `slope` receives d log(step) / dx unless it is null.
    double step_of(const RunToFit& run, const VectorXd& x, VectorXd* slope) const {
        if (slope != nullptr) slope->setZero(x.size());
        double step = run.predicted_s;
        for (const RunToFit::Term& term : run.terms) {
            double power = 0;
            for (const RunToFit::Term::Use& use : term.uses) {
                const auto rate = static_cast<Eigen::Index>(use.rate);
                power += use.power * (x[rate] - start_[rate]);
            }
            const double seconds = term.seconds * std::exp(power);
            step += seconds - term.seconds;
            if (slope == nullptr) continue;
            for (const RunToFit::Term::Use& use : term.uses) {
                (*slope)[static_cast<Eigen::Index>(use.rate)] += use.power * seconds;
            }
        }
        step = std::max(step, kLeastShare * run.predicted_s);
        if (slope != nullptr) *slope /= step;
        return step;
    }

    void linearise(const VectorXd& x, MatrixXd& normal, VectorXd& gradient) const {
        normal = sd_.array().square().inverse().matrix().asDiagonal();
        gradient = ((x - prior_).array() / sd_.array().square()).matrix();
        VectorXd slope(x.size());
        for (std::size_t i = 0; i < problem_.runs.size(); ++i) {
            if (weights_[i] == 0) continue;
            const double error = std::log(step_of(problem_.runs[i], x, &slope) / problem_.runs[i].measured_s);
            const double scaled = error / kSoftError;
            const double weight = weights_[i] / std::sqrt(1 + scaled * scaled) / (kSoftError * kSoftError);
            normal.noalias() += weight * slope * slope.transpose();
            gradient += weight * error * slope;
        }
    }

    void finish(const VectorXd& x, const MatrixXd& covariance, RateFit& fit) const {
        fit.rates = problem_.rates;
        std::vector<std::set<std::string>> groups(fit.rates.size());
        VectorXd slope(x.size());
        for (std::size_t i = 0; i < problem_.runs.size(); ++i) {
            const RunToFit& run = problem_.runs[i];
            fit.predicted_s.push_back(step_of(run, x, &slope));
            if (weights_[i] == 0) continue;
            for (std::size_t r = 0; r < fit.rates.size(); ++r) {
                if (std::abs(slope[static_cast<Eigen::Index>(r)]) < kMovesShare) continue;
                ++fit.rates[r].runs;
                groups[r].insert(run.group);
                std::vector<std::string>& sources = fit.rates[r].sources;
                if (std::find(sources.begin(), sources.end(), run.source) == sources.end())
                    sources.push_back(run.source);
            }
        }
        for (std::size_t r = 0; r < fit.rates.size(); ++r) {
            const auto i = static_cast<Eigen::Index>(r);
            fit.rates[r].value = std::exp(x[i]);
            fit.rates[r].information = std::clamp(1 - covariance(i, i) / (sd_[i] * sd_[i]), 0.0, 1.0);
            fit.rates[r].groups = groups[r].size();
        }
        fit.covariance.assign(covariance.data(), covariance.data() + covariance.size());
    }

    const RateProblem& problem_;
    std::vector<double> weights_;
    double reach_;
    VectorXd prior_, sd_, start_;
};

}  // namespace

std::size_t RateProblem::rate_of(const program::Rates::Resolved& resolved) {
    const auto [place, is_new] = places_.emplace(resolved.name, rates.size());
    if (is_new) {
        rates.push_back({.name = resolved.name,
                         .prior = resolved.rate.prior,
                         .sd = resolved.rate.sd,
                         .start = resolved.rate.value,
                         .value = resolved.rate.value});
    }
    ORRERY_CHECK(rates[place->second].start == resolved.rate.value,
                 "runs of one fit were simulated with different values of '" + resolved.name + "'");
    return place->second;
}

void RateProblem::add(const program::Plan& plan, const program::Sensitivity& sensitivity, RunToFit run) {
    for (const auto& [cell, seconds] : sensitivity) {
        RunToFit::Term term{.seconds = seconds};
        for (const program::RateUse& use : program::rates_of(cell, plan.parallelism, plan.cluster.devices_per_node)) {
            const program::Rates::Resolved& resolved = plan.rates.of(use.key);
            if (resolved.name.empty() || resolved.rate.sd <= 0 || use.power == 0) continue;
            term.uses.push_back({rate_of(resolved), use.power});
        }
        if (!term.uses.empty()) run.terms.push_back(std::move(term));
    }
    runs.push_back(std::move(run));
}

RateFit fit_rates(const RateProblem& problem, double reach, const std::vector<bool>& chosen) {
    return Fitter(problem, reach, chosen).run();
}

double rate_objective(const RateProblem& problem, const std::vector<bool>& chosen) {
    const Fitter fitter(problem, 0, chosen);
    return fitter.objective(fitter.start());
}

}  // namespace orrery::sim
