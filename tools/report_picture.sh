#!/usr/bin/env bash
# usage: report_picture.sh REPORT.html OUT.png [WIDTH HEIGHT]     the top of a report as a headless Chromium shows it
#
# Fails where the page writes anything to the console (a script that throws, a policy that blocks) or the picture is larger
# than 200 KB.
set -euo pipefail
die() { printf 'report_picture: %s\n' "$*" >&2; exit 1; }
(($# == 2 || $# == 4)) || die "expected REPORT.html OUT.png [WIDTH HEIGHT]"
report="$(realpath "$1")" out="$(realpath -m "$2")" width="${3:-1100}" height="${4:-1060}"
[[ -f "$report" ]] || die "$report: not there"
browser="$(command -v chromium || command -v chromium-browser || command -v google-chrome)" ||
  die "no Chromium here; Debian's package is chromium"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
options=(--headless=new --disable-gpu --hide-scrollbars --user-data-dir="$work/profile" --virtual-time-budget=5000
  --enable-logging=stderr --window-size="$width,$height")
((EUID != 0)) || options+=(--no-sandbox)  # Chromium's sandbox refuses root
"$browser" "${options[@]}" --screenshot="$work/page.png" "file://$report" >"$work/log" 2>&1 ||
  die "$browser failed: $(tail -n 3 "$work/log")"
! grep -a "CONSOLE" "$work/log" >&2 || die "$report: wrote the above to the console"
[[ -s "$work/page.png" ]] || die "$browser wrote no picture"
bytes="$(stat -c %s "$work/page.png")"
((bytes <= 200000)) || die "the picture has $bytes bytes, at most 200000 are wanted; a smaller WIDTH or HEIGHT gives fewer"
mv "$work/page.png" "$out"
printf '%s: %s bytes\n' "$out" "$bytes"
