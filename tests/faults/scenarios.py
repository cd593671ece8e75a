"""What the driver runs: for each scenario its files, its command and what it writes."""
from __future__ import annotations

import gzip
import json
import random
import re
import shutil
import struct
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable


@dataclass
class Scenario:
    name: str
    build: Callable[["Maker", Path], None]  # makes the files in an empty folder
    command: Callable[[str], list[str]]  # the arguments, given the folder
    whole: list[str]  # outputs, files or folders: after a failure each is as before, or complete
    may_go: list[str] = field(default_factory=list)  # outputs that a failure may leave out, but not by half
    grows: list[str] = field(default_factory=list)  # JSON that is written anew as the work goes on
    open: list[str] = field(default_factory=list)  # folders of a run, in which a failure may leave what it likes
    goes: list[str] = field(default_factory=list)  # of what stood there before, what the work may take away
    varies: Callable[[str, bytes], bytes] = lambda name, content: content  # without what differs from run to run
    needs: str = ""  # a module beside the program
    quick: int = 2  # calls of each mode in the quick form


class Maker:
    """Builds fixtures with the program itself, without faults."""

    def __init__(self, program: Path, source: Path):
        self.program, self.source = program, source

    def run(self, *arguments: str) -> None:
        done = subprocess.run([str(self.program), *arguments], capture_output=True, text=True, env={"OMP_NUM_THREADS": "1"})
        if done.returncode != 0:
            raise SystemExit(f"faults: {arguments[0]} exits with {done.returncode} without a fault: {done.stderr}")


WORDS = "the scale of a block and its codes round to nearest even".split()


def text(size: int) -> str:
    draw = random.Random(7)
    out = ""
    while len(out) < size:
        out += " ".join(draw.choice(WORDS) for _ in range(20)) + ".\n\n"
    return out


