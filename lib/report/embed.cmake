# cmake -DINPUT=<file or empty> -DOUTPUT=<file.cpp> -DFUNCTION=<name> -P embed.cmake
# Writes a source that defines moe::report::embedded::<name>(): a file's text, empty without one.
set(text "")
if(INPUT)
  file(READ "${INPUT}" text)
endif()
file(WRITE "${OUTPUT}" "#include \"lib/report/embedded.hpp\"

namespace moe::report::embedded {

std::string_view ${FUNCTION}() {
  return R\"moe_embed(${text})moe_embed\";
}

}  // namespace moe::report::embedded
")
