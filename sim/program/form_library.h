// Private to the lowerings: which forms a plan's layers have, by what it cuts, recomputes and pads.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "sim/program/layer_form.h"
#include "sim/program/program.h"
#include "sim/program/vocabulary.h"

namespace orrery::program {

struct ShardingRules;

/// The forms of the layers that a plan runs, each made once.
class FormLibrary {
  public:
    FormLibrary(const Plan& plan, const ShardingRules& rules);
    /// `recomputed`: by the plan's rules, or not at all.
    [[nodiscard]] const LayerForm& form(models::LayerKind kind, bool recomputed);
    /// Parts of a vocabulary that is cut over the stages.
    [[nodiscard]] const LayerForm& vocabulary_form(VocabularyPart part, bool root);
    /// Whether the head's weight is the embedding's on the same rank.
    [[nodiscard]] bool ties_locally() const;
    [[nodiscard]] const FlatPadding& padding() const { return common_.padding; }

  private:
    const Plan& plan_;
    FormOptions common_;  // of every layer
    models::LayerContext context_;
    std::vector<std::unique_ptr<LayerForm>> forms_;
    std::map<std::pair<VocabularyPart, bool>, LayerForm> vocabulary_forms_;
};

}  // namespace orrery::program
