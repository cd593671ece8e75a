#!/usr/bin/env python3
"""Parquet files that pyarrow writes, through `mantissa prepare` and back out of the shards: every document, byte for byte.

usage: parquet.py MANTISSA      exit 77: pyarrow or the Parquet module is absent
"""
import json
import random
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

LENGTH = 2048
DTYPES = {8: "B", 16: "H", 17: "h", 32: "I", 33: "i", 64: "Q", 65: "q"}


def array(value: bytes) -> tuple[int, ...]:
    """ndarray:int32 of MDS: rank and width of a size in one byte, the sizes, the values."""
    rank, width = value[0] >> 2, 1 << (value[0] & 3)
    assert rank == 1, rank
    count = int.from_bytes(value[1 : 1 + width], "little")
    return struct.unpack(f"<{count}i", value[1 + width :])


def documents(folder: Path) -> list[bytes]:
    """The documents of the rows in the shards of `folder`, without their EOS (byte 0) and what pads a row."""
    found = []
    for entry in json.loads((folder / "index.json").read_text())["shards"]:
        names, sizes = entry["column_names"], entry["column_sizes"]
        assert names[:2] == ["document_lengths", "labels"] or "tokens" in names, names
        image = (folder / entry["raw_data"]["basename"]).read_bytes()
        (samples,) = struct.unpack_from("<I", image)
        offsets = struct.unpack_from(f"<{samples + 1}I", image, 4)
        for begin, end in zip(offsets, offsets[1:]):
            sample, lengths = image[begin:end], []
            for size in sizes:
                if size:
                    lengths.append(size)
                else:
                    lengths.append(struct.unpack_from("<I", sample)[0])
                    sample = sample[4:]
            values = {}
            for name, length in zip(names, lengths):
                values[name], sample = sample[:length], sample[length:]
            tokens, at = array(values["tokens"]), 0
            for length in array(values["document_lengths"]):
                document = bytes(tokens[at : at + length])
                at += length
                if document.strip(b"\0"):
                    assert document.endswith(b"\0") and document.count(b"\0") == 1, document[-8:]
                    found.append(document[:-1])
    return found


def texts(seed: int) -> list[str | None]:
    draw = random.Random(seed)
    words = ["naïve", "✓", "𝄞", "the", "a b\n", "数", "x" * 100]
    return [None if draw.random() < 0.1 else " ".join(draw.choices(words, k=draw.randrange(0, 12))) for _ in range(3000)]


def main() -> int:
    mantissa = sys.argv[1]
    if "Parquet    loaded" not in subprocess.run([mantissa, "doctor"], capture_output=True, text=True, check=True).stdout:
        print("skipped: this build has no Parquet module")
        return 77
    rows = texts(1)
    kinds = {"string": pa.array(rows, pa.string()), "large": pa.array(rows, pa.large_string()),
             "dictionary": pa.array(rows, pa.string()).dictionary_encode()}
    if hasattr(pa, "string_view"):
        kinds["view"] = pa.array(rows, pa.string_view())
    cases = [(kind, {"compression": codec, "data_page_version": version, "use_dictionary": dictionary})
             for kind in kinds for codec in ["none", "snappy", "gzip", "zstd", "lz4", "brotli"]
             for version in ["1.0", "2.0"] for dictionary in [False, True]]
    cases += [("string", {"use_dictionary": False, "column_encoding": {"text": encoding}})
              for encoding in ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY", "PLAIN"]]
    expected = sorted(text.encode() for text in rows if text)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for i, (kind, options) in enumerate(cases):
            source, out = folder / f"{i}.parquet", folder / f"out{i}"
            pq.write_table(pa.table({"text": kinds[kind], "n": range(len(rows))}), source, row_group_size=700 + 100 * (i % 9),
                           data_page_size=[300, 5000, 1 << 20][i % 3], **options)
            result = subprocess.run(
                [mantissa, "prepare", f"--train={source}", f"--out={out}", "--tokenizer=bytes", "--packing=best_fit",
                 f"--sequence_length={LENGTH}", "--validation_fraction=0"], capture_output=True, text=True)
            assert result.returncode == 0, f"{kind} {options}: {result.stderr}"
            found = sorted(documents(out / "train"))
            assert found == expected, f"{kind} {options}: {len(found)} documents, expected {len(expected)}"
    print(f"{len(cases)} files, {len(expected)} documents each: the same bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
