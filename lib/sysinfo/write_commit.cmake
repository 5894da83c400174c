# cmake -DSOURCE_DIR=<dir> -DOUTPUT=<header> -P write_commit.cmake
# Writes the commit of the sources, empty without git or a checkout; leaves an equal file untouched.
set(commit "")
find_program(git git)
if(git AND EXISTS "${SOURCE_DIR}/.git")
  execute_process(COMMAND "${git}" -C "${SOURCE_DIR}" describe --always --dirty --exclude=*
    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
  if(NOT status EQUAL 0 OR NOT commit MATCHES "^[0-9a-f]+(-dirty)?$")
    set(commit "")
  endif()
endif()
set(text "#pragma once

namespace moe::sysinfo::build_config {

inline constexpr const char* kCommit = \"${commit}\";

}  // namespace moe::sysinfo::build_config
")
set(old "")
if(EXISTS "${OUTPUT}")
  file(READ "${OUTPUT}" old)
endif()
if(NOT text STREQUAL old)
  file(WRITE "${OUTPUT}" "${text}")
endif()
