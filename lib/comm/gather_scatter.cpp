// All-gather and reduce-scatter in the place of dispatch and combine (pipeline.hpp).

#include "lib/base/clock.hpp"
#include "lib/comm/figures.hpp"
#include "lib/comm/payload.hpp"
#include "lib/comm/pipeline.hpp"

namespace moe::comm {
namespace {

// Small whole numbers: their sum over ranks is exact in any order.
float addend(int rank, int block, std::int64_t i) {
  return static_cast<float>(rank + 1) * static_cast<float>((i + block) % 7 + 1);
}

float expected_sum(int num_ranks, int block, std::int64_t i) {
  return static_cast<float>(num_ranks) * static_cast<float>(num_ranks + 1) / 2.0F *
         static_cast<float>((i + block) % 7 + 1);
}

struct Buffers {
  Buffer gather_send;
  Buffer gather_recv;
  Buffer scatter_send;
  Buffer scatter_recv;
  std::int64_t gather_bytes = 0;
  std::int64_t count = 0;  // floats of a block
};

Buffers make_buffers(Communicator& communicator, std::int64_t gather_bytes, std::int64_t count,
                     std::uint64_t seed) {
  constexpr auto kFloat = static_cast<std::int64_t>(sizeof(float));
  const std::int64_t ranks = communicator.num_ranks();
  Buffers buffers;
  buffers.gather_bytes = gather_bytes;
  buffers.count = count;
  buffers.gather_send = communicator.allocate(gather_bytes);
  buffers.gather_recv = communicator.allocate(gather_bytes * ranks);
  buffers.scatter_send = communicator.allocate(count * kFloat * ranks);
  buffers.scatter_recv = communicator.allocate(count * kFloat);
  if (!communicator.moves_data()) return buffers;
  std::vector<std::byte> bytes(static_cast<std::size_t>(gather_bytes));
  fill_payload(bytes, seed, {communicator.rank(), 0, 0});
  communicator.copy_in(buffers.gather_send.data, bytes.data(), gather_bytes);
  std::vector<float> block(static_cast<std::size_t>(count));
  for (int b = 0; b < communicator.num_ranks(); ++b) {
    for (std::int64_t i = 0; i < count; ++i) {
      block[static_cast<std::size_t>(i)] = addend(communicator.rank(), b, i);
    }
    communicator.copy_in(buffers.scatter_send.data + b * count * kFloat,
                         reinterpret_cast<const std::byte*>(block.data()), count * kFloat);
  }
  return buffers;
}

std::int64_t count_wrong(Communicator& communicator, const Buffers& buffers, std::uint64_t seed) {
  if (!communicator.moves_data()) return 0;
  std::int64_t num_wrong = 0;
  std::vector<std::byte> bytes(static_cast<std::size_t>(buffers.gather_bytes));
  for (int s = 0; s < communicator.num_ranks(); ++s) {
    communicator.copy_out(bytes.data(), buffers.gather_recv.data + s * buffers.gather_bytes,
                          buffers.gather_bytes);
    const auto fault = check_payload(bytes, seed, {s, 0, 0});
    if (fault) num_wrong += fault->num_wrong_bytes;
  }
  std::vector<float> sums(static_cast<std::size_t>(buffers.count));
  communicator.copy_out(reinterpret_cast<std::byte*>(sums.data()), buffers.scatter_recv.data,
                        buffers.scatter_recv.size_bytes);
  for (std::int64_t i = 0; i < buffers.count; ++i) {
    const float expected = expected_sum(communicator.num_ranks(), communicator.rank(), i);
    num_wrong += sums[static_cast<std::size_t>(i)] != expected ? 1 : 0;
  }
  return num_wrong;
}

}  // namespace

GatherScatterResult measure_gather_scatter(Communicator& communicator, std::int64_t gather_bytes,
                                           std::int64_t scatter_bytes,
                                           const MeasureOptions& options) {
  const SteadyClock clock;
  const std::int64_t count = scatter_bytes / static_cast<std::int64_t>(sizeof(float));
  const Buffers buffers = make_buffers(communicator, gather_bytes, count, options.seed);
  std::vector<double> gather_s;
  std::vector<double> scatter_s;
  const std::int64_t repeats =
      options.num_iterations > 0 ? options.num_iterations : options.min_iterations;
  for (std::int64_t i = 0; i < options.num_warm_up + repeats; ++i) {
    communicator.barrier();
    const double begin_s = clock.now_s();
    communicator.all_gather(buffers.gather_send.data, buffers.gather_recv.data, gather_bytes);
    const double middle_s = clock.now_s();
    communicator.barrier();
    const double second_s = clock.now_s();
    communicator.reduce_scatter_sum(reinterpret_cast<const float*>(buffers.scatter_send.data),
                                    reinterpret_cast<float*>(buffers.scatter_recv.data), count);
    const double end_s = clock.now_s();
    if (i < options.num_warm_up) continue;
    gather_s.push_back(middle_s - begin_s);
    scatter_s.push_back(end_s - second_s);
  }
  GatherScatterResult result;
  result.gather_bytes = gather_bytes;
  result.scatter_bytes = count * static_cast<std::int64_t>(sizeof(float));
  result.gather_s = slowest(communicator, gather_s);
  result.scatter_s = slowest(communicator, scatter_s);
  const std::vector<std::int64_t> mine{count_wrong(communicator, buffers, options.seed)};
  for (const std::string& text : communicator.exchange_texts(to_text(mine))) {
    result.num_wrong += from_text<std::int64_t>(text).at(0);
  }
  return result;
}

}  // namespace moe::comm
