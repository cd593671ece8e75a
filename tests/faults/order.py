"""In which order a run writes its checkpoints, by the log of its calls: a file is on the disk before it takes its name, a
name before the folder around it takes its own, the new checkpoint before an old one loses its name."""
from __future__ import annotations

import argparse
import os
import re
import subprocess
import tempfile
from pathlib import Path

from scenarios import CONFIG, text

STEPS = 8


def calls_of(program: Path, preload: Path, root: Path) -> list[tuple[str, str]]:
    (root / "in").mkdir()
    (root / "in/text.txt").write_text(text(6000))
    (root / "c.yaml").write_text(CONFIG.format(root=root))
    log = root.parent / (root.name + ".log")
    done = subprocess.run([str(program), "train", str(root / "c.yaml"), f"--train.steps={STEPS}", "--train.checkpoint_every=2",
                           "--train.keep_last=1"], capture_output=True, text=True,
                          env={"LD_PRELOAD": str(preload), "FAULTS_ROOT": str(root), "FAULTS_LOG": str(log), "OMP_NUM_THREADS": "1"})
    lines = log.read_text().splitlines()
    log.unlink()
    if done.returncode != 0:
        raise SystemExit(f"order: train exits with {done.returncode}: {done.stderr}")
    calls = []
    for line in lines:
        kind, path = line.split(" ", 1) if not line.startswith(" ") else line[1:].split(" ", 1)
        calls.append((kind, path))
    return calls


def problems_of(calls: list[tuple[str, str]], run: str) -> tuple[list[str], int]:
    """What is out of order, and how many checkpoints there were."""
    found: list[str] = []
    checkpoints = 0
    store = f"{run}/checkpoints"

    def last(kind: str, path: str, before: int) -> int:
        return max((i for i in range(before) if calls[i] == (kind, path)), default=-1)

    def expect(first: int, then: int, what: str) -> None:
        if not 0 <= first < then:
            found.append(what)

    for i, (kind, path) in enumerate(calls):
        if kind != "rename" or not path.startswith(store + "/"):
            continue
        name = path[len(store) + 1:]
        if "/" in name:  # a file in a checkpoint that is being written
            synced = last("fsync", path, i)
            expect(synced, i, f"{name} takes its name before it is on the disk")
            expect(last("write", path, i), synced, f"{name} is written behind its fsync")
            folder = os.path.dirname(path)
            moved = next((k for k in range(i, len(calls)) if calls[k] == ("rename", folder)), len(calls))
            expect(i, last("fsync", folder, moved), f"{folder} takes its name before that of {name} is on the disk")
            if name.split("/")[1].startswith("manifest.json"):
                state = [k for k in range(i) if calls[k][0] == "rename" and calls[k][1].startswith(folder + "/state-")]
                expect(max(state, default=-1), last("write", path, i), f"{name} is written before the state")
                expect(last("fsync", f"{run}/metrics.jsonl", i), i, f"{name}: the metrics are not on the disk")
        elif ".tmp-" in name:  # a checkpoint takes its name
            checkpoints += 1
            then = next((k for k in range(i + 1, len(calls)) if calls[k] == ("fsync", store)), len(calls))
            taken = [k for k in range(i + 1, then) if calls[k][0] in ("rename", "remove")
                     and re.match(re.escape(store) + r"/step_\d+($|/|\.)", calls[k][1])]
            if then == len(calls) or taken:
                found.append(f"an old checkpoint goes before the name {name} is on the disk")
    made = next((i for i, call in enumerate(calls) if call == ("mkdir", store)), -1)
    first = next((i for i, (kind, path) in enumerate(calls) if kind == "rename" and path.startswith(store + "/step_")), 0)
    expect(made, last("fsync", run, first), "the first checkpoint is written before its folder's name is on the disk")
    return found, checkpoints


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", type=Path, required=True)
    parser.add_argument("--preload", type=Path, required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve() / "root"
        root.mkdir()
        calls = calls_of(arguments.program.resolve(), arguments.preload.resolve(), root)
        found, checkpoints = problems_of(calls, f"{root}/run")
        if checkpoints != STEPS // 2:
            found.append(f"{checkpoints} checkpoints took their names, expected {STEPS // 2}")
        # The test itself: without its fsyncs, or with its renames first, the same log is out of order.
        if not problems_of([c for c in calls if c[0] != "fsync"], f"{root}/run")[0]:
            found.append("a log without any fsync is found in order")
        for line in found:
            print(f"order: {line}")
        raise SystemExit(1 if found else 0)


if __name__ == "__main__":
    main()
