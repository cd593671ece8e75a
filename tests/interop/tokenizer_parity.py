#!/usr/bin/env python3
"""Token ids and decoded text equal to those of Hugging Face `tokenizers`.

usage: tokenizer_parity.py IDS [--long]     IDS: the test executable tokenizer_ids

Tokenizers: the fixtures of tests/fixtures/tokenizers/, made-up ones with every flag of added tokens or without some bytes, and
those under
MANTISSA_TEST_DATA/tokenizers/. Texts: the corpora under MANTISSA_TEST_DATA (text/, sft/), code points in three contexts, and
strings put together at random. With --long every code point stands alone in its context and there are 1e6 random strings.
Exit code 77: skipped, with the reason.
"""
import array
import gzip
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import time
import unicodedata
from pathlib import Path

SKIPPED = 77
CHUNK = 20_000  # strings a batch
ROOT = Path(__file__).resolve().parents[2]

WORDS = ("the of and weight scale block training Hello WORLD it's don't we'll I'VE they'Re you'D x'\u017f 'S quote' ' '' "
         "saya akan membaca data dengan baik Gr\u00f6\u00dfe na\u00efve \u00e9t\u00e9 e\u0301te\u0301 \u041c\u043e\u0441\u043a\u0432\u0430 \u0448\u0430\u0433 "
         "\u8bad\u7ec3\u6a21\u578b \u5b66\u7fd2\u3059\u308b \ud55c\uad6d\uc5b4 \u1112\u1161\u11ab \u0627\u0644\u0628\u064a\u0627\u0646\u0627\u062a \u0939\u093f\u0928\u094d\u0926\u0940 \u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22 "
         "\U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f 1 22 333 4444 1234567 3.14 \u0664\u0662 \u00bd x1y2 { } ();// == ->> ... ?! <| |> <").split(" ")
SPACES = [" ", "  ", "   ", "\n", "\r\n", "\n\n", " \n", "\t", "\t\t", "\u00a0", "\u3000", "\u2028", "\u0085", "\u180e", "\u200b",
          "\x0b", "\x0c", "\r", " " * 9, ""]
MARKS = [chr(code) for first, last in ((0x300, 0x36F), (0x591, 0x5BD), (0x64B, 0x65F), (0x93C, 0x94D), (0xE38, 0xE4D),
                                       (0xF71, 0xF84), (0x1AB0, 0x1ACE), (0x1DC0, 0x1DFF), (0x302A, 0x302F))
         for code in range(first, last + 1)]
RANGES = [(0, 0x7F), (0x80, 0x24F), (0x250, 0x5FF), (0x600, 0x109F), (0x1100, 0x11FF), (0x1200, 0x20CF), (0x2000, 0x2BFF),
          (0x2C00, 0x33FF), (0x3400, 0x9FFF), (0xA000, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x1FFFF), (0x20000, 0x10FFFF)]
ADDED = ["<a>", "<a", "<ab>", "a>", "<", " x", "x ", "  ", "\n", "ab", "abc", "bc", "\u00e9", "e\u0301", "\u212b", "A\u030a", "\u00c5b", "the",
         "\u0120the", "'s", "1", "12", "\u1112\u1161\u11ab", "\ud55c", "solo", "_", "\u0301", "\u4e2d", "\u4e2d\u6587", "<|im_start|>", "\U0001f600"]


class Ours:
    """Our tokenizer behind tests/interop/tokenizer_ids.cpp."""

    def __init__(self, program, path):
        self.program, self.path = program, str(path)

    def run(self, mode, data):
        result = subprocess.run([self.program, self.path, mode], input=data, stdout=subprocess.PIPE, check=True)
        return result.stdout

    def encode(self, texts, special):
        data = b"".join(struct.pack("<I", len(raw)) + raw for raw in (text.encode() for text in texts))
        out, at, rows = self.run("encode-special" if special else "encode", data), 0, []
        for _ in texts:
            count, = struct.unpack_from("<I", out, at)
            rows.append(array.array("i", out[at + 4 : at + 4 + 4 * count]).tolist())
            at += 4 + 4 * count
        assert at == len(out)
        return rows

    def decode(self, rows, skip):
        data = b"".join(struct.pack("<I", len(ids)) + array.array("i", ids).tobytes() for ids in rows)
        out, at, texts = self.run("decode-skip" if skip else "decode", data), 0, []
        for _ in rows:
            size, = struct.unpack_from("<I", out, at)
            texts.append(out[at + 4 : at + 4 + size].decode())
            at += 4 + size
        assert at == len(out)
        return texts


