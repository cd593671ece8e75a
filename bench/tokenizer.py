#!/usr/bin/env python3
"""Text throughput of encoding on one thread, beside Hugging Face `tokenizers`' encode_batch, in turn, in one run.

usage: tokenizer.py DATA [--ids build/tokenizer_ids] [--rounds 3] [--at-least RATIO]

DATA holds tokenizers/{gpt2,llama3,qwen3}, text/ and sft/. Needs `pip install tokenizers`. The best round of each counts, in
processor time, which other programs on the machine disturb least; our encoder starts every round with an empty cache, theirs
keeps its own. With --at-least, exit code 1 below that ratio.
"""
import os

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import argparse
import gzip
import json
import struct
import subprocess
import sys
import time
from pathlib import Path

import tokenizers


def texts_of(data):
    """{name: texts}: articles, plays by the 4 kB, questions and answers."""
    articles = gzip.decompress((data / "text/malay-articles.jsonl.gz").read_bytes()).decode().split("\n")
    plays = (data / "text/tinyshakespeare.txt").read_text(encoding="utf-8")
    problems = (data / "sft/gsm8k-train.jsonl").read_text(encoding="utf-8").split("\n")
    return {
        "malay-articles": [json.loads(line)["text"] for line in articles if line],
        "tinyshakespeare": [plays[at : at + 4096] for at in range(0, len(plays), 4096)],
        "gsm8k": [value for line in problems if line for value in json.loads(line).values()],
    }


class Ours:
    """tests/interop/tokenizer_ids.cpp: encodes all texts, one round a line of processor seconds."""

    def __init__(self, program, path, texts):
        self.command = [program, str(path), "time", "1"]
        self.data = b"".join(struct.pack("<I", len(raw)) + raw for raw in (text.encode() for text in texts))

    def seconds(self):
        return float(subprocess.run(self.command, input=self.data, stdout=subprocess.PIPE, check=True).stdout)


class Theirs:
    def __init__(self, path, texts):
        self.tokenizer, self.texts = tokenizers.Tokenizer.from_file(str(path)), texts

    def seconds(self):
        begin = time.process_time()
        self.tokenizer.encode_batch(self.texts, add_special_tokens=False)
        return time.process_time() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--ids", default="build/tokenizer_ids")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--at-least", type=float, default=0)
    arguments = parser.parse_args()
    print(f"one thread, MB of UTF-8 a processor second, best of {arguments.rounds} rounds in turn; tokenizers {tokenizers.__version__}")
    print(f"{'tokenizer':10} {'text':16} {'MB':>6} {'ours':>8} {'theirs':>8} {'ratio':>6}")
    lowest = float("inf")
    for name in ("gpt2", "llama3", "qwen3"):
        path = arguments.data / "tokenizers" / name / "tokenizer.json"
        for text, texts in texts_of(arguments.data).items():
            size = sum(len(part.encode()) for part in texts) / 1e6
            ours, theirs = Ours(arguments.ids, path, texts), Theirs(path, texts)
            times = [(ours.seconds(), theirs.seconds()) for _ in range(arguments.rounds)]
            best = [min(column) for column in zip(*times)]
            lowest = min(lowest, best[1] / best[0])
            print(f"{name:10} {text:16} {size:6.2f} {size / best[0]:8.1f} {size / best[1]:8.2f} {best[1] / best[0]:6.1f}", flush=True)
    print(f"lowest ratio: {lowest:.1f}")
    return 1 if lowest < arguments.at_least else 0


if __name__ == "__main__":
    sys.exit(main())
