#!/usr/bin/env bash
# Runs the tests of a package that tools/gpu_package.sh made, on a machine with a GPU: a line for each program, the
# summary last. Exit code 1 when one failed or skipped anything, and when there is no GPU.
set -u

usage() {
  cat <<'TEXT'
Usage: run_tests.sh --out DIR [options]

  --out DIR     where the programs' output goes
  --sanitizer   also the kernels' tests under compute-sanitizer's memcheck and racecheck, where it is on PATH
  --only NAME   this program alone
TEXT
}

out="" sanitizer=0 only=""
while [ $# -gt 0 ]; do
  case "$1" in
    -h|--help) usage; exit 0 ;;
    --sanitizer) sanitizer=1; shift; continue ;;
  esac
  if [ $# -lt 2 ]; then echo "run_tests.sh: $1 is no option, or its value is missing (--help)" >&2; exit 2; fi
  case "$1" in
    --out) out=$2 ;;
    --only) only=$2 ;;
    *) echo "run_tests.sh: unknown option $1 (--help)" >&2; exit 2 ;;
  esac
  shift 2
done
if [ -z "$out" ]; then echo "run_tests.sh: --out DIR is missing" >&2; exit 2; fi
mkdir -p "$out" || exit 1
out=$(cd "$out" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
bin=$here/bin model=$here/models/tiny-moe-q4_0.gguf
export BH_TEST_ROOT=$here

passed=0 failed=()
# name, command: a line with the outcome; the output goes to a file of that name.
run() {
  local name=$1 begin=$SECONDS rc
  shift
  [ -z "$only" ] || [ "$only" = "$name" ] || return 0
  "$@" >"$out/$name.log" 2>&1
  rc=$?
  local verdict=passed
  if [ $rc -ne 0 ]; then
    verdict="FAILED (exit code $rc)"
  elif grep -q '\[  SKIPPED \]' "$out/$name.log"; then
    verdict="FAILED (tests were skipped)"
  elif grep -q 'Running 0 tests' "$out/$name.log"; then
    verdict="FAILED (no tests ran)"
  fi
  if [ "$verdict" = passed ]; then passed=$((passed + 1)); else failed+=("$name"); fi
  local tests
  tests=$(sed -nE 's/^\[  PASSED  \] ([0-9]+ tests?).*/\1/p' "$out/$name.log" | tail -n 1)
  printf '%-44s %s%s, %d s\n' "$name" "$verdict" "${tests:+, $tests}" $((SECONDS - begin))
  if [ "$verdict" != passed ]; then
    grep -E '^\[  (FAILED|SKIPPED)|Failure|error:' "$out/$name.log" | head -n 20 | sed 's/^/    /'
  fi
}

gpu_present() {
  "$bin/bellhop" doctor --no-measure
  "$bin/bellhop" logits "$model" -p "The sea" --device cuda --top 1
}

run gpu gpu_present
for program in "$bin"/*_test; do
  run "$(basename "$program")" "$program" --gtest_brief=0
done
# Also a prompt of several chunks, cut unevenly.
long_prompt=$(for _ in $(seq 60); do echo "The captain looked at the sea."; done)
for residency in 100 50 0; do
  run "run_${residency}" "$bin/bellhop" run "$model" -p "The captain looked at the sea" --raw --greedy -n 16 \
    --device cuda --gpu-experts "$residency%" --stats --timers
  for lane in cpu pcie; do
    run "prompt_${residency}_${lane}" "$bin/bellhop" run "$model" -p "$long_prompt" --raw --greedy -n 1 \
      --device cuda --gpu-experts "$residency%" --miss-lane $lane -b 100 --stats
  done
done
if command -v python3 >/dev/null; then
  for script in "$here"/tests/gpu/*.py; do
    name=$(basename "$script" .py)
    run "$name" python3 "$script" "$bin/bellhop" "$model" --out "$out/$name.json"
  done
else
  failed+=("tests/gpu/*.py")
  echo "tests/gpu/*.py                               FAILED (python3 is not on PATH)"
fi
if [ $sanitizer -eq 1 ]; then
  if command -v compute-sanitizer >/dev/null; then
    for program in "$bin"/*_gpu_test "$bin/decode_cuda_test" "$bin/cuda_test"; do
      for tool in memcheck racecheck; do
        run "${tool}_$(basename "$program")" compute-sanitizer --tool $tool --error-exitcode 9 "$program"
      done
    done
  else
    echo "compute-sanitizer is not on PATH: left out"
  fi
fi

echo
if [ ${#failed[@]} -gt 0 ]; then
  echo "FAILED: ${failed[*]} ($passed passed; output in $out)"
  exit 1
fi
echo "all $passed passed"