class Parity:
    def __init__(self, program):
        self.program, self.failures, self.texts, self.bytes = program, 0, 0, 0

    def fail(self, message):
        self.failures += 1
        if self.failures <= 20:
            print("FAIL " + message)

    def compare(self, name, theirs, path, texts, decode=True):
        """Both on all texts: ids with and without special tokens, and the ids decoded."""
        ours, texts = Ours(self.program, path), iter(texts)
        while chunk := [text for _, text in zip(range(CHUNK), texts)]:
            self.texts += len(chunk)
            self.bytes += sum(len(text.encode()) for text in chunk)
            expected = [e.ids for e in theirs.encode_batch_fast(chunk, add_special_tokens=True)]
            found = ours.encode(chunk, True)
            for text, want, have in zip(chunk, expected, found):
                if want != have:
                    self.fail(f"{name}: encode {text[:200]!r}: found {have[:40]}, expected {want[:40]}")
            if decode:
                self.compare_decode(name, theirs, ours, expected)

    def compare_decode(self, name, theirs, ours, rows):
        for skip in (False, True):
            expected = theirs.decode_batch(rows, skip_special_tokens=skip)
            for ids, want, have in zip(rows, expected, ours.decode(rows, skip)):
                if want != have:
                    self.fail(f"{name}: decode {ids[:40]} skip={skip}: found {have[:200]!r}, expected {want[:200]!r}")

    def compare_without_special(self, name, theirs, path, texts):
        expected = [e.ids for e in theirs.encode_batch_fast(texts, add_special_tokens=False)]
        for text, want, have in zip(texts, expected, Ours(self.program, path).encode(texts, False)):
            if want != have:
                self.fail(f"{name}: encode without special tokens {text[:200]!r}: found {have[:40]}, expected {want[:40]}")


def random_text(draw, added):
    parts = []
    for _ in range(draw.choice((1, 2, 3, 5, 8, 13, 30))):
        kind = draw.random()
        if kind < 0.40:
            parts.append(draw.choice(WORDS))
        elif kind < 0.60:
            parts.append(draw.choice(SPACES))
        elif kind < 0.70:
            parts.append("".join(draw.choice(MARKS) for _ in range(draw.randint(1, 4))))
        elif kind < 0.82:
            first, last = draw.choice(RANGES)
            parts.append("".join(chr(code) for code in (draw.randint(first, last) for _ in range(draw.randint(1, 4)))
                                 if not 0xD800 <= code < 0xE000))
        elif kind < 0.90:
            parts.append(draw.choice(WORDS)[0:1] * draw.choice((2, 3, 9, 70)))
        elif added:
            token = draw.choice(added)
            parts.append(token if draw.random() < 0.7 else token[: draw.randint(0, len(token))])
        if draw.random() < 0.4:
            parts.append(" ")
    return "".join(parts)


def random_ids(draw, size):
    return [draw.randrange(size) for _ in range(draw.randint(0, 12))]


def code_points(last):
    return (code for code in range(last + 1) if not 0xD800 <= code < 0xE000)


def contexts(long):
    """Every code point as "a{c}a", " {c}", "1{c}"; the short run packs many into a text and leaves out unassigned planes."""
    if long:
        for code in code_points(0x10FFFF):
            yield from (f"a{chr(code)}a", f" {chr(code)}", f"1{chr(code)}")
        return
    codes = [code for code in code_points(0xE0200) if code < 0x32400 or code >= 0xE0000]
    for at in range(0, len(codes), 64):
        yield "".join(f"a{chr(code)}a\n {chr(code)}\n1{chr(code)}\n" for code in codes[at : at + 64])


def corpora(data, long):
    """(name, texts) of each corpus; the short run takes every fourth text."""
    step = 1 if long else 4
    for path in sorted([*(data / "text").glob("*"), *(data / "sft").glob("*")]):
        text = (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()).decode()
        if ".jsonl" in path.name:
            yield path.name, [value for line in text.split("\n") if line for value in json.loads(line).values()][::step]
        else:
            yield path.name, [text, *(text[at : at + 3000] for at in range(0, len(text), 3000))][::step]


def made_up(hf, draw, folder, base, count):
    """Tokenizers with random added tokens of every combination of flags, as Hugging Face saves them."""
    for number in range(count):
        tokenizer = hf.Tokenizer.from_file(str(base))
        added, strip = draw.sample(ADDED, draw.randint(1, 10)), draw.random() < 0.7
        if strip:  # Hugging Face panics when a token that begins with a space meets space that another one stripped
            added = [content for content in added if content == content.strip()]
        # Of two tokens with one normal form Hugging Face takes either, by the order of a hash map.
        forms = [unicodedata.normalize("NFC", content) for content in added]
        added = [content for i, content in enumerate(added) if forms[i] not in forms[:i]]
        for content in added:
            flags = {flag: draw.random() < 0.4 for flag in ("single_word", "normalized")}
            flags |= {flag: strip and draw.random() < 0.4 for flag in ("lstrip", "rstrip")}
            token = hf.AddedToken(content, special=draw.random() < 0.5, **flags)
            tokenizer.add_tokens([token])
        path = folder / f"{base.parent.name}-{number}.json"
        tokenizer.save(str(path))
        yield path, added or [""]


