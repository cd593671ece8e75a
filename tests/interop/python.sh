#!/usr/bin/env bash
# usage: python.sh VENV SCRIPT ARGUMENT...
# Runs a test script with the Python that holds its packages: build/VENV/bin/python as `./run` makes it, or the one that the
# environment names (MANTISSA_PYTHON for venv, MANTISSA_PYTHON_STREAMING for venv-streaming), else python3.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
venv="$1"
shift
case "$venv" in
  venv) python="${MANTISSA_PYTHON:-}" ;;
  venv-streaming) python="${MANTISSA_PYTHON_STREAMING:-}" ;;
  *) echo "python.sh: $venv is no virtual environment of ./run" >&2 && exit 2 ;;
esac
[[ -n "$python" || ! -x "$root/build/$venv/bin/python" ]] || python="$root/build/$venv/bin/python"
exec "${python:-python3}" "$@"
