#!/usr/bin/env bash
# run_server_test.sh VENV SUITE PROGRAM [names of tests]: server_test.py with the Python of the virtual environment.
set -euo pipefail
venv=$1
shift
if [[ ! -x "$venv/bin/python3" ]]; then
  echo "server_test: there is no Python environment in $venv; run tools/install_deps.sh --server-tests" >&2
  exit 1
fi
exec "$venv/bin/python3" "$(dirname "${BASH_SOURCE[0]}")/server_test.py" "$@"
