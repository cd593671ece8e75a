#!/usr/bin/env python3
"""What a storage of AdamW's moments costs in quality: one run for each seed, weights and optimizer.state.

usage: moments_seeds.py MANTISSA CONFIG [--seeds N] [--jobs N] [--weights LIST] [--states LIST] [--KEY=VALUE ...]

Runs `mantissa train CONFIG` with run.seed 1 to N, in folders that are removed behind it, and prints the evaluation loss
at the end against that of FP32 moments with the same seed: mean, standard error of the mean, least and most.
"""
import argparse
import concurrent.futures
import json
import math
import pathlib
import subprocess
import sys
import tempfile


def evaluation_loss(mantissa, config, folder, overrides):
    run = subprocess.run([mantissa, "train", config, f"--run.dir={folder}", "--train.save_weights=false", *overrides],
                         capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"{' '.join(overrides)}: exit {run.returncode}\n{run.stderr}")
    result = json.loads((pathlib.Path(folder) / "result.json").read_text())
    return result["eval_loss"]


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1][7:])
    parser.add_argument("mantissa")
    parser.add_argument("config")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--weights", default="fp32,bf16-sr")
    parser.add_argument("--states", default="bf16,8bit")
    a, overrides = parser.parse_known_args()
    states = ["fp32"] + a.states.split(",")
    seeds = range(1, a.seeds + 1)
    with tempfile.TemporaryDirectory() as root, concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        runs = {(w, s, seed): pool.submit(evaluation_loss, a.mantissa, a.config, f"{root}/{w}-{s}-{seed}",
                                          [f"--precision.weights={w}", f"--optimizer.state={s}", f"--run.seed={seed}",
                                           *overrides])
                for seed in seeds for w in a.weights.split(",") for s in states}
        losses = {key: run.result() for key, run in runs.items()}
    print(f"{'weights':<10}{'moments':<10}{'loss':>8}{'against fp32, %':>18}{'error':>8}{'least':>9}{'most':>8}")
    for w in a.weights.split(","):
        for s in states:
            deltas = [100 * (losses[w, s, seed] / losses[w, "fp32", seed] - 1) for seed in seeds]
            mean = sum(deltas) / len(deltas)
            spread = sum((d - mean) ** 2 for d in deltas) / max(1, len(deltas) - 1)
            loss = sum(losses[w, s, seed] for seed in seeds) / len(seeds)
            print(f"{w:<10}{s:<10}{loss:>8.4f}{mean:>18.3f}{math.sqrt(spread / len(deltas)):>8.3f}"
                  f"{min(deltas):>9.3f}{max(deltas):>8.3f}")


if __name__ == "__main__":
    main()
