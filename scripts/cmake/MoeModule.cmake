# Warnings, sanitizers and the one way to define a module, a tool, a test, a benchmark, a fuzzer.

add_library(moe_warnings INTERFACE)
target_compile_options(moe_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wold-style-cast
  -Wnon-virtual-dtor -Woverloaded-virtual -Wcast-align -Wdouble-promotion -Wformat=2
  $<$<CXX_COMPILER_ID:GNU>:-Wduplicated-cond -Wlogical-op -Wnull-dereference>
  $<$<BOOL:${MOE_WARNINGS_AS_ERRORS}>:-Werror>
  # A source that is included by a united one is no header: nobody else sees its unnamed namespace.
  $<$<AND:$<BOOL:${MOE_UNITY}>,$<CXX_COMPILER_ID:GNU>>:-Wno-subobject-linkage>
  # GCC forgets that what it read from a precompiled header is a system header, and its flow
  # analysis then blames the standard library for ours. The plain build keeps these warnings.
  $<$<AND:$<BOOL:${MOE_PRECOMPILE}>,$<CXX_COMPILER_ID:GNU>>:-Wno-array-bounds -Wno-restrict
    -Wno-stringop-overflow -Wno-stringop-overread -Wno-null-dereference -Wno-maybe-uninitialized
    -Wno-free-nonheap-object -Wno-dangling-pointer>)

# Linked after moe_warnings. The flow analysis of -O1 calls null what has just been tested.
add_library(moe_runs_once INTERFACE)
target_compile_options(moe_runs_once INTERFACE
  $<$<CONFIG:Release>:-O1 $<$<CXX_COMPILER_ID:GNU>:-Wno-null-dereference>>)

