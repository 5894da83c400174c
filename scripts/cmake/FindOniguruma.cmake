# Oniguruma, the regular expressions of tokenizers: target Oniguruma::Oniguruma.
find_path(Oniguruma_INCLUDE_DIR oniguruma.h)
find_library(Oniguruma_LIBRARY NAMES onig)
if(Oniguruma_INCLUDE_DIR AND EXISTS "${Oniguruma_INCLUDE_DIR}/oniguruma.h")
  file(STRINGS "${Oniguruma_INCLUDE_DIR}/oniguruma.h" Oniguruma_VERSION_LINES
    REGEX "#define ONIGURUMA_VERSION_(MAJOR|MINOR|TEENY) +[0-9]+")
  string(REGEX REPLACE "[^0-9]+([0-9]+)[^0-9]+([0-9]+)[^0-9]+([0-9]+)" "\\1.\\2.\\3"
    Oniguruma_VERSION "${Oniguruma_VERSION_LINES}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Oniguruma
  REQUIRED_VARS Oniguruma_LIBRARY Oniguruma_INCLUDE_DIR
  VERSION_VAR Oniguruma_VERSION
  REASON_FAILURE_MESSAGE "install libonig-dev (Debian, Ubuntu) or oniguruma-devel (Fedora)")
if(Oniguruma_FOUND AND NOT TARGET Oniguruma::Oniguruma)
  add_library(Oniguruma::Oniguruma UNKNOWN IMPORTED)
  set_target_properties(Oniguruma::Oniguruma PROPERTIES
    IMPORTED_LOCATION "${Oniguruma_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${Oniguruma_INCLUDE_DIR}")
endif()
mark_as_advanced(Oniguruma_INCLUDE_DIR Oniguruma_LIBRARY)
