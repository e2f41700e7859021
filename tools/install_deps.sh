#!/usr/bin/env bash
# Installs the Debian 12 packages that a build needs, and only those that are missing. Nothing is downloaded otherwise.
#   tools/install_deps.sh [--bench] [--server-tests]
#     --bench         also what the micro-benchmarks need
#     --server-tests  also what the tests of the server need: chromium and a Python environment
set -euo pipefail

packages=(g++ cmake ninja-build ccache pkg-config python3 clang-format-14
  libfmt-dev libspdlog-dev nlohmann-json3-dev libcli11-dev libpcre2-dev libgtest-dev libhwloc-dev
  libcpp-httplib-dev prometheus-cpp-dev)
server_tests=
for argument in "$@"; do
  case "$argument" in
    --server-tests) server_tests=1 ;;
    --bench) packages+=(libbenchmark-dev) ;;
    *) echo "install_deps: unknown option '$argument'; usage: tools/install_deps.sh [--bench] [--server-tests]" >&2; exit 2 ;;
  esac
done

if ! command -v dpkg-query >/dev/null; then
  echo "install_deps: this is no Debian system; install the equivalents of: ${packages[*]}" >&2
  exit 0
fi

missing=()
for package in "${packages[@]}"; do
  # "install ok installed" and nothing else: a removed package with its configuration left is missing.
  state=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
  [[ "$state" == "install ok installed" ]] || missing+=("$package")
done
install_server_tests() {
  [[ -z "$server_tests" ]] || "$(dirname "${BASH_SOURCE[0]}")/install_server_test_deps.sh"
}
if [[ ${#missing[@]} -eq 0 ]]; then
  install_server_tests
  exit 0
fi

if [[ $(id -u) -eq 0 ]]; then
  as_root=()
elif command -v sudo >/dev/null; then
  as_root=(sudo)
else
  echo "install_deps: missing packages: ${missing[*]}" >&2
  echo "install_deps: neither root nor sudo here; ask an administrator to run: apt-get install ${missing[*]}" >&2
  exit 1
fi

echo "install_deps: installing ${missing[*]}"
run_apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq "$@"; }
run_apt update
run_apt install -y --no-install-recommends "${missing[@]}"
install_server_tests