add_library(moe_build INTERFACE)
if(MOE_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # The compiler looks for garbage from half a gigabyte on: an eighth less time for a united source.
  target_compile_options(moe_build INTERFACE
    --param=ggc-min-heapsize=524288 --param=ggc-min-expand=100)
endif()
target_compile_features(moe_build INTERFACE cxx_std_20)
target_include_directories(moe_build INTERFACE "${PROJECT_SOURCE_DIR}")
if(MOE_SANITIZER)
  target_compile_options(moe_build INTERFACE
    -fsanitize=${MOE_SANITIZER} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(moe_build INTERFACE -fsanitize=${MOE_SANITIZER})
endif()

# Tests are compiled once and run for milliseconds; what they test keeps its own flags.
set(moe_test_flags $<$<CONFIG:Release>:-O0>)

# With MOE_PRECOMPILE, the headers that are slow to parse are parsed once. Modules must build
# without it too: the plain build and the header test find a forgotten include.
function(moe_precompile_for target holder)
  if(NOT MOE_PRECOMPILE)
    return()
  endif()
  if(NOT TARGET ${holder})
    file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/${holder}.cpp" CONTENT "")
    add_library(${holder} OBJECT "${PROJECT_BINARY_DIR}/${holder}.cpp")
    target_link_libraries(${holder} PRIVATE moe_build moe_warnings fmt::fmt
      nlohmann_json::nlohmann_json Threads::Threads)
    target_precompile_headers(${holder} PRIVATE <nlohmann/json.hpp> <fmt/format.h> <algorithm>
      <filesystem> <functional> <map> <memory> <optional> <span> <string> <vector>)
    if(holder STREQUAL "moe_precompiled_tests")
      target_link_libraries(${holder} PRIVATE GTest::gmock GTest::gtest)
      target_precompile_headers(${holder} PRIVATE <gtest/gtest.h> <gmock/gmock.h>)
      target_compile_options(${holder} PRIVATE ${moe_test_flags})
    endif()
  endif()
  # The same definitions as in the holder, or the compiler does not accept the precompiled header.
  target_link_libraries(${target} PRIVATE fmt::fmt)
  target_precompile_headers(${target} REUSE_FROM ${holder})
endfunction()

# With MOE_UNITY, the sources of a target are compiled several at a time: what they share, and the
# templates that they all instantiate, is then compiled once for all of them. So two sources of a
# module do not define the same name in their anonymous namespaces.
function(moe_unite_sources target)
  if(MOE_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 10)
  endif()
endfunction()

# moe_add_module(<name> [RUNS_ONCE] SOURCES <file>... [DEPS <target>...] [PRIVATE_DEPS <target>...])
# A static library moe_<name> with the alias moe::<name>. RUNS_ONCE: it has no loop over much data,
# so it is compiled in little more than half the time without anybody noticing.
function(moe_add_module name)
  cmake_parse_arguments(ARG "RUNS_ONCE" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(moe_${name} STATIC ${ARG_SOURCES})
  add_library(moe::${name} ALIAS moe_${name})
  target_link_libraries(moe_${name}
    PUBLIC moe_build ${ARG_DEPS}
    PRIVATE moe_warnings ${ARG_PRIVATE_DEPS})
  if(ARG_RUNS_ONCE)
    target_link_libraries(moe_${name} PRIVATE moe_runs_once)
  endif()
  moe_precompile_for(moe_${name} moe_precompiled)
  moe_unite_sources(moe_${name})
endfunction()

# moe_add_tool(moe-<tool>): one executable from main.cpp that links moe::app_<tool>, nothing else.
function(moe_add_tool name)
  string(REPLACE "moe-" "app_" library ${name})
  add_executable(${name} main.cpp)
  target_link_libraries(${name} PRIVATE moe::${library} moe_warnings)
  install(TARGETS ${name} RUNTIME DESTINATION bin)
endfunction()

# moe_add_test(<name> [COMPUTES] SOURCES <file>... DEPS <target>... [LABELS <label>...]
#              [ALONE <regex>])
# One GoogleTest binary; MOE_SOURCE_DIR and MOE_BINARY_DIR are defined for test data and tools.
# COMPUTES: the test itself works on much data and is optimised. What runs a tool (label cli) takes
# longest and is begun first, so that ctest does not end with one processor idle. ALONE: tests of
# such names run beside no other.
function(moe_add_test name)
  if(NOT MOE_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "COMPUTES" "ALONE" "SOURCES;DEPS;LABELS" ${ARGN})
  if(NOT ARG_ALONE)
    set(ARG_ALONE "^$")
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} moe_warnings GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE
    MOE_SOURCE_DIR="${PROJECT_SOURCE_DIR}" MOE_BINARY_DIR="${CMAKE_BINARY_DIR}")
  if(ARG_COMPUTES)
    target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
    moe_precompile_for(${name} moe_precompiled)
  else()
    target_compile_options(${name} PRIVATE ${moe_test_flags})
    moe_precompile_for(${name} moe_precompiled_tests)
  endif()
  moe_unite_sources(${name})
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests-bin")
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST PROPERTIES TIMEOUT 300)
  set(cost 0)
  if("cli" IN_LIST ARG_LABELS)
    set(cost 10)
  endif()
  # A list does not survive the PROPERTIES argument: the labels are set where ctest reads the tests.
  set(labels_file "${CMAKE_CURRENT_BINARY_DIR}/${name}_labels.cmake")
  file(CONFIGURE OUTPUT "${labels_file}" @ONLY CONTENT
"foreach(test IN LISTS ${name}_TESTS)
  set_tests_properties(\"\${test}\" PROPERTIES LABELS \"${ARG_LABELS}\" COST ${cost})
  if(test MATCHES \"${ARG_ALONE}\")
    set_tests_properties(\"\${test}\" PROPERTIES RUN_SERIAL TRUE)
  endif()
endforeach()
")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${labels_file}")
endfunction()

# moe_add_benchmark(<name> SOURCES <file>... DEPS <target>...)
function(moe_add_benchmark name)
  if(NOT MOE_BUILD_BENCHMARKS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} moe_warnings benchmark::benchmark_main)
  moe_precompile_for(${name} moe_precompiled)
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bench-bin")
endfunction()

# moe_add_fuzzer(<name> SOURCES <file>... DEPS <target>...)
# With MOE_BUILD_FUZZERS (clang): a libFuzzer binary. Otherwise a replay binary that feeds every
# file of tests/fuzz/corpus/<name> and tests/fuzz/regressions/<name> to the same function, as a unit
# test.
function(moe_add_fuzzer name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  if(MOE_BUILD_FUZZERS)
    add_executable(${name} ${ARG_SOURCES})
    target_link_libraries(${name} PRIVATE ${ARG_DEPS})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    set_target_properties(${name} PROPERTIES
      RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/fuzz-bin")
  elseif(MOE_BUILD_TESTS AND MOE_BUILD_FUZZ_REPLAYS)
    if(NOT TARGET moe_fuzz_replay)
      add_library(moe_fuzz_replay STATIC "${PROJECT_SOURCE_DIR}/tests/fuzz/replay_main.cpp")
      target_link_libraries(moe_fuzz_replay PRIVATE moe_build moe_warnings)
    endif()
    add_executable(${name}_replay ${ARG_SOURCES})
    target_link_libraries(${name}_replay PRIVATE ${ARG_DEPS} moe_fuzz_replay moe_warnings)
    moe_precompile_for(${name}_replay moe_precompiled)
    set_target_properties(${name}_replay PROPERTIES
      RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests-bin")
    add_test(NAME fuzz_replay.${name}
      COMMAND ${name}_replay "${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${name}"
                             "${PROJECT_SOURCE_DIR}/tests/fuzz/regressions/${name}")
    set_tests_properties(fuzz_replay.${name} PROPERTIES LABELS unit TIMEOUT 300)
  endif()
endfunction()