def sparse(draw, folder, base, count):
    """Tokenizers whose vocabulary lacks some bytes, with every combination of unk_token, fuse_unk and byte_fallback."""
    for number in range(count):
        file = json.loads(base.read_text(encoding="utf-8"))
        model = file["model"]
        letters = [token for token in model["vocab"] if len(token) == 1]
        absent = set(draw.sample(letters, draw.choice((1, 3, 20, 100))))
        model["vocab"] = {token: i for i, token in enumerate(t for t in model["vocab"] if not absent & set(t))}
        merges = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
        model["merges"] = [pair for pair in merges if "".join(pair) in model["vocab"]]
        model["unk_token"] = draw.choice((None, "<unk>"))
        model["fuse_unk"], model["byte_fallback"] = draw.random() < 0.5, draw.random() < 0.5
        names = {f"<0x{byte:02X}>" for byte in range(256)}
        new = ["<unk>", "<unk><unk>", "<unk>a", "e<unk>", *sorted(name for name in names if draw.random() < 0.7)]
        for token in new:
            model["vocab"].setdefault(token, len(model["vocab"]))
        for pair in (["<unk>", "<unk>"], ["<unk>", "a"], ["e", "<unk>"]):
            if all(part in model["vocab"] for part in pair):
                model["merges"].insert(draw.randint(0, len(model["merges"])), pair)
        file["added_tokens"], file["post_processor"] = [], None
        path = folder / f"sparse-{base.parent.name}-{number}.json"
        path.write_text(json.dumps(file), encoding="utf-8")
        yield path


def added_text(draw, added):
    return "".join(draw.choice((draw.choice(added), draw.choice(added), draw.choice(SPACES), draw.choice(WORDS), "_", "\u0301", "a"))
                   for _ in range(draw.randint(1, 9)))


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--long"]
    if len(arguments) != 1:
        sys.exit(__doc__)
    long = "--long" in sys.argv
    try:
        import tokenizers as hf
    except ImportError:
        print("skipped: no Python package `tokenizers` for", sys.executable)
        return SKIPPED

    draw = random.Random(20)
    parity = Parity(arguments[0])
    data = Path(os.environ["MANTISSA_TEST_DATA"]) if os.environ.get("MANTISSA_TEST_DATA") else None
    fixtures = [ROOT / "tests/fixtures/tokenizers" / name / "tokenizer.json" for name in ("gpt2", "llama", "qwen", "sparse", "unknown")]
    real = sorted((data / "tokenizers").glob("*/tokenizer.json")) if data else []
    if not real:
        print("without the real tokenizers and texts: MANTISSA_TEST_DATA is not set")
    begin = time.time()

    def done(what):
        print(f"{time.time() - begin:7.1f} s  {what}: {parity.texts} texts, {parity.bytes / 1e6:.1f} MB, {parity.failures} failures",
              flush=True)

    for path in [*fixtures, *real]:
        name, theirs = path.parent.name, hf.Tokenizer.from_file(str(path))
        added = [token.content for token in theirs.get_added_tokens_decoder().values()]
        if path in real:
            for corpus, texts in corpora(data, long):
                parity.compare(f"{name} {corpus}", theirs, path, texts)
                done(f"{name} {corpus}")
        if path in real or (not real and name not in ("sparse", "unknown")):
            parity.compare(name, theirs, path, contexts(long), decode=False)
            done(f"{name} code points")
        count = 1_000_000 // len(real or fixtures) if long else 4_000
        if path in real or not long or not real:
            parity.compare(name, theirs, path, (random_text(draw, added) for _ in range(count)))
        parity.compare_without_special(name, theirs, path, [random_text(draw, added) for _ in range(1000)])
        rows = [random_ids(draw, theirs.get_vocab_size() + 8) for _ in range(5000)]
        parity.compare_decode(name, theirs, Ours(arguments[0], path), rows)
        done(f"{name} random")

    with tempfile.TemporaryDirectory() as folder:
        for base in fixtures:
            for path, added in made_up(hf, draw, Path(folder), base, 200 if long else 12):
                theirs = hf.Tokenizer.from_file(str(path))
                parity.compare(path.name, theirs, path, [added_text(draw, added) for _ in range(500)])
            done(f"{base.parent.name} with made-up added tokens")
            for path in sparse(draw, Path(folder), base, 200 if long else 12):
                theirs = hf.Tokenizer.from_file(str(path))
                parity.compare(path.name, theirs, path, [random_text(draw, []) for _ in range(500)])
            done(f"{base.parent.name} with bytes that have no token")
    return 1 if parity.failures else 0


if __name__ == "__main__":
    sys.exit(main())
