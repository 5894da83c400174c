# Everything around NCCL that needs neither a GPU nor the library.
set(nccl_test_sources
  fake_nccl.cpp
  launcher_test.cpp
  nccl_backend_test.cpp
  second_pass_test.cpp
  tcp_message_test.cpp
  tcp_store_test.cpp)
set(has_nccl_headers OFF)
if(MOE_NCCL_INCLUDE_DIR AND EXISTS "${MOE_NCCL_INCLUDE_DIR}/cuda_runtime.h")
  set(has_nccl_headers ON)
  list(APPEND nccl_test_sources nccl_abi_test.cpp)
endif()
moe_add_test(comm_nccl_test SOURCES ${nccl_test_sources} DEPS moe::comm)
if(has_nccl_headers AND TARGET comm_nccl_test)
  target_include_directories(comm_nccl_test SYSTEM PRIVATE "${MOE_NCCL_INCLUDE_DIR}")
endif()
