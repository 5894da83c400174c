#!/usr/bin/env bash
# Installs what is missing, builds, runs all tests.
#
#   scripts/test.sh              release build, its tests, and the README's run
#   scripts/test.sh --sanitize   in addition the fuzzers' corpora, each header compiled alone, the
#                                tests of input readers, kernels and engine with AddressSanitizer +
#                                UBSan, and those of what has threads with ThreadSanitizer: what
#                                continuous integration runs
#   scripts/test.sh --full       in addition the benchmarks, every test with AddressSanitizer,
#                                AVX-512 on an emulated processor, instruction counts, clang-tidy
#                                over everything and 20 s of each fuzzer
#
# MOE_TEST_MODE=default|sanitize|full is the same from the environment. Ends with one line per
# step, before them the tests that failed, even once, with the end of their output; exit status 1
# when any step failed. What cannot run here is skipped with its reason.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

mode=${MOE_TEST_MODE:-default}
for argument in "$@"; do
  case "$argument" in
    --sanitize) mode=sanitize ;;
    --full) mode=full ;;
    *) echo "usage: scripts/test.sh [--sanitize|--full]" >&2; exit 2 ;;
  esac
done

summary=()
test_results=()
failed=0

# step NAME COMMAND...: runs it, notes result and time. Exit status 77 means skipped.
step() {
  local name=$1 begin=$SECONDS status=0 result
  shift
  say "$name"
  "$@" || status=$?
  case "$status" in
    0) result=passed ;;
    77) result=skipped ;;
    *) result="FAILED ($status)"; failed=1 ;;
  esac
  summary+=("$(printf '%-44s %-12s %4d s' "$name" "$result" $((SECONDS - begin)))")
  return "$status"
}

# One test more than there are processors: many wait for a timer or a peer. What fails is run once
# more, alone: on a busy machine a test that measures time may fail for its neighbours. The summary
# tells the first failure too.
run_ctest() {
  local preset=$1 results=$PWD/build/$1/test-results
  shift
  rm -f "$results.xml" "$results-alone.xml"
  test_results+=("$results.xml" "$results-alone.xml")
  local run=(setarch_for "$preset" ctest --test-dir "build/$preset" --output-on-failure
    --no-tests=error)
  "${run[@]}" --output-junit "$results.xml" --parallel "$(($(nproc) + 1))" "$@" && return
  say "once more, alone: what failed"
  "${run[@]}" --output-junit "$results-alone.xml" --rerun-failed
}

# ThreadSanitizer of GCC 12 ends with "unexpected memory mapping" where the kernel randomises
# addresses with more bits than it knows (vm.mmap_rnd_bits above 28).
setarch_for() {
  local preset=$1
  shift
  if [ "$preset" = tsan ] && setarch -R true 2>/dev/null; then
    setarch -R "$@"
  else
    "$@"
  fi
}

# ctest of a build that has some of the tests: what was not built is left out.
run_built() {
  run_ctest "$1" --label-exclude 'house|slow|cli' --exclude-regex "_NOT_BUILT|$2"
}

# Names of the fuzzers whose replay was built, joined by |.
built_fuzzers() {
  local replay names=()
  for replay in "build/$1/tests-bin/"fuzz_*_replay; do
    names+=("$(basename "${replay%_replay}")")
  done
  (IFS='|'; echo "${names[*]}")
}

# Readers of hostile input and pointer arithmetic; with --full every test.
address_sanitizer() {
  configure asan || return
  if [ "$mode" = full ]; then
    build asan && run_ctest asan --label-exclude 'house|slow'
  else
    build asan moe_memory_tests && run_built asan '^fuzz_replay' &&
      run_ctest asan --tests-regex "^fuzz_replay[.]($(built_fuzzers asan))\$"
  fi
}

# What starts threads; the rest would prove nothing.
thread_sanitizer() {
  configure tsan && build tsan moe_threaded_tests && run_built tsan '^fuzz_replay|^kernels_forced'
}

release() {
  local benchmarks=OFF more=ON
  [ "$mode" = full ] && benchmarks=ON
  [ "$mode" = default ] && more=OFF
  configure release -DMOE_BUILD_TESTS=ON -DMOE_BUILD_BENCHMARKS="$benchmarks" \
    -DMOE_BUILD_FUZZ_REPLAYS="$more" -DMOE_CHECK_HEADERS="$more" && build release
}

# The README's first command; one point of its sweep where the whole is not asked for.
readme_run() {
  local one_point=()
  [ "$mode" = default ] && one_point=(--batch 1 --prompt-tokens 128 --output-tokens 32)
  scripts/run.sh --quiet "${one_point[@]}"
}

step "packages" install_packages build test optional || true
if step "build release" release; then
  step "ctest release" run_ctest release || true
  step "scripts/run.sh" readme_run || true
fi
if [ "$mode" != default ]; then
  step "asan + ubsan: build, ctest" address_sanitizer || true
  step "tsan: build, ctest of what has threads" thread_sanitizer || true
fi
if [ "$mode" = full ]; then
  step "AVX-512 kernels, emulated processor" scripts/test_emulated.sh || true
  step "instruction counts" \
    scripts/callgrind.py build/release/bench-bin/callgrind_driver || true
  step "clang-tidy" scripts/tidy.sh --all || true
  step "fuzzers" scripts/fuzz.sh || true
fi

[ "${#test_results[@]}" -eq 0 ] ||
  scripts/failed_tests.py "${test_results[@]}" >&2 || true
say "summary ($mode, $SECONDS s)"
printf '%s\n' "${summary[@]}" >&2
exit "$failed"
