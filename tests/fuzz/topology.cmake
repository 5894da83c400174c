foreach(name topo_matrix nccl_topology hwloc_xml nccl_graph p2p_matrix collective_points time_laws
             a2a_results nccl_variables)
  moe_add_fuzzer(fuzz_${name} SOURCES fuzz_${name}.cpp DEPS moe::topology moe::json)
  foreach(target fuzz_${name} fuzz_${name}_replay)
    if(TARGET ${target})
      target_compile_definitions(${target} PRIVATE MOE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
    endif()
  endforeach()
endforeach()
