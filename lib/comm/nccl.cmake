# Launchers, the TCP store and NCCL. The libraries are opened at run time: nothing to find here.
list(APPEND comm_sources
  launcher.cpp
  nccl_communicator.cpp
  nccl_job.cpp
  nccl_load.cpp
  second_pass.cpp
  tcp_message.cpp
  tcp_store.cpp)
