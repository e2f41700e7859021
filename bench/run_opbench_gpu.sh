#!/usr/bin/env bash
# Layers of experts on a GPU: `bellhop opbench --device cuda` for the shapes, formats and placements that bars are set
# for, in about three minutes on an H200. Result files (shape: bench/README.md) go to --out DIR, tables to standard
# output.
set -u

usage() {
  cat <<'TEXT'
Usage: run_opbench_gpu.sh --out DIR [options]

  --out DIR     where result files and the tables (.md) go
  --only LIST   of these parts: bars, misses, gguf, one_row (all, in this order)
  --limit N     seconds that a part may take (90)
  --bin DIR     folder with the bellhop program (bin/ beside this script)
TEXT
}

out="" only=bars,misses,gguf,one_row limit=90 bin="$(cd "$(dirname "$0")" && pwd)/bin"
while [ $# -gt 0 ]; do
  case "$1" in -h|--help) usage; exit 0 ;; esac
  if [ $# -lt 2 ]; then echo "run_opbench_gpu.sh: $1 is no option, or its value is missing (--help)" >&2; exit 2; fi
  case "$1" in
    --out) out=$2 ;;
    --only) only=$2 ;;
    --limit) limit=$2 ;;
    --bin) bin=$2 ;;
    *) echo "run_opbench_gpu.sh: unknown option $1 (--help)" >&2; exit 2 ;;
  esac
  shift 2
done
if [ -z "$out" ]; then usage >&2; exit 2; fi
if [ ! -x "$bin/bellhop" ]; then echo "run_opbench_gpu.sh: no program $bin/bellhop (--bin DIR)" >&2; exit 2; fi
mkdir -p "$out" || exit 1

failed=()
part() {  # part NAME ARGUMENTS...
  local name=$1
  shift
  case ",$only," in *",$name,"*) ;; *) return ;; esac
  local start=$SECONDS
  # Interrupted, it still writes the cases that are complete.
  timeout --signal=INT --kill-after=10 "$limit" \
    "$bin/bellhop" opbench --device cuda "$@" --out "$out/opbench_$name.json" >"$out/opbench_$name.md" \
    2>"$out/opbench_$name.log" || failed+=("$name")
  echo "== $name: $((SECONDS - start)) s"
  cat "$out/opbench_$name.md"
  tail -n 5 "$out/opbench_$name.log"
}

wide=(--hidden 2560 --inter 640 --experts 512 --topk 10 --format int4_b32,int3_b64)
small=(--hidden 2048 --inter 768 --experts 128 --topk 8)
# Everything in slots. More layers than it takes to be out of the caches: what a replay costs by itself is shared.
part bars "${wide[@]}" --mode resident,off_all --layers 8 --rows 1,8,16,32,512,2048,8192
# Fewer repetitions: a prompt's misses take tens of milliseconds a layer.
part misses "${wide[@]}" --mode off_cpu,off_gpu --hit-rate 19,60 --layers 4 --reps 5 --rows 1,8,16,512,2048,8192
part gguf "${small[@]}" --mode resident --layers 4 --reps 9 --rows 1,8,32,512,8192 \
  --format q4_0,q4_k,q8_0,mxfp4,q6_k,iq4_xs,iq3_xxs,iq2_xs,iq1_s,f16,bf16,int8_b32
part one_row "${small[@]}" --mode resident,off_all --layers 16 --format int4_b32,q4_0 --rows 1,2,4 --reps 31

if [ ${#failed[@]} -gt 0 ]; then echo "FAILED or cut short: ${failed[*]} (logs in $out)"; exit 1; fi
echo "results in $out"
