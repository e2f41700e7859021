#!/usr/bin/env bash
# Installs what the tests of the server need: Debian's chromium, and a Python environment with the packages of
# tests/server/requirements.txt.
#   tools/install_server_test_deps.sh [VENV]     VENV: where the environment goes [build/server-test-venv]
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=${1:-$root/build/server-test-venv}
requirements=$root/tests/server/requirements.txt

missing=()
for package in chromium fonts-dejavu-core python3-venv; do
  state=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
  [[ "$state" == "install ok installed" ]] || missing+=("$package")
done
if [[ ${#missing[@]} -gt 0 ]]; then
  as_root=()
  if [[ $(id -u) -ne 0 ]]; then
    if ! command -v sudo >/dev/null; then
      echo "install_server_test_deps: neither root nor sudo here; ask an administrator to run:" \
        "apt-get install ${missing[*]}" >&2
      exit 1
    fi
    as_root=(sudo)
  fi
  echo "install_server_test_deps: installing ${missing[*]}"
  run_apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq "$@"; }
  run_apt update
  run_apt install -y --no-install-recommends "${missing[@]}"
fi

# The list that is installed is kept beside it, so that a second run with the same list does nothing.
if ! cmp -s "$requirements" "$venv/installed.txt"; then
  /usr/bin/python3 -m venv --clear "$venv"
  "$venv/bin/python3" -m pip install --quiet --disable-pip-version-check --requirement "$requirements"
  cp "$requirements" "$venv/installed.txt"
fi
