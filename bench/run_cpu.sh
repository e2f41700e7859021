#!/usr/bin/env bash
# The CPU benchmarks of a release on a bare machine: needs bash, coreutils and the folder with the static binaries.
# Writes one result file per question into --out DIR (shape: bench/README.md) and prints short tables last.
set -u

usage() {
  cat <<'TEXT'
Usage: run_cpu.sh --bin DIR --out DIR [options]

  --bin DIR       folder with the bellhop program
  --out DIR       where result files go
  --model FILE    GGUF model for the whole-model benchmark; without it that part is left out
  --budget S      seconds for everything (900); what does not fit is cut short or left out, and said
  --threads N     threads of the runs that do not sweep them (0: one per physical core)
  --rotate SIZE   weights of different calls do not repeat within SIZE (2GiB)
  --formats LIST  weight formats of the sweeps (all)
  --quick         few repetitions of a tiny layer, to try the script itself
TEXT
}

bin="" out="" model="" budget=900 threads=0 rotate=2GiB formats=all reps=15 latency_reps=300
prompt_rows=64,256 prefill_rows=512 model_tests=(--pp 512 --tg 128 --reps 5)
layer=() wide_layer=(--inter 768) latency_layer=(--hidden 2048 --inter 768)
while [ $# -gt 0 ]; do
  case "$1" in
    --quick)
      rotate=1MiB reps=2 latency_reps=10 prompt_rows=64 prefill_rows=64 model_tests=(--pp 64 --tg 16 --reps 2)
      layer=(--hidden 256 --inter 256) wide_layer=() latency_layer=(--hidden 256 --inter 256)
      shift
      continue ;;
    -h|--help) usage; exit 0 ;;
  esac
  if [ $# -lt 2 ]; then echo "run_cpu.sh: $1 is no option, or its value is missing (--help)" >&2; exit 2; fi
  case "$1" in
    --bin) bin=$2 ;;
    --out) out=$2 ;;
    --model) model=$2 ;;
    --budget) budget=$2 ;;
    --threads) threads=$2 ;;
    --rotate) rotate=$2 ;;
    --formats) formats=$2 ;;
    *) echo "run_cpu.sh: unknown option $1 (--help)" >&2; exit 2 ;;
  esac
  shift 2
done
case "$budget" in
  ''|*[!0-9]*) echo "run_cpu.sh: --budget '$budget': expects whole seconds" >&2; exit 2 ;;
esac
program=$bin/bellhop
if [ ! -x "$program" ]; then echo "run_cpu.sh: --bin '$bin': no program bellhop there" >&2; exit 2; fi
if [ -z "$out" ]; then echo "run_cpu.sh: --out DIR is missing" >&2; exit 2; fi
mkdir -p "$out" || exit 1

names="cpu_cold_latency cpu_cold_prompt1 cpu_cold_prompt8 cpu_cold_prefill cpu_cold_threads cpu_cold_rows bench"
for name in $names cpu_cold; do rm -f "$out/$name".{json,md,log}; done  # of an earlier run

begin=$SECONDS
failed=0
summary=()

# run NAME LIMIT ARGUMENTS...: one call of the program within LIMIT seconds and the budget. Its table goes to
# NAME.md; an interrupted benchmark still writes what it has.
run() {
  local name=$1 limit=$2 left=$((budget - (SECONDS - begin) - 10)) start=$SECONDS code
  shift 2
  if [ "$left" -lt 5 ]; then
    summary+=("$name: left out, the budget of $budget s is spent")
    return
  fi
  [ "$limit" -gt "$left" ] && limit=$left
  timeout --signal=INT --kill-after=30 "$limit" "$program" "$@" >"$out/$name.md" 2>"$out/$name.log"
  code=$?
  if [ $code -eq 124 ]; then
    summary+=("$name: cut short after $limit s")
  elif [ $code -ne 0 ]; then
    failed=1
    summary+=("$name: failed with exit code $code: $(tail -n 1 "$out/$name.log")")
  else
    summary+=("$name: $((SECONDS - start)) s")
  fi
}

opbench() {  # opbench NAME LIMIT ARGUMENTS...
  local name=$1 limit=$2
  shift 2
  run "$name" "$limit" opbench --device cpu --rotate "$rotate" --out "$out/$name.json" "$@"
}

