#!/usr/bin/env bash
# usage: renew.sh [NAME...]     writes NAME.txt from NAME.in (all of them without a name)
#
# NAME.in says which packages a task of ./run wants; NAME.txt pins these and all that they need, for every Linux machine and
# Python 3.11 or newer, each with the SHA-256 of its wheels as PyPI has them. ./run installs from NAME.txt alone, with
# --require-hashes and --only-binary=:all:. Needs uv (pip install uv). Read the difference before it is committed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
names=("$@")
((${#names[@]})) || for file in *.in; do names+=("${file%.in}"); done
for name in "${names[@]}"; do
  options=()
  case "$name" in pyarrow | tokenizers | cudnn-frontend) options+=(--no-deps) ;; esac  # the wheel itself is all that is used
  uv pip compile "$name.in" --universal --python-version 3.11 --only-binary :all: --generate-hashes --upgrade --no-header \
    --no-annotate --no-emit-index-url --no-emit-find-links --quiet ${options[@]+"${options[@]}"} --output-file "$name.txt"
  sed -i -e ':join' -e '/\\$/{N;s/ *\\\n */ /;b join' -e '}' "$name.txt"  # a line a package
done
