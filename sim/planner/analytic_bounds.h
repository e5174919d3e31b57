// Private to the planner: bounds of a candidate's memory and step time summed over its layers. They take well under a
// microsecond for each sharding of a pipeline.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "sim/planner/layer_costs.h"
#include "sim/planner/pass_walk.h"
#include "sim/planner/sharding_costs.h"

namespace orrery::sim {

/// All zero for torch DataParallel, which has few candidates.
struct AnalyticBounds {
    /// Lower bound on the peak memory of the fullest rank, context included: parameters, gradients, optimizer states,
    /// windows of gathered units, staging buffers, and the activations that layers save for the micro-batches that the
    /// schedule keeps in flight, with the share that the allocator holds beyond them. Boundary buffers are left out.
    /// Transient values are those of a block's largest pass in an arena laid out ahead; from an allocator, those of the
    /// last layer of some chunk of the rank, at the end of its forward or the start of its backward.
    std::int64_t least_memory_bytes = 0;
    /// The same without transient values.
    std::int64_t least_lasting_bytes = 0;
    /// The same without activations.
    std::int64_t least_state_bytes = 0;
    /// Lower bound on the step time. W is a rank's computation for one micro-batch, F and B the forward and backward
    /// parts of its first chunk, m the number of micro-batches, O the optimizer, D the gradient reduction, G the gather
    /// of the parameters, g the number of gathers of a micro-batch (2, or 1 if parameters are kept). The bound is the
    /// maximum over some pipeline ranks r, the first and last ones and those with the most blocks, of
    ///   sum over i < r of (F_i + B_i)  +  m W_r  +  O_r      unless backward passes are split
    ///   sum over i < r of (F_i + B_i)  +  m T_r  +  O_r      if passes overlap; T is the time for which the tokens of
    ///                                                        a micro-batch travel, or which its forward or its
    ///                                                        backward takes alone, whichever is the longest
    ///   compute the first micro-batch through all later stages and back to r, the work that r has left by then, and
    ///   O_r
    ///                                                        for schedules with rounds
    ///   m W_r + O_r + the part of D_r that exceeds the computation it may overlap
    ///   m D_r                                                zero2 and zero3, unless backward passes are split
    ///   g m G_r                                              zero3, unless parameters are gathered in fp8
    ///   the time for which reductions, gathers and, if passes overlap, tokens keep the NIC busy
    /// where reductions and gathers also delay the computation that they run beside (ComputeDraws).
    double least_step_s = 0;
};

/// A sequence takes the least time in a micro-batch of about this many positions for each tensor-parallel rank: smaller
/// GEMMs and collectives are less efficient, larger ones hardly more. At any other size it takes at least the share of
/// that time (tested for all cuts of several models).
inline constexpr std::int64_t kEfficientPositions = 16'384;
inline constexpr double kLeastShareOfEfficient = 0.92;

/// Twice as many ranks for tp, cp or etp, on as many devices, leave at least this share of the computation's bound
/// (AnalyticBounder::least_computation_s of a mesh): parts of GEMMs are hardly more efficient than whole ones (tested
/// for all meshes of several models).
inline constexpr double kLeastShareOfHalf = 0.9;

/// With vocabulary parallelism over p stages a rank's passes of the head and its loss take at least 1 / p of those of
/// the whole head, less this share (tested for several models): a stage has the norm alone.
inline constexpr double kLeastVocabularyShare = 0.9;

/// By how much the walk beside data-parallel communication may at most exceed the simulated step (tested for several
/// models, clusters and implementations): by the smaller of a share of the step and a share of what the communication
/// adds to it. With communication of every micro-batch these are larger, and a further share of what it adds comes on
/// top.
struct TrafficError {
    double of_step = 0, of_added = 0, further_of_added = 0;
};
inline constexpr TrafficError kTrafficError{.of_step = 2.5e-3, .of_added = 0.12};
inline constexpr TrafficError kUnitTrafficError{.of_step = 1e-2, .of_added = 0.2, .further_of_added = 0.06};

class AnalyticBounder {
  public:
    /// Keeps references.
    AnalyticBounder(const PlanRequest& request, const topologies::Cluster& cluster, const RooflineCost& cost);