has() {  # has BUNDLE: this CPU runs its kernels
  "$program" opbench --isa "$1" --format q8_0 --hidden 32 --inter 32 --active 1 --rows 1 --rotate 4KiB --reps 1 -q \
    >/dev/null 2>&1
}

# 1, 2, 4, ... below the number of cores, and the chosen one.
thread_list=$threads
for ((t = 1; t < $(nproc); t *= 2)); do thread_list+=",$t"; done

bundles=auto
has avx512 && bundles=auto,avx2
prompt_bundles=auto
has amx && prompt_bundles=amx,avx512

"$program" doctor --json >"$out/doctor.json" 2>"$out/doctor.log" || failed=1

# One call of 8 experts at 1 row, and what 8 rows cost beside it.
opbench cpu_cold_rows $((budget / 4)) "${layer[@]}" --format "$formats" --isa "$bundles" --rows 1,8 \
  --reps "$reps" -t "$threads"
# The share of the bandwidth at every thread count; 768 is whole blocks of all five formats.
opbench cpu_cold_threads $((budget / 8)) "${layer[@]}" "${wide_layer[@]}" \
  --format int4_b32,q4_0,q4_k,q8_0,mxfp4 --isa auto --rows 1 --reps "$reps" -t "$thread_list"
# From call to result: two experts of the Qwen3-30B-A3B shape.
opbench cpu_cold_latency $((budget / 10)) "${latency_layer[@]}" --format int4_b32 --isa auto --active 2 --rows 1 \
  --reps "$latency_reps" -t "$threads"
# Experts with many rows: one of a call, and a layer of eight.
opbench cpu_cold_prompt1 $((budget / 10)) "${layer[@]}" --format int4_b32 --isa "$prompt_bundles" --active 1 \
  --rows "$prompt_rows" --reps "$((reps * 4))" -t "$threads"
opbench cpu_cold_prompt8 $((budget / 10)) "${layer[@]}" --format int4_b32,q4_0 --isa "$prompt_bundles" \
  --rows "$prompt_rows" --reps "$reps" -t "$threads"
# A layer in the prefill of 512 tokens: 128 experts, 8 of a row.
opbench cpu_cold_prefill $((budget / 10)) "${latency_layer[@]}" --format int4_b32,q4_0 --isa "$prompt_bundles" \
  --active 128 --topk 8 --rows "$prefill_rows" --reps "$reps" -t "$threads"
if [ -n "$model" ]; then
  run bench $((budget / 3)) bench "$model" "${model_tests[@]}" -t "$threads" --out "$out/bench.json"
fi
# Everything else: every format, bundle and number of rows.
opbench cpu_cold "$budget" "${layer[@]}" --format "$formats" --isa all --reps "$reps" -t "$threads"

# One line per format and bundle from the table of cpu_cold_rows: time and share at 1 row, and the cost of 8 rows.
print_rows() {
  local line format isa threads rows class us p90 gbps share rest one=""
  printf '%-16s %-10s %10s %8s %12s\n' format isa "us, 1 row" "share" "8 rows cost"
  while IFS='|' read -r line format isa threads rows class us p90 gbps share rest; do
    format=${format// /} isa=${isa// /} rows=${rows// /} us=${us// /} share=${share// /}
    case "$rows" in
      1) one=${us/./}; printf -v line '%-16s %-10s %10s %8s' "$format" "$isa" "$us" "$share"; echo -n "$line" ;;
      8) us=${us/./} us=$((10#$us * 100 / (10#$one > 0 ? 10#$one : 1)))
         printf ' %8d.%02d x\n' $((us / 100)) $((us % 100)) ;;
    esac
  done
}

for name in $names; do
  [ -s "$out/$name.md" ] || continue
  echo
  echo "## $name"
  if [ $name = cpu_cold_rows ]; then
    print_rows <"$out/$name.md"
    grep '^read bandwidth' "$out/$name.md"
  else
    cat "$out/$name.md"
  fi
done
echo
printf '%s\n' "${summary[@]}"
echo "$((SECONDS - begin)) s of $budget s; results are in $out"
exit $failed
