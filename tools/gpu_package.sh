#!/usr/bin/env bash
# Builds everything that a machine with a GPU and nothing but its driver needs to test and measure this tree, and
# collects it in one folder: stripped programs, the shipped model, tests/gpu/*.py, run_tests.sh, run_benches.sh and
# run_opbench_gpu.sh.
set -eu

usage() {
  cat <<'TEXT'
Usage: gpu_package.sh [options]

  --out DIR        the folder (build/gpu-package); it is replaced
  --arch LIST      GPU generations to compile for, as 90-real or "80-real;90-real" (BELLHOP_CUDA_ARCHITECTURES; all)
  --tar FILE       also the folder as a .tar.gz, to be carried
  --jobs N         parallel compilations (all cores)
TEXT
}

out=build/gpu-package arch="" tar="" jobs=$(nproc)
while [ $# -gt 0 ]; do
  case "$1" in -h|--help) usage; exit 0 ;; esac
  if [ $# -lt 2 ]; then echo "gpu_package.sh: $1 is no option, or its value is missing (--help)" >&2; exit 2; fi
  case "$1" in
    --out) out=$2 ;;
    --arch) arch=$2 ;;
    --jobs) jobs=$2 ;;
    --tar) tar=$(realpath "$2") ;;
    *) echo "gpu_package.sh: unknown option $1 (--help)" >&2; exit 2 ;;
  esac
  shift 2
done
cd "$(dirname "$0")/.."

# Other programs of the build need no GPU. Further *_gpu_test programs are found by their names.
configure=(cmake --preset gpu --log-level=WARNING)
[ -z "$arch" ] || configure+=("-DBELLHOP_CUDA_ARCHITECTURES=$arch")
"${configure[@]}"
targets=(bellhop cuda_test decode_cuda_test doorbell_test gpu_model_test)
while read -r name; do targets+=("$name"); done < <(
  grep -rhoE 'bellhop_test\(([a-z0-9_]+_gpu_test)\b' --include=CMakeLists.txt src tests | sed 's/.*(//' | sort -u)
cmake --build --preset gpu --parallel "$jobs" --target "${targets[@]}"

rm -rf "$out"
mkdir -p "$out/bin" "$out/models" "$out/tests/gpu"
for name in "${targets[@]}"; do
  from=$(find build/gpu -type f -name "$name" -perm -u+x | head -n 1)
  if [ -z "$from" ]; then echo "gpu_package.sh: the build made no program $name" >&2; exit 1; fi
  strip -o "$out/bin/$name" "$from"
done
cp models/tiny-moe-q4_0.gguf "$out/models/"
cp tests/gpu/*.py "$out/tests/gpu/"
cp tests/gpu/run_tests.sh bench/run_benches.sh bench/run_opbench_gpu.sh "$out/"
du -sh "$out"
if [ -n "$tar" ]; then
  tar -C "$(dirname "$out")" -czf "$tar" "$(basename "$out")"
  du -sh "$tar"
fi