    /// With full recomputation choice.recompute_layers counts the recomputed blocks of each chunk; -1 means all.
    /// choice.offload_layers likewise.
    [[nodiscard]] AnalyticBounds bounds(const Choice& choice);
    /// The same for choice.sharding, which has this index among the shardings. A pipeline must always be asked about
    /// with the same shardings. What depends on the micro-batch size alone or on the sharding alone is computed once.
    [[nodiscard]] AnalyticBounds bounds(const Choice& choice, const std::vector<Sharding>& shardings,
                                        std::size_t index);
    /// bounds() of the choice with each of the shardings. Where the states alone exceed the limit, the step is not
    /// bounded: its bound is 0.
    void bounds_of_each(const Choice& choice, const std::vector<Sharding>& shardings,
                        std::vector<AnalyticBounds>& found,
                        std::int64_t limit_bytes = std::numeric_limits<std::int64_t>::max());
    /// Those of the shardings with these indices; the others keep what they have.
    void bounds_of_some(const Choice& choice, const std::vector<Sharding>& shardings,
                        std::span<const std::size_t> indices, std::vector<AnalyticBounds>& found,
                        std::int64_t limit_bytes);
    /// Whether the states alone exceed the limit with each of the shardings.
    [[nodiscard]] bool all_states_exceed(const Choice& choice, const std::vector<Sharding>& shardings,
                                         std::int64_t limit_bytes);
    /// The step bound that holds for every sharding and every kind of recomputation; choice.recompute is ignored.
    [[nodiscard]] double least_computation_s(const Choice& choice);
    /// A lower one that holds for all of these sizes of the micro-batch (ascending), from the costs of layers with one
    /// of them.
    [[nodiscard]] double least_computation_s(const Choice& choice, const std::vector<std::int64_t>& micro_batches);
    /// One that holds for all of these pipelines, which are on the same mesh: some stage takes at least as long as the
    /// mean of all.
    [[nodiscard]] double least_computation_s(std::span<const Family> mesh);
    /// The largest of these sizes with at most kEfficientPositions for each tensor-parallel rank, or the smallest size.
    [[nodiscard]] std::int64_t efficient_micro_batch(const Choice& choice,
                                                     const std::vector<std::int64_t>& micro_batches) const;
    /// Lower bound on the step time: the critical path through the schedule's passes and the transfers between stages
    /// to the first rank's last pass, whatever the sharding. 0 if it is not known (schedules that depend on durations,
    /// DualPipe, vocabulary parallelism, very many passes, torch DataParallel).
    [[nodiscard]] double path_s(const Choice& choice);
    /// The same with the data-parallel communication of one of the shardings, whose index is given, over all ranks
    /// (RankTraffic), for the second step, as simulated. It takes a rank's operators to be mixed evenly, so that it may
    /// be wrong by kTrafficError and the like, which are taken off.
    [[nodiscard]] double traffic_s(const Choice& choice, const std::vector<Sharding>& shardings, std::size_t index);
    /// The smallest number of recomputed (or offloaded: Choice::relieved_layers) blocks per chunk, at least one, that
    /// brings least_memory_bytes under the limit; the number of blocks of the largest chunk if no number does.
    [[nodiscard]] std::int64_t fewest_recomputed(const Choice& choice, const std::vector<Sharding>& shardings,
                                                 std::size_t index, std::int64_t limit_bytes);
    /// Number of blocks of the largest chunk.
    [[nodiscard]] std::int64_t largest_chunk(const Choice& choice);
    /// How often blocks of the model have been lowered on one stage.
    [[nodiscard]] std::int64_t layer_lowerings() const { return costing_.lowerings(); }

