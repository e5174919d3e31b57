#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "core/float16.h"
#include "core/random.h"
#include "tests/mpi/transport_checks.h"

namespace orrery::exec {
namespace {

using program::CommKind;

/// Posts, waits, and checks the bytes that all ranks sent.
void run(Transport& transport, ProgressEngine& engine, const Operation& operation, std::int64_t bytes_of_all) {
    const Volume before = volume(engine, Stream::tp);
    engine.wait(Stream::tp, engine.post(Stream::tp, operation));
    const Volume after = volume(engine, Stream::tp);
    const std::int64_t sent = total_over_ranks(transport, after.sent - before.sent);
    const std::int64_t received = total_over_ranks(transport, after.received - before.received);
    if (transport.rank() == 0) {
        const std::string where = std::string(program::name_of(operation.kind)) + " of " +
                                  std::to_string(operation.elements) + ", root " + std::to_string(operation.root);
        EXPECT(sent == bytes_of_all, where + ": " + std::to_string(sent));
        EXPECT(received == bytes_of_all, where + ": " + std::to_string(received));
    }
}

void rooted(Transport& transport, ProgressEngine& engine, GroupHandle group, int root, std::int64_t elements) {
    const std::vector<int>& ranks = transport.members(group);
    const std::int64_t n = transport.world_size();
    const int rank = transport.rank();
    const int source = ranks[static_cast<std::size_t>(root)];
    const bool is_root = rank == source;
    const std::string where = "root " + std::to_string(root) + ", " + std::to_string(elements) + " elements";
    const std::int64_t bytes = elements * 4;
    Operation operation{.elements = elements, .group = group, .root = root};

    std::vector<float> data = filled<float>(is_root ? rank : -1, elements);
    operation.kind = CommKind::broadcast;
    operation.in = is_root ? data.data() : nullptr;
    operation.out = data.data();
    run(transport, engine, operation, (n - 1) * bytes);
    EXPECT(data == filled<float>(source, elements), where);

    const std::vector<float> mine = filled<float>(rank, elements);
    std::vector<float> sums(is_root ? mine.size() : 0);
    operation.kind = CommKind::reduce;
    operation.in = mine.data();
    operation.out = is_root ? sums.data() : nullptr;
    run(transport, engine, operation, (n - 1) * bytes);
    for (std::size_t i = 0; i < sums.size(); ++i) {
        EXPECT(sums[i] == expected<float>(ReduceOp::sum, ranks, static_cast<std::int64_t>(i)), where);
    }

    // Scattered and gathered again, in place on the root.
    const std::int64_t me = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
    std::vector<float> whole = filled<float>(rank, is_root ? n * elements : 0);
    std::vector<float> own(is_root ? 0 : mine.size());
    float* const block = is_root ? whole.data() + root * elements : own.data();
    operation.elements = n * elements;
    operation.kind = CommKind::scatter;
    operation.in = whole.data();
    operation.out = block;
    run(transport, engine, operation, (n - 1) * bytes);
    for (std::int64_t i = 0; i < elements; ++i) EXPECT(block[i] == value<float>(source, me * elements + i), where);
    for (std::int64_t i = 0; i < elements; ++i) block[i] += static_cast<float>(rank);
    operation.kind = CommKind::gather;
    operation.in = block;
    operation.out = whole.data();
    run(transport, engine, operation, (n - 1) * bytes);
    for (std::size_t i = 0; i < whole.size(); ++i) {
        const auto at = static_cast<std::int64_t>(i);
        const auto owner = static_cast<float>(ranks[static_cast<std::size_t>(at / elements)]);
        EXPECT(whole[i] == value<float>(source, at) + owner, where);
    }
}

void between_all(Transport& transport, ProgressEngine& engine, GroupHandle group, std::int64_t elements) {
    const std::vector<int>& ranks = transport.members(group);
    const auto n = static_cast<std::int64_t>(ranks.size());
    const int rank = transport.rank();
    const std::int64_t me = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
    const std::string where = std::to_string(elements) + " elements";
    Operation operation{.kind = CommKind::exchange, .dtype = DType::fp64, .elements = elements, .group = group};
    const std::vector<double> mine = filled<double>(rank, n * elements);
    std::vector<double> out(mine.size(), -7777.0);
    operation.in = mine.data();
    operation.out = out.data();
    run(transport, engine, operation, n * elements * 8);
    const int left = ranks[static_cast<std::size_t>((me + n - 1) % n)];
    for (std::int64_t i = 0; i < elements; ++i)
        EXPECT(out[static_cast<std::size_t>(i)] == value<double>(left, i), where);

    operation.kind = CommKind::all_to_all;
    operation.elements = n * elements;
    run(transport, engine, operation, n * (n - 1) * elements * 8);
    for (std::int64_t i = 0; i < n * elements; ++i) {
        const int from = ranks[static_cast<std::size_t>(i / elements)];
        EXPECT(out[static_cast<std::size_t>(i)] == value<double>(from, me * elements + i % elements), where);
    }
    EXPECT(mine == filled<double>(rank, n * elements), where + ": the input changed");
}

// The gradients are small integers, whose sums over eight ranks are exact in bf16.
void bf16_gradients(Transport& transport, ProgressEngine& engine, GroupHandle group, std::int64_t block) {
    const std::vector<int>& ranks = transport.members(group);
    const auto n = static_cast<std::int64_t>(ranks.size());
    const std::int64_t me = std::find(ranks.begin(), ranks.end(), transport.rank()) - ranks.begin();
    const auto gradient = [](int rank, std::int64_t i) { return static_cast<float>((i + 3 * rank) % 11 - 5); };
    std::vector<std::uint16_t> in(static_cast<std::size_t>(n * block));
    for (std::size_t i = 0; i < in.size(); ++i) {
        in[i] = to_bf16(gradient(transport.rank(), static_cast<std::int64_t>(i)));
    }
    std::vector<std::uint16_t> out(static_cast<std::size_t>(block), to_bf16(0.0F));
    // Two micro-batches, posted one after the other.
    for (int i = 0; i < 2; ++i) {
        engine.post(Stream::dp, {.kind = CommKind::reduce_scatter,
                                 .dtype = DType::bf16,
                                 .elements = n * block,
                                 .in = in.data(),
                                 .out = out.data(),
                                 .group = group,
                                 .accumulates = true});
    }
    engine.wait_all();
    for (std::int64_t i = 0; i < block; ++i) {
        float sum = 0;
        for (const int rank : ranks) sum += gradient(rank, me * block + i);
        EXPECT(from_bf16(out[static_cast<std::size_t>(i)]) == 2 * sum, std::to_string(block) + " elements");
    }
}

std::int64_t drawn_count(std::uint64_t round, int from, int to) {
    const RandomStream random(round, "counts " + std::to_string(from) + " " + std::to_string(to));
    return random.below(0, 3) == 0 ? 0 : static_cast<std::int64_t>(random.below(1, 20000));
}

// The communication of an expert layer, all posted at once: an all-to-all of counts, an all-to-all of tokens to their
// experts and one back, while another stream reduces.
void routed(Transport& transport, ProgressEngine& engine, GroupHandle group) {
    const std::vector<int>& ranks = transport.members(group);
    const std::size_t n = ranks.size();
    const int rank = transport.rank();
    constexpr std::uint64_t kRounds = 20;
    struct Round {
        std::vector<std::int64_t> send, receive;
        std::vector<float> tokens, at_experts, back, gradients;
    };
    std::vector<Round> rounds(kRounds);
    const Volume before = volume(engine, Stream::ep);
    std::int64_t sent = 0;
    std::int64_t last_counts = engine.posted(Stream::cp);
    for (std::uint64_t r = 0; r < kRounds; ++r) {
        Round& round = rounds[r];
        std::int64_t total = 0;
        std::int64_t arriving = 0;
        for (const int other : ranks) {
            round.send.push_back(drawn_count(r, rank, other));
            total += round.send.back();
            arriving += drawn_count(r, other, rank);
            if (other != rank) sent += 4 * (round.send.back() + drawn_count(r, other, rank));
        }
        round.receive.assign(n, -1);
        round.tokens = filled<float>(rank, total);
        round.at_experts.assign(static_cast<std::size_t>(arriving), -7777.0F);
        round.back.assign(round.tokens.size(), -7777.0F);
        round.gradients = filled<float>(rank, 5000);
        last_counts = engine.post(Stream::cp, {.kind = CommKind::all_to_all,
                                               .dtype = DType::int64,
                                               .elements = static_cast<std::int64_t>(n),
                                               .in = round.send.data(),
                                               .out = round.receive.data(),
                                               .group = group});
        Operation there{.kind = CommKind::all_to_all,
                        .in = round.tokens.data(),
                        .out = round.at_experts.data(),
                        .group = group,
                        .counts = {round.send.data(), round.receive.data(), total, arriving}};
        there.after[Stream::cp] = last_counts;
        engine.post(Stream::ep, there);
        engine.post(Stream::ep, {.kind = CommKind::all_to_all,
                                 .in = round.at_experts.data(),
                                 .out = round.back.data(),
                                 .group = group,
                                 .counts = {round.receive.data(), round.send.data(), arriving, total}});
        engine.post(Stream::dp, {.kind = CommKind::all_reduce,
                                 .elements = 5000,
                                 .in = round.gradients.data(),
                                 .out = round.gradients.data(),
                                 .group = group});
    }
    engine.wait_all();
    for (std::uint64_t r = 0; r < kRounds; ++r) {
        const Round& round = rounds[r];
        std::size_t at = 0;
        for (std::size_t member = 0; member < n; ++member) {
            const int from = ranks[member];
            EXPECT(round.receive[member] == drawn_count(r, from, rank), "round " + std::to_string(r));
            std::int64_t first = 0;  // of this rank's block in the other rank's tokens
            for (const int other : ranks) {
                if (other == rank) break;
                first += drawn_count(r, from, other);
            }
            for (std::int64_t i = 0; i < round.receive[member]; ++i) {
                EXPECT(round.at_experts[at] == value<float>(from, first + i), "round " + std::to_string(r));
                ++at;
            }
        }
        EXPECT(round.back == round.tokens, "round " + std::to_string(r));
        for (std::size_t i = 0; i < round.gradients.size(); ++i) {
            EXPECT(round.gradients[i] == expected<float>(ReduceOp::sum, ranks, static_cast<std::int64_t>(i)), "sum");
        }
    }
    EXPECT(volume(engine, Stream::ep).sent - before.sent == sent, "bytes sent");
}

/// The line of a stream in describe_pending(), which is called until the line contains `what`.
std::string line_with(const ProgressEngine& engine, const std::string& stream, const std::string& what) {
    for (;;) {
        const std::string text = engine.describe_pending();
        const std::size_t begin = text.find(stream + ": ");
        EXPECT(begin != std::string::npos, stream + " is not pending: " + text);
        const std::string line = text.substr(begin, text.find('\n', begin) - begin);
        if (line.find(what) != std::string::npos) return line;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

}  // namespace

void check_kinds(Transport& transport, ProgressEngine& engine, GroupHandle world, GroupHandle reversed) {
    for (const GroupHandle group : {world, reversed}) {
        for (int root = 0; root < transport.world_size(); ++root) {
            for (const std::int64_t elements : {0L, 1L, 1000L, 50001L}) {
                rooted(transport, engine, group, root, elements);
            }
        }
        rooted(transport, engine, group, 1, 3000001);
        for (const std::int64_t elements : {0L, 1L, 1000L, 50001L, 1000003L}) {
            between_all(transport, engine, group, elements);
        }
        for (const std::int64_t block : {1L, 1000L, 300001L}) bf16_gradients(transport, engine, group, block);
        routed(transport, engine, group);
    }
}

void check_pending(Transport& transport, ProgressEngine& engine, GroupHandle world) {
    const int n = transport.world_size();
    const int rank = transport.rank();
    EXPECT(engine.describe_pending().empty(), engine.describe_pending());
    std::vector<float> data(1000, static_cast<float>(rank));
    std::vector<float> sums(1000);
    const std::vector<float> message_out(5, 1.0F);
    std::vector<float> message_in(5);
    const auto post = [&] {
        const std::int64_t first = engine.post(
            Stream::tp,
            {.kind = CommKind::broadcast, .elements = 1000, .in = data.data(), .out = data.data(), .group = world});
        Operation second{
            .kind = CommKind::all_reduce, .elements = 1000, .in = data.data(), .out = sums.data(), .group = world};
        second.after[Stream::tp] = first;
        engine.post(Stream::dp, second);
        for (int other = 1; other < n; ++other) {
            const Operation message{.elements = 5, .in = message_out.data(), .out = message_in.data(), .peer = other};
            Operation send = message;
            Operation receive = message;
            send.kind = CommKind::send;
            receive.kind = CommKind::recv;
            if (rank == 0) {
                engine.post(Stream::pp_send_forward, send);
                engine.post(Stream::pp_recv_backward, receive);
            } else if (rank == other) {
                send.peer = receive.peer = 0;
                engine.post(Stream::pp_recv_forward, receive);
                engine.post(Stream::pp_send_backward, send);
            }
        }
        return first;
    };
    if (rank > 0) {  // rank 0 posts after the others have checked their descriptions
        const std::int64_t first = post();
        EXPECT(!engine.wait(Stream::tp, first, std::chrono::milliseconds(5)), "nobody has sent");
        std::string everyone;
        for (int r = 0; r < n; ++r) everyone += " " + std::to_string(r);
        int parent = rank;  // parent in the tree: the rank without its highest bit
        for (int bit = 1; bit <= rank; bit *= 2) parent = rank - bit;
        std::string line = line_with(engine, "tp", "under way");
        EXPECT(line == "tp: operation " + std::to_string(first) + ", broadcast of 1000 fp32 among ranks" + everyone +
                           ": under way, waits for a message from rank " + std::to_string(parent),
               line);
        line = line_with(engine, "dp", "waits");
        EXPECT(line.find(", all_reduce of 1000 fp32 among ranks" + everyone + ": waits for operation " +
                         std::to_string(first) + " of tp (" + std::to_string(first - 1) + " completed)") !=
                   std::string::npos,
               line);
        line = line_with(engine, "pp_recv_forward", "under way");
        EXPECT(line.find("recv of 5 fp32 from rank 0: under way, waits for a message from rank 0") != std::string::npos,
               line);
        line = line_with(engine, "pp_send_backward", "under way");
        EXPECT(
            line.find("send of 5 fp32 to rank 0: under way, waits for rank 0 to take a message") != std::string::npos,
            line);
    }
    transport.barrier();
    if (rank == 0) post();
    for (const Stream stream : program::kStreams) {
        while (!engine.wait(stream, engine.posted(stream), std::chrono::milliseconds(1))) {
        }
    }
    EXPECT(engine.describe_pending().empty(), engine.describe_pending());
    EXPECT(data == std::vector<float>(1000, 0.0F) && sums == data && message_in == message_out, "results");
}

}  // namespace orrery::exec
