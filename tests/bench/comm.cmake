moe_add_benchmark(bench_comm SOURCES bench_comm.cpp DEPS moe::comm)
if(MOE_HAVE_MPI)
  moe_add_benchmark(bench_mpi_alltoall SOURCES bench_mpi_alltoall.cpp
    DEPS moe::comm moe::stats MPI::MPI_CXX)
endif()
