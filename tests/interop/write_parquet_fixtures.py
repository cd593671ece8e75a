#!/usr/bin/env python3
"""Parquet files as pyarrow writes them, for tests/data/parquet_test.cpp, which knows the same rows.

usage: write_parquet_fixtures.py FOLDER      (committed: tests/fixtures/parquet; pyarrow 26.0.1)
"""
import datetime
import decimal
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

ROWS, GROUP = 60, 16


def text(i: int) -> str | None:
    """Row i: null, empty, or a few words of all UTF-8 lengths."""
    if i % 7 == 3:
        return None
    if i % 7 == 5:
        return ""
    return f"row {i}:" + " naïve ✓ 𝄞" * (i % 5)


def turns(i: int) -> list[dict[str, str]] | None:
    if i % 9 == 4:
        return None
    roles = ["user", "assistant"]
    return [{"content": f"turn {k} of {i}" + "." * (40 * (i % 4)), "note": k, "role": roles[k % 2]} for k in range(i % 6)]


def main() -> int:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    texts = [text(i) for i in range(ROWS)]
    ids = pa.array(range(ROWS), pa.int64())

    def write(name: str, column: pa.Array, **options: object) -> None:
        table = pa.table({"id": ids, "text": column})
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=GROUP, write_statistics=False, **options)

    plain = pa.array(texts, pa.string())
    write("snappy", plain, compression="snappy")
    write("zstd_large", pa.array(texts, pa.large_string()), compression="zstd")
    write("gzip_binary", pa.array([t if t is None else t.encode() for t in texts], pa.binary()), compression="gzip")
    write("dictionary", plain.dictionary_encode(), compression="none")
    write("pages_v2", plain, compression="zstd", data_page_version="2.0", use_dictionary=False,
          column_encoding={"text": "DELTA_BYTE_ARRAY", "id": "PLAIN"}, data_page_size=64, write_batch_size=3)
    write("checksums", plain, compression="none", use_dictionary=False, write_page_checksum=True)

    struct = pa.struct([("content", pa.string()), ("note", pa.int32()), ("role", pa.string())])
    table = pa.table({"messages": pa.array([turns(i) for i in range(ROWS)], pa.list_(struct)),
                      "question": pa.array([f"q{i}" for i in range(ROWS)]),
                      "answer": pa.array([f"a{i}" * (i % 3) for i in range(ROWS)])})
    # Pages of a few values: conversations go on from page to page.
    pq.write_table(table, folder / "messages.parquet", row_group_size=GROUP, compression="snappy", data_page_size=48,
                   write_batch_size=2, write_statistics=False)
    odd = pa.array([b"fine", b"caf\xe9", b"a\0b"], pa.binary())
    pq.write_table(pa.table({"text": odd}), folder / "odd_bytes.parquet")
    broken = pa.array([[{"role": "user", "content": None}]],
                      pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())])))
    pq.write_table(pa.table({"messages": broken}), folder / "null_content.parquet")

    # A kilobyte that 200,000 rows repeat: 200 MB of text in a file of a few kilobytes.
    repeated = pa.DictionaryArray.from_arrays(pa.array([0] * 200_000, pa.int32()), pa.array(["x" * 1000]))
    pq.write_table(pa.table({"text": repeated}), folder / "bomb.parquet", compression="zstd", write_statistics=False,
                   store_schema=False)
    # Text inside structs, conversations as ShareGPT and as TRL's prompt and completion.
    meta = pa.struct([("lang", pa.string()), ("body", pa.struct([("text", pa.string())]))])
    said = pa.list_(pa.struct([("from", pa.string()), ("value", pa.string())]))
    asked = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
    rows = pa.table({
        "meta": pa.array([{"lang": "en", "body": {"text": "deep"}}, {"lang": "ms", "body": None}, None], meta),
        "conversations": pa.array([[{"from": "human", "value": "1?"}, {"from": "gpt", "value": "2"}], [], None], said),
        "prompt": pa.array([[{"role": "user", "content": "q"}, {"role": "assistant", "content": "so far"},
                             {"role": "user", "content": "then"}], None, [{"role": "user", "content": "r"}]], asked),
        "completion": pa.array([[{"role": "assistant", "content": "a"}], [], [{"role": "assistant", "content": "b"}]],
                               asked),
    })
    pq.write_table(rows, folder / "nested.parquet", write_statistics=False, store_schema=False)
    moment = datetime.datetime(2024, 1, 2, tzinfo=datetime.timezone.utc)
    types = pa.table({"i8": pa.array([1], pa.int8()), "u32": pa.array([1], pa.uint32()), "i64": pa.array([1], pa.int64()),
                      "half": pa.array([1], pa.float32()), "real": pa.array([1], pa.float64()),
                      "yes": pa.array([True]), "day": pa.array([moment.date()]), "when": pa.array([moment]),
                      "price": pa.array([decimal.Decimal("1.25")], pa.decimal128(9, 2)),
                      "id16": pa.array([b"0123456789abcdef"], pa.binary(16)),
                      "map": pa.array([[("a", "b")]], pa.map_(pa.string(), pa.string())),
                      "list": pa.array([["a"]]), "struct": pa.array([{"a": "b"}])})
    pq.write_table(types, folder / "types.parquet", write_statistics=False, store_schema=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
