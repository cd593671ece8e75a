#!/usr/bin/env python3
"""Parquet files as pyarrow writes them, for tests/data/parquet_test.cpp, which knows the same rows.

usage: write_parquet_fixtures.py FOLDER      (committed: tests/fixtures/parquet; pyarrow 26.0.1)
"""
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
    return 0


if __name__ == "__main__":
    sys.exit(main())
