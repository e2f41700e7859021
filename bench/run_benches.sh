#!/usr/bin/env bash
# The benchmarks of a package that tools/gpu_package.sh made, on a machine with a GPU: calibrates it, then a residency
# sweep of a model. Result files (shape: bench/README.md) go to --out DIR, tables to standard output.
set -u

usage() {
  cat <<'TEXT'
Usage: run_benches.sh MODEL --out DIR [options]

  --out DIR          where result files go: calibration.json, residency.json, prefill.json
  --residency LIST   percent of the experts in GPU slots (100,75,50,25)
  --tg LIST          generated tokens of a case (128)
  --depth LIST       tokens already in the context (0)
  --pp LIST          prompt lengths, at the same residencies; 0: none (512)
  --reps N           repetitions (5)
  --bin DIR          folder with the bellhop program (bin/ beside this script)
  --parts LIST       nothing but the GPU's time for each part of a step of one row, everything resident, of each of these
                     bellhop programs (comma-separated), twice in turn
TEXT
}

model="" out="" residency=100,75,50,25 tg=128 depth=0 pp=512 reps=5 parts="" bin="$(cd "$(dirname "$0")" && pwd)/bin"
while [ $# -gt 0 ]; do
  case "$1" in
    -h|--help) usage; exit 0 ;;
    -*) ;;
    *) model=$1; shift; continue ;;
  esac
  if [ $# -lt 2 ]; then echo "run_benches.sh: $1 is no option, or its value is missing (--help)" >&2; exit 2; fi
  case "$1" in
    --out) out=$2 ;;
    --residency) residency=$2 ;;
    --tg) tg=$2 ;;
    --depth) depth=$2 ;;
    --pp) pp=$2 ;;
    --reps) reps=$2 ;;
    --bin) bin=$2 ;;
    --parts) parts=$2 ;;
    *) echo "run_benches.sh: unknown option $1 (--help)" >&2; exit 2 ;;
  esac
  shift 2
done
if [ -z "$model" ] || [ -z "$out" ]; then usage >&2; exit 2; fi
if [ ! -x "$bin/bellhop" ]; then echo "run_benches.sh: no program $bin/bellhop (--bin DIR)" >&2; exit 2; fi
mkdir -p "$out" || exit 1

failed=()
if [ -n "$parts" ]; then
  for turn in 1 2; do
    for program in ${parts//,/ }; do
      log="$out/parts_$(basename "$(dirname "$program")")_$turn.log"
      "$program" bench "$model" --device cuda --residency 100 --depth 0 --pp 0 --tg 64 --reps 3 --timers >"$log" 2>&1 ||
        failed+=("$program")
      echo "$program, turn $turn"
      grep "us of a step of one row" "$log" | sed 's/^/    /'
      tail -n 4 "$log" | sed 's/^/    /'
    done
  done
  if [ ${#failed[@]} -gt 0 ]; then echo "FAILED: ${failed[*]} (output in $out)"; exit 1; fi
  exit 0
fi
"$bin/bellhop" doctor --calibrate --calibration "$out/calibration.json" || failed+=(calibration)
rates=()
[ ! -s "$out/calibration.json" ] || rates=(--calibration "$out/calibration.json")
common=("$model" --device cuda --residency "$residency" --depth "$depth" --reps "$reps" "${rates[@]}")
"$bin/bellhop" bench "${common[@]}" --pp 0 --tg "$tg" --out "$out/residency.json" || failed+=(residency)
# Apart, because timers make steps longer: how long the GPU waits for the CPU.
"$bin/bellhop" bench "${common[@]}" --pp 0 --tg "$tg" --timers --out "$out/residency_timers.json" ||
  failed+=(residency_timers)
if [ "$pp" != 0 ]; then
  "$bin/bellhop" bench "${common[@]}" --pp "$pp" --tg 0 --out "$out/prefill.json" || failed+=(prefill)
fi
if [ ${#failed[@]} -gt 0 ]; then echo "FAILED: ${failed[*]}"; exit 1; fi
echo "results in $out"