def tokenizer_of(maker: Maker, folder: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(maker.source / "tests/fixtures/tokenizers/qwen" / name, folder / name)


def text_input(maker: Maker, root: Path) -> None:
    (root / "in").mkdir()
    (root / "in/text.txt").write_text(text(6000))


def jsonl_input(maker: Maker, root: Path) -> None:
    (root / "in").mkdir()
    (root / "tokenizer").mkdir()
    tokenizer_of(maker, root / "tokenizer")
    for name, first in (("a.jsonl.gz", 0), ("b.jsonl", 20)):
        lines = "".join(json.dumps({"text": text(200 + 10 * i)}) + "\n" for i in range(first, first + 20)).encode()
        (root / "in" / name).write_bytes(gzip.compress(lines, mtime=0) if name.endswith("gz") else lines)
    (root / "in/SOURCE.json").write_text(json.dumps({"name": "drawn words", "version": "1"}))


def tokens_input(maker: Maker, root: Path) -> None:
    (root / "in").mkdir()
    draw = random.Random(3)
    for name in ("a.bin", "b.bin"):
        ids = [draw.randrange(256) for _ in range(3000)]
        (root / "in" / name).write_bytes(struct.pack(f"<{len(ids)}H", *ids))


def copied(folder: str, to: str) -> Callable[[Maker, Path], None]:
    def build(maker: Maker, root: Path) -> None:
        source = maker.source / "tests" / folder
        if source.is_dir():
            shutil.copytree(source, root / to)
        else:
            (root / to).mkdir()
            shutil.copyfile(source, root / to / source.name)

    return build


def model_input(maker: Maker, root: Path) -> None:
    (root / "model").mkdir()
    for name in ("config.json", "generation_config.json", "model.safetensors"):
        shutil.copyfile(maker.source / "tests/golden/qwen3" / name, root / "model" / name)
    tokenizer_of(maker, root / "model")
    (root / "model/chat_template.jinja").write_text("{{ messages }}")


CONFIG = """run: {{name: t, dir: {root}/run, seed: 5}}
device: {{name: cpu}}
model: {{arch: qwen3, vocab_size: 256, hidden_size: 64, intermediate_size: 64, num_hidden_layers: 1, num_attention_heads: 1,
  num_key_value_heads: 1, head_dim: 64, tie_word_embeddings: true}}
data: {{train: {root}/in/text.txt, sequence_length: 32, validation_fraction: 0.1}}
batch: {{tokens: 64}}
optimizer: {{lr: 1e-2}}
schedule: {{name: cosine, warmup_steps: 1}}
train: {{steps: 2, eval_rows: 2, disk_patience: 0.1}}
compare: {{weights: [bf16]}}
precision: {{recipes: [mxfp8]}}
log: {{console: false}}
"""


def config_input(maker: Maker, root: Path) -> None:
    text_input(maker, root)
    (root / "c.yaml").write_text(CONFIG.format(root=root))


def finished_input(maker: Maker, root: Path) -> None:
    """A finished run of another seed, whose weights are replaced."""
    config_input(maker, root)
    maker.run("train", str(root / "c.yaml"), "--run.seed=6")


def begun_input(maker: Maker, root: Path) -> None:
    """A comparison whose last row has not ended: it goes on with the rates that it measured before."""
    config_input(maker, root)
    maker.run("compare", str(root / "c.yaml"))
    record = json.loads((root / "run/compare.json").read_text())
    last = record["rows"].pop()
    (root / "run/compare.json").write_text(json.dumps(record, indent=2) + "\n")
    shutil.rmtree(root / "run" / last["dir"])


def two_rows_input(maker: Maker, root: Path) -> None:
    config_input(maker, root)
    config = CONFIG.replace("weights: [bf16]", "weights: [bf16, fp32]").replace("recipes: [mxfp8]", "recipes: []")
    (root / "c.yaml").write_text(config.format(root=root))


def compared_input(maker: Maker, root: Path) -> None:
    """A finished comparison of another seed, and a row that the new one does not have."""
    two_rows_input(maker, root)
    maker.run("compare", str(root / "c.yaml"), "--run.seed=6")


# What differs between two runs of the same config: the time, and figures that hang on it.
TIMED = {"seconds", "tokens_per_s", "mfu", "data_wait_s", "first_step_seconds", "started", "bf16", "f32", "flops",
         "nanogpt_legacy_v1", "combined_formula_v2", "component_summation_v2025", "id",
         # of a checkpoint's manifest; its own checksum is one of all the rest
         "saved", "checksum", "run_seconds", "steady_seconds", "positions",
         # where a run went on that a fault had ended
         "resumed"}


def without_times(name: str, content: bytes) -> bytes:
    def strip(value: object) -> object:
        if isinstance(value, dict):
            return {k: strip(v) for k, v in value.items() if k not in TIMED}
        return [strip(v) for v in value] if isinstance(value, list) else value

    if name.endswith("record.json"):  # fingerprints of what is compared itself
        return b""
    if name.endswith("report.html"):
        return content[:15] + content[-8:]
    if name.endswith((".json", ".jsonl")) and "/model/" not in name:
        lines = content.decode().splitlines() if name.endswith("l") else [content.decode()]
        try:
            return "\n".join(json.dumps(strip(json.loads(line))) for line in lines).encode()
        except json.JSONDecodeError:
            return content
    return content


def comparison_input(maker: Maker, root: Path) -> None:
    config_input(maker, root)
    maker.run("compare", str(root / "c.yaml"))
    (root / "page.html").write_text("an older page\n")


RECORDS = ["run/config.yaml", "run/run.json", "run/result.json", "run/report.html"]

SCENARIOS = [
    Scenario("prepare-text", text_input,
             lambda r: ["prepare", f"--train={r}/in/text.txt", "--sequence-length=64", "--validation-fraction=0.1",
                        f"--out={r}/out"], ["out"]),
    Scenario("prepare-jsonl", jsonl_input,
             lambda r: ["prepare", f"--train={r}/in", f"--tokenizer={r}/tokenizer", "--sequence-length=64", "--zstd=1",
                        "--packing=best_fit", f"--out={r}/out"], ["out"]),
    Scenario("prepare-tokens", tokens_input,
             lambda r: ["prepare", f"--train={r}/in", "--format=nanogpt", "--sequence-length=64", "--eos-token=0",
                        f"--out={r}/out"], ["out"]),
    Scenario("prepare-mds", copied("fixtures/mds/text", "in"),
             lambda r: ["prepare", f"--train={r}/in", "--sequence-length=16", f"--out={r}/out"], ["out"]),
    Scenario("prepare-parquet", copied("fixtures/parquet/checksums.parquet", "in"),
             lambda r: ["prepare", f"--train={r}/in", "--sequence-length=16", f"--out={r}/out"], ["out"],
             needs="mantissa_parquet.so"),
    Scenario("export", model_input,
             lambda r: ["export", f"{r}/model", f"{r}/out", "--shard-gb=0.0002"], ["out"]),
    Scenario("report", comparison_input,
             lambda r: ["report", f"{r}/run", f"{r}/run/rows/01-bf16-bf16", f"--output={r}/page.html"], ["page.html"]),
    Scenario("train", config_input, lambda r: ["train", f"{r}/c.yaml", "--train.sample_every=1", "--sample.max_new_tokens=4"],
             ["run/model"], may_go=RECORDS, open=["run"], varies=without_times, quick=1),
    Scenario("train-again", finished_input, lambda r: ["train", f"{r}/c.yaml", "--restart"],
             ["run/model"], may_go=RECORDS, open=["run"], goes=["run/checkpoints"], varies=without_times, quick=1),
    Scenario("compare", begun_input, lambda r: ["compare", f"{r}/c.yaml"],
             ["run/compare.json"], may_go=["run/report.html"], open=["run"], varies=without_times, quick=1),
    Scenario("compare-new", two_rows_input, lambda r: ["compare", f"{r}/c.yaml"],
             [], may_go=["run/report.html"], grows=["run/compare.json"], open=["run"], varies=without_times, quick=1),
    Scenario("compare-again", compared_input, lambda r: ["compare", f"{r}/c.yaml", "--restart", "--compare.weights=[bf16]"],
             [], may_go=["run/report.html"], grows=["run/compare.json"], open=["run"], varies=without_times, quick=1),
]

# Rates in a comparison's table: MFU and tokens a second, behind weights, recipe and scope.
RATES = re.compile(r"^(\s*\d+\s+\S+\s+\S+\s+\S+)\s+[\d.,]+\s+[\d.,]+(?=\s)")
# Times in what is printed.
TIMES = re.compile(r"\d[\d,.]* ?(s|ms|MB of text a second|GB/s|tok/s|read and encoded|written)\b")