  private:
    struct ChunkSum {
        double forward_s = 0, backward_s = 0, input_gradient_s = 0, input_pass_s = 0, weight_pass_s = 0;
        double wide_gradients_s = 0;                         // LayerCost::wide_gradients_s
        CommunicationTimes forward_tokens, backward_tokens;  // those of LayerCost
        double alone_forward_s = 0, alone_backward_s = 0;    // likewise
        double vocabulary_s = 0;  // of the head's passes, if the vocabulary is sharded over the stages
        std::int64_t saved_bytes = 0, kept_bytes = 0;
        // Of offloaded activations; forward_s and backward_s contain the waits for copies within a pass.
        ChunkCopies copies;
        std::int64_t window_bytes = 0;
        std::int64_t beyond_bytes = 0;  // from an allocator: transients of its passes beyond what is saved, at least
        /// A backward pass with all its waits for copies, as far as sums count them.
        [[nodiscard]] double longest_backward_s() const { return backward_s + copies.after_s + copies.before_s; }
    };
    /// Facts about memory and time that follow from one rank's order of passes.
    struct OrderFacts {
        /// Combinations of micro-batches in flight, by chunk, followed by those that have only their weight gradients
        /// to compute. Only those that no other combination dominates.
        std::vector<IndexedVector<program::ChunkIndex, std::int64_t>> alive;
        IndexedVector<program::ChunkIndex, std::int64_t> forwards_ahead;  // forward passes before the first backward
        program::ChunkIndex first_backward_chunk = 0;
        /// Vocabulary parallelism: of the head's passes, how many come before the first backward of the blocks, and how
        /// many come before the first forward or after the last backward of the blocks, at most.
        std::int64_t vocabulary_ahead = 0, vocabulary_outside = 0;
    };
    struct Sharded {
        std::vector<ShardedRank> ranks;  // by position in Pipeline::ranks
        double context_bytes = 0;
        bool has_times = false;
    };
    /// By rank: the virtual stage of each of its chunks.
    using StagesOfRanks = std::vector<std::vector<std::size_t>>;
    /// A pipeline: what does not depend on the micro-batch size, on the sharding and on recomputation.
    struct Pipeline {
        const StagesOfRanks* places = nullptr;              // shared by all layouts of the stages
        const std::vector<std::int64_t>* layout = nullptr;  // shared by all meshes: first_block of each virtual stage
        std::vector<std::size_t> ranks;                     // those whose bounds are taken
        // Filled by count_elements, since most pipelines are excluded before they are sharded.
        std::vector<RankElements> elements;  // by position in `ranks`
        std::vector<std::size_t> like;       // by rank: the position in `ranks` of itself or the one like it
        std::vector<Sharded> sharded;        // by sharding; filled by sharded_of
        bool spreads_vocabulary = false;
        std::int64_t vocabulary_elements = 0;  // of each rank, if the vocabulary is sharded over the stages
        [[nodiscard]] const StagesOfRanks& stages() const { return *places; }
        /// Of a virtual stage; of one more, the number of blocks.
        [[nodiscard]] std::int64_t first_block(std::size_t stage) const { return (*layout)[stage]; }
        [[nodiscard]] std::int64_t blocks(std::size_t stage) const {
            return first_block(stage + 1) - first_block(stage);
        }
        [[nodiscard]] std::size_t stage_count() const { return layout->size() - 1; }
        [[nodiscard]] bool has_embedding(std::size_t stage) const { return stage == 0 && !spreads_vocabulary; }
        [[nodiscard]] bool has_head(std::size_t stage) const {
            return stage + 1 == stage_count() && !spreads_vocabulary;
        }
    };
    /// A rank's sums for one micro-batch.
    struct RankSums {
        double ramp_s = 0;            // first passes of the ranks before it
        double wide_ramp_s = 0;       // beyond ramp_s, if gradients have their full type
        double work_s = 0;            // one micro-batch
        double wide_gradients_s = 0;  // beyond work_s, if gradients have their full type
        /// Of one micro-batch, if its passes overlap with others: the travel of its tokens, and the least time of the
        /// blocks that its passes take part in. A block is as long as each of its passes is alone.
        CommunicationTimes tokens;
        double blocks_s = 0;
        double waiting_s = 0;               // part of work_s in which the device does not compute
        ComputeDraws draws;                 // of the computation of one micro-batch
        double round_s = 0;                 // least time from the first forward to the last pass, less m * work_s
        double beside_s = 0;                // computation that the gradient reduction may overlap
        std::int64_t activation_bytes = 0;  // most in flight
        std::int64_t beyond_bytes = 0;      // transients at that moment, at least
        /// Duration of the computation beside communication that holds this share of the compute units, over that
        /// alone.
        [[nodiscard]] double slowdown(double held, bool is_wide) const;
    };
    /// Of a choice, with all shardings that have gradients of the same type.
    struct Sums {
        std::vector<RankSums> ranks;  // by position in Pipeline::ranks
        double micro_batches = 0;     // of one copy of the model
        std::int64_t transient_bytes = 0;
    };
    static constexpr std::size_t kMostSums = 8192;  // that are kept
    /// Of hidden states between the ranks of a pipeline.
    struct Transfers {
        CommunicationTimes least;
        std::vector<CommunicationTimes> between;  // from each rank to the next; empty: any stage may lie on any rank
        [[nodiscard]] const CommunicationTimes& to_next(std::size_t rank) const {
            return rank < between.size() ? between[rank] : least;
        }
        [[nodiscard]] const CommunicationTimes& to_previous(std::size_t rank) const {
            return rank > 0 && rank <= between.size() ? between[rank - 1] : least;
        }
    };

