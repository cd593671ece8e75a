#!/usr/bin/env python3
"""MDS shards in both directions: MosaicML streaming reads what Mantissa writes, Mantissa reads what streaming writes.

usage: mds_streaming.py MDS_ROWS MANTISSA     MDS_ROWS: the program of mds_rows.cpp
"""
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import numpy as np
    from streaming import MDSWriter, StreamingDataset
    from streaming.base.format.mds import encodings
    from streaming.base.util import clean_stale_shared_memory
except ImportError as error:
    print(f"skipped: {error} (mosaicml-streaming)")
    sys.exit(77)

PROGRAM, MANTISSA = sys.argv[1:3]
IGNORED = -100


def run(*arguments, text: str = "", program: str = PROGRAM) -> str:
    done = subprocess.run([program, *map(str, arguments)], input=text, capture_output=True, text=True)
    assert done.returncode == 0, f"{arguments}: exit {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


def make_rows(generator, count, length, vocabulary, labels):
    rows = []
    for _ in range(count):
        ids = generator.integers(0, vocabulary, length)
        cuts = np.unique(generator.integers(1, length, generator.integers(0, 20)))
        lengths = np.diff(np.concatenate([[0], cuts, [length]]))
        targets = np.where(generator.random(length) < 0.3, IGNORED, generator.integers(0, vocabulary, length))
        rows.append((ids, lengths, targets if labels else np.array([], int)))
    return rows


def line(values) -> str:
    return " ".join(str(int(value)) for value in values)


def next_ids(ids, lengths):
    """Labels of a row without labels of its own."""
    labels = np.append(ids[1:], IGNORED)
    labels[np.cumsum(lengths) - 1] = IGNORED
    return labels


def ours_to_streaming(folder: Path, labels: bool, zstd: int, generator) -> None:
    length, vocabulary = 700, 151936
    rows = make_rows(generator, 120, length, vocabulary, labels)
    text = "".join(f"{line(ids)}|{line(lengths)}|{line(targets)}\n" for ids, lengths, targets in rows)
    run("write", folder, length, vocabulary, int(labels), zstd, 50000, text=text)
    run("verify", folder)
    clean_stale_shared_memory()
    for algorithm in ("sha256", "xxh64", "sha1"):
        dataset = StreamingDataset(local=str(folder), batch_size=1, shuffle=False, validate_hash=algorithm)
        assert len(dataset) == len(rows), f"{len(dataset)} rows, wrote {len(rows)}"
        assert len(dataset.shards) > 5
        for i, (ids, lengths, targets) in enumerate(rows):
            sample = dataset[i]
            assert set(sample) == {"tokens", "document_lengths"} | ({"labels"} if labels else set()), sample.keys()
            for column, values in (("tokens", ids), ("document_lengths", lengths), ("labels", targets)):
                if column in sample:
                    assert sample[column].dtype == np.int32
                    assert np.array_equal(sample[column], values), f"row {i}: {column}"
        del dataset
    print(f"streaming reads ours: labels {labels}, zstd {zstd}, {len(rows)} rows")


class RawUint32(encodings.Encoding):
    def encode(self, obj):
        return np.asarray(obj, np.uint32).tobytes()

    def decode(self, data):
        return np.frombuffer(data, np.uint32)


def streaming_to_ours(folder: Path, kind: str, compression, generator) -> None:
    length, vocabulary, eos = 333, 60000, 17
    rows = make_rows(generator, 60, length, vocabulary, True)
    columns, samples, expected = {}, [], []
    for ids, lengths, targets in rows:
        if kind == "three_columns":
            sample = {"input_ids": ids, "attention_mask": lengths, "position_ids": np.arange(length)}
            columns = dict.fromkeys(sample, "uint32")
        elif kind == "bytes":
            ids[generator.integers(0, length, 5)] = eos
            sample, columns = {"tokens": ids.astype(np.int64).tobytes()}, {"tokens": "bytes"}
            ends = np.unique(np.append(np.flatnonzero(ids == eos) + 1, length))
            lengths = np.diff(np.concatenate([[0], ends]))
        elif kind == "labels":
            sample = {"tokens": ids.astype(np.uint16), "document_lengths": lengths.astype(np.int64),
                      "labels": targets.astype(np.int32)}
            columns = {"tokens": "ndarray", "document_lengths": "ndarray:int64", "labels": f"ndarray:int32:{length}"}
        else:
            sample, columns = {"tokens": ids.astype(kind)}, {"tokens": f"ndarray:{kind}"}
            lengths = [length]
        samples.append(sample)
        expected.append((ids, lengths, targets if kind == "labels" else next_ids(ids, lengths)))
    with MDSWriter(out=str(folder), columns=columns, compression=compression, hashes=["sha1", "xxh64"],
                   size_limit=20000) as writer:
        for sample in samples:
            writer.write(sample)
    run("verify", folder)
    found = run("read", folder, length, eos if kind == "bytes" else -1).splitlines()
    assert len(found) == len(rows)
    for i, (text, row) in enumerate(zip(found, expected)):
        assert text == "|".join(map(line, row)), f"{kind}: row {i}"
    print(f"ours reads streaming's: {kind}, compression {compression}, {len(rows)} rows")


def prepared_text(folder: Path) -> None:
    """Documents of text come back whole, in any order, from what `prepare` writes; padding has no labels."""
    length = 400
    texts = [f"document {i} " + "word " * (i * 37 % 60) for i in range(300)]
    source = folder / "texts.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    run("prepare", "--train", source, "--tokenizer", "bytes", "--packing", "best_fit", "--sequence_length", length,
        "--validation_fraction", 0.1, "--out", folder / "prepared", program=MANTISSA)
    run("verify", folder / "prepared", program=MANTISSA)
    clean_stale_shared_memory()
    found = []
    for split in ("train", "validation"):
        for sample in StreamingDataset(local=str(folder / "prepared" / split), batch_size=1, shuffle=False,
                                       validate_hash="sha256"):
            assert len(sample["tokens"]) == length
            ends = np.cumsum(sample["document_lengths"])
            for begin, end in zip(np.append(0, ends[:-1]), ends):
                ids, labels = sample["tokens"][begin:end], sample["labels"][begin:end]
                if np.all(labels == IGNORED):
                    continue
                assert np.array_equal(labels[:-1], ids[1:]) and labels[-1] == IGNORED
                found.append(bytes(ids.astype(np.uint8)))
    wanted = sorted(text.encode() + b"\0" for text in texts)
    assert sorted(found) == wanted, f"{len(found)} documents, wrote {len(wanted)}"
    print(f"streaming reads what prepare wrote: {len(found)} documents")


def main() -> None:
    generator = np.random.default_rng(random.Random(7).getrandbits(32))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for labels in (False, True):
            for zstd in (0, 3):
                ours_to_streaming(folder / f"ours_{labels}_{zstd}", labels, zstd, generator)
        for kind, compression in (("int32", None), ("uint16", "zstd"), ("int64", "gz:3"), ("bytes", None),
                                  ("labels", "zstd:9")):
            streaming_to_ours(folder / f"theirs_{kind}", kind, compression, generator)
        prepared_text(folder)
        encodings._encodings["uint32"] = RawUint32
        streaming_to_ours(folder / "theirs_three", "three_columns", None, generator)


if __name__ == "__main__":
    main()
