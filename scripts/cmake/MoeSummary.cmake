# One summary of what the build has, printed at the end of configure.
message(STATUS
  "moekit ${PROJECT_VERSION}, ${CMAKE_BUILD_TYPE}, "
  "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}")
foreach(backend CUDA NCCL MPI)
  if(MOE_HAVE_${backend})
    message(STATUS "  ${backend}: found")
  else()
    message(STATUS "  ${backend}: no (${MOE_WHY_NOT_${backend}})")
  endif()
endforeach()
