// The all-to-all of the mpi backend against a bare MPI_Alltoall on the same buffers, interleaved
// iteration by iteration so that a disturbance meets both:
//
//   mpirun -np N bench_mpi_alltoall
//
// Prints for each size both medians of the slowest rank's time and their ratio.

#include <algorithm>
#include <cstdio>
#include <vector>

#include <mpi.h>

#include "lib/base/clock.hpp"
#include "lib/comm/backend.hpp"
#include "lib/comm/exchange_buffers.hpp"
#include "lib/stats/distribution.hpp"

namespace moe::comm {
namespace {

// Medians over iterations of the slowest rank's time.
double slowest_median(const std::vector<double>& mine) {
  std::vector<double> worst(mine.size());
  MPI_Allreduce(mine.data(), worst.data(), static_cast<int>(mine.size()), MPI_DOUBLE, MPI_MAX,
                MPI_COMM_WORLD);
  return stats::median(worst);
}

void compare(Communicator& communicator, std::int64_t bytes) {
  const SteadyClock clock;
  const TrafficMatrix traffic = uniform_traffic(communicator.num_ranks(), bytes);
  ExchangeBuffers buffers(communicator, traffic, 1);
  const auto part = static_cast<int>(traffic.at(0, 0));
  const std::size_t iterations = bytes > (1 << 20) ? 60 : 400;
  std::vector<double> ours_s;
  std::vector<double> bare_s;
  for (std::size_t i = 0; i < iterations + 10; ++i) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin_s = clock.now_s();
    communicator.all_to_all(buffers.exchange());
    const double middle_s = clock.now_s();
    MPI_Barrier(MPI_COMM_WORLD);
    const double second_s = clock.now_s();
    MPI_Alltoall(buffers.exchange().send, part, MPI_BYTE, buffers.exchange().recv, part, MPI_BYTE,
                 MPI_COMM_WORLD);
    const double end_s = clock.now_s();
    if (i < 10) continue;
    ours_s.push_back(middle_s - begin_s);
    bare_s.push_back(end_s - second_s);
  }
  const double ours = slowest_median(ours_s);
  const double bare = slowest_median(bare_s);
  if (communicator.rank() != 0) return;
  std::printf("%10lld bytes  moe %10.2f us  MPI_Alltoall %10.2f us  ratio %5.2f\n",
              static_cast<long long>(traffic.max_sent()), ours * 1e6, bare * 1e6, ours / bare);
}

}  // namespace
}  // namespace moe::comm

int main() {
  const std::unique_ptr<moe::comm::Job> job = moe::comm::open_mpi_job({});
  job->run([](moe::comm::Communicator& communicator) {
    for (std::int64_t bytes = 1024; bytes <= (std::int64_t{16} << 20); bytes *= 4) {
      moe::comm::compare(communicator, bytes);
    }
  });
  return job->agree_exit_code(0);
}