    /// `is_wide`: with LayerCost::wide_gradients_s.
    const LayerCosts& costs_of(const Choice& choice, bool is_wide);
    /// What the layers' parameters and forward passes cost, whatever the schedule and the recomputation.
    const LayerCosts& base_costs(const Choice& choice);
    const std::vector<OrderFacts>& order_facts(const Choice& choice, std::int64_t micro_batches);
    const std::vector<OrderFacts>& vocabulary_order_facts(const Choice& choice, std::int64_t micro_batches);
    Pipeline& pipeline_of(const Choice& choice);
    [[nodiscard]] static std::vector<std::size_t> ranks_to_bound(const Pipeline& pipeline, const LayerCosts& costs);
    [[nodiscard]] static RankElements elements_of(const Pipeline& pipeline, std::size_t rank, const LayerCosts& costs);
    /// Fills sums_ and chunk_sums_.
    void sum(const Choice& choice, const Pipeline& pipeline);
    /// The same sums, which are kept. Valid until the next call.
    const Sums& sums_of(const Choice& choice, const Pipeline& pipeline);
    /// Without times.
    [[nodiscard]] Sharded shard(const Choice& choice, Pipeline& pipeline);
    /// Fills in the times unless they are there.
    void add_times(const Choice& choice, const Pipeline& pipeline, Sharded& sharded);
    /// One of Pipeline::sharded, that of choice.sharding, which has this index among the shardings.
    Sharded& sharded_of(const Choice& choice, Pipeline& pipeline, const std::vector<Sharding>& shardings,
                        std::size_t index);
    const StagesOfRanks& stages_of_ranks(const Choice& choice);
    /// Pipeline::layout.
    const std::vector<std::int64_t>& layout_of(const Choice& choice);
    void count_elements(const Choice& choice, Pipeline& pipeline);
    /// Without memory, the bytes of a split backward are those of a whole one, and its halves are not timed.
    void sum_chunks(const Choice& choice, const Pipeline& pipeline, bool counts_memory = true);
    void offload_activations(const Choice& choice, const Pipeline& pipeline, std::size_t stage,
                             const LayerCosts& costs);
    /// How long passes of a rank with these stages wait in a step for copies of offloaded activations, beyond what the
    /// sums of its chunks contain.
    [[nodiscard]] double copy_wait_s(const Choice& choice, const std::vector<std::size_t>& stages,
                                     const OrderFacts& facts) const;
    [[nodiscard]] double copy_wait_ahead_s(const std::vector<std::size_t>& stages, const OrderFacts& facts) const;
    [[nodiscard]] static std::int64_t beyond_bytes(const Choice& choice, const Pipeline& pipeline, std::size_t stage,
                                                   const LayerCosts& again, const LayerCosts& whole);
    /// RankSums::round_s of a rank with these stages, without copies of offloaded activations.
    [[nodiscard]] double round_s(const std::vector<std::size_t>& stages, const OrderFacts& facts, bool splits) const;
    void sum_ranks(const Choice& choice, const Pipeline& pipeline);
    /// least_computation_s of the passes summed by sum_chunks.
    [[nodiscard]] double summed_computation_s(const Choice& choice, const Pipeline& pipeline);
    void sum_draws(const Choice& choice, const Pipeline& pipeline);
    template <typename Visit>
    static void for_each_range(const Choice& choice, const Pipeline& pipeline, std::size_t stage, const Visit& visit);
    /// Of one of Pipeline::ranks: its states and so many further bytes, with what the allocator holds beyond them.
    [[nodiscard]] std::int64_t in_use_bytes(const Sharded& sharded, std::size_t rank, std::int64_t beside_states) const;
    [[nodiscard]] AnalyticBounds memory_bounds(const Sums& sums, const Sharded& sharded) const;
    [[nodiscard]] double step_bound_s(const Choice& choice, const Sums& sums, const Sharded& sharded) const;
    [[nodiscard]] AnalyticBounds bounds(const Choice& choice, const Pipeline& pipeline, const Sums& sums,
                                        Sharded& sharded);
    [[nodiscard]] bool has_path(const Choice& choice) const;
    /// Of the passes summed by sum_chunks.
    [[nodiscard]] PassCosts pass_costs(const Choice& choice, const Pipeline& pipeline);
    [[nodiscard]] Transfers transfers_of(const Choice& choice);
    /// RankTraffic::OfChunk's regathers.
    void add_regather(const Choice& choice, const Pipeline& pipeline, const ShardedRank& costs,
                      const RankElements& elements, std::size_t rank, std::size_t stage, RankTraffic::OfChunk& chunk);
    [[nodiscard]] RankTraffic traffic_of(const Choice& choice, const Pipeline& pipeline, const Sharded& sharded,
                                         std::size_t rank, const Transfers& transfers);
    [[nodiscard]] static std::vector<std::size_t> alike_ranks(const Pipeline& pipeline, const LayerCosts& costs);
    const PassOrders& orders_of(const Choice& choice);

