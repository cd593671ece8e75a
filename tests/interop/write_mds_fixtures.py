#!/usr/bin/env python3
"""Writes tests/fixtures/mds with MosaicML's own library (pip install mosaicml-streaming, 0.13 wrote what is committed).

usage: write_mds_fixtures.py OUT     OUT must not exist

The values follow formulas that tests/data/mds_test.cpp repeats: token i of row r is (37 r + 11 i) % 1000.
"""
import sys
from decimal import Decimal
from pathlib import Path

import numpy as np
from streaming import MDSWriter
from streaming.base.format.mds import encodings

TEXTS = ["One.", "Zwei\nZeilen", "", "三つ目 🦀", "a longer one " * 40]
ROWS, LENGTH = 6, 64


def row(r: int) -> np.ndarray:
    return (37 * r + 11 * np.arange(LENGTH)) % 1000


def documents(r: int) -> list[int]:
    """Lengths of the documents of row r, which sum to LENGTH."""
    return [LENGTH] if r % 3 == 0 else [10 + r, LENGTH - 10 - r] if r % 3 == 1 else [1, 20, LENGTH - 21]


class RawUint32(encodings.Encoding):
    """What a user registers under the name `uint32`: an array, without a size."""

    def encode(self, obj):
        return np.asarray(obj, np.uint32).tobytes()

    def decode(self, data):
        return np.frombuffer(data, np.uint32)


def write(out: Path, columns: dict[str, str], samples, **options) -> None:
    with MDSWriter(columns=columns, out=str(out), **options) as writer:
        for sample in samples:
            writer.write(sample)


def main() -> None:
    out = Path(sys.argv[1])
    out.mkdir(parents=True)
    texts = [{"text": text, "n": i, "meta": {"source": i}} for i, text in enumerate(TEXTS)]
    text_columns = {"text": "str", "n": "int", "meta": "json"}
    write(out / "text", text_columns, texts, hashes=["sha1", "xxh64"], size_limit=700)
    write(out / "text_gz", text_columns, texts, hashes=["md5", "sha256"], compression="gz")
    tokens = {"tokens": "ndarray:int32"}
    write(out / "tokens", tokens, ({"tokens": row(r).astype(np.int32)} for r in range(ROWS)), size_limit=900)
    write(out / "tokens_bytes", {"tokens": "bytes"}, ({"tokens": row(r).astype(np.int64).tobytes()} for r in range(ROWS)))
    write(out / "tokens_zstd", tokens, ({"tokens": row(r).astype(np.int32)} for r in range(ROWS)), size_limit=900,
          compression="zstd:7", hashes=["xxh64"])
    # Hugging Face's columns: labels repeat the ids, the last r tokens of row r are padding.
    samples = []
    for r in range(ROWS):
        mask = (np.arange(LENGTH) < LENGTH - r).astype(np.int64)
        samples.append({"input_ids": row(r), "labels": np.where(mask == 1, row(r), -100), "attention_mask": mask})
    write(out / "labels", {name: "ndarray:int64" for name in samples[0]}, samples)
    # Every other encoding.
    write(out / "encodings",
          {"dynamic": "ndarray", "fixed": "ndarray:int16:2,3", "shaped": "ndarray:uint8", "raw": "bytes", "u8": "uint8",
           "i16": "int16", "u64": "uint64", "f16": "float16", "f64": "float64", "s_int": "str_int",
           "s_float": "str_float", "s_decimal": "str_decimal"},
          ({"dynamic": np.arange(1, 4 + i, dtype=[np.float32, np.uint16, np.int64][i]),
            "fixed": np.arange(6, dtype=np.int16).reshape(2, 3) - i, "shaped": np.ones((2, 1, 300), np.uint8) * i,
            "raw": bytes(range(i)), "u8": 200 + i, "i16": -i, "u64": 2**63 - 1 + i, "f16": 0.5 * i, "f64": -1.25 * i,
            "s_int": -(10**i), "s_float": 0.1 * i, "s_decimal": Decimal("1.10") * i} for i in range(3)))
    # Three columns of a user's own encoding: attention_mask holds document lengths, positions go on over a row's cut.
    encodings._encodings["uint32"] = RawUint32
    write(out / "three_columns", {"input_ids": "uint32", "attention_mask": "uint32", "position_ids": "uint32"},
          ({"input_ids": row(r), "attention_mask": documents(r), "position_ids": np.arange(LENGTH) + 5 * r}
           for r in range(ROWS)))


if __name__ == "__main__":
    main()
