#!/usr/bin/env python3
"""A training step beside PyTorch's on this machine: build/train_step and bench/torch_step.py in turn, one table.

usage: step.py [--build build] [--python python3] [--seconds 20] [--threads N]
PyTorch's rows are left out, and said so, where --python has no torch and transformers.
"""
import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECIPES = ["fp8-delayed", "mxfp8", "nvfp4"]


def lines_of(command: list[str], environment: dict[str, str]) -> list[dict]:
    result = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if result.returncode:
        sys.exit(f"{' '.join(command)}: exit {result.returncode}\n{result.stderr[-2000:]}")
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=str(ROOT / "build"))
    parser.add_argument("--python", default="python3")
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    a = parser.parse_args()
    environment = {**os.environ, "OMP_NUM_THREADS": str(a.threads)}
    probe = subprocess.run([a.python, "-c", "import torch, transformers"], capture_output=True, check=False)
    with_torch = probe.returncode == 0

    rows = []
    for dtype in ["bf16", "fp32"]:
        rows += lines_of([f"{a.build}/train_step", f"recipe={dtype}", f"seconds={a.seconds}"], environment)
        if with_torch:
            script = str(ROOT / "bench/torch_step.py")
            rows += lines_of([a.python, script, "--dtype", dtype, "--threads", str(a.threads), "--seconds", str(a.seconds)], environment)
    rows += lines_of([f"{a.build}/train_step", "recipe=" + ",".join(RECIPES), f"seconds={a.seconds}"], environment)

    shape = rows[0]
    print(f"training step: {shape['parameters']:,} parameters, {shape['tokens_per_step']} tokens a step, {a.threads} threads")
    print(f"{'':12}{'dtype':15}{'tok/s':>10}{'spread':>9}{'steps':>7}{'first step':>12}{'vs compile':>12}")
    compiled = {row["dtype"]: row["tokens_per_s"] for row in rows if row["impl"] == "compile"}
    for row in rows:
        base = compiled.get(row["dtype"] if row["dtype"] == "fp32" else "bf16")
        ratio = f"{row['tokens_per_s'] / base:.2f}x" if base else "-"
        print(f"{row['impl']:12}{row['dtype']:15}{row['tokens_per_s']:10,.0f}{row['spread']:9.1%}{row['steps']:7}"
              f"{row['first_step_s']:10.2f} s{ratio:>12}")
    torch = [row for row in rows if "torch" in row]
    if torch:
        print(f"PyTorch {torch[0]['torch']}, transformers {torch[0]['transformers']}; spread is the middle half of the steps")
    else:
        print(f"{a.python} has no torch and transformers: PyTorch's rows are left out (./run bench --install-torch)")


if __name__ == "__main__":
    main()