    const PlanRequest& request_;
    ShardingCosts sharding_;
    LayerCosting costing_;
    double cached_share_ = 0;  // what the allocator holds beyond tensors, as a share of them
    ByChoice<LayerCosts> costs_;
    ByChoice<Pipeline> pipelines_;
    std::map<std::tuple<program::Schedule, std::int64_t, std::int64_t>, StagesOfRanks> stages_;
    std::map<std::tuple<program::Schedule, std::int64_t, std::int64_t, program::EndWeights>, std::vector<std::int64_t>>
        layouts_;
    ByChoice<double> paths_;
    ByChoice<Sums> kept_sums_;
    using OrderKey = std::tuple<program::Schedule, std::int64_t, std::int64_t, std::int64_t, bool>;
    std::map<OrderKey, PassOrders> whole_orders_;
    std::map<OrderKey, std::vector<OrderFacts>> orders_;
    std::map<std::tuple<program::VocabularyParallel, std::int64_t, std::int64_t>, std::vector<OrderFacts>>
        vocabulary_orders_;
    // Of the last choice; members so that nothing is allocated for each choice.
    std::vector<ChunkSum> chunk_sums_;  // by virtual stage
    Sums sums_;
    std::optional<Choice> summed_;      // what both are sums of
    std::vector<double> copy_seconds_;  // by offloaded block of a chunk
    std::int64_t passed_on_bytes_ = 0;
};

}  // namespace orrery::sim
