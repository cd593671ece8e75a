#!/usr/bin/env python3
"""Writes the Unicode tables of src/data/tokenizer/: char_class_table.cpp, nfc_class_table.cpp, nfc_pair_table.cpp.

usage: make_unicode_tables.py UCD [OUT]     UCD holds UnicodeData.txt, DerivedAge.txt, DerivedNormalizationProps.txt,
                                            PropList.txt (Debian's package unicode-data: /usr/share/unicode)

Letters, numbers, white space and word characters are those of Unicode 16.0, which the regular expressions of Hugging
Face `tokenizers` 0.23 follow; they come from `pip install unicodedata2==16.0.0`. Canonical normalisation there is that of
Unicode 9.0: UCD is read as far as DerivedAge <= 9.0 goes (what a code point decomposes to never changes after it was
assigned: https://www.unicode.org/policies/stability_policy.html).
"""
import sys
from pathlib import Path

import unicodedata2

LIMIT = 0x110000
NFC_AGE = 9.0
BLOCK = 128
LETTER, NUMBER, SPACE, WORD = 1, 2, 3, 4


def fields(path):
    """(first, last, fields) of each line of a UCD file whose first field is a code point or a range."""
    for line in path.read_text(encoding="utf-8").splitlines():
        line = line.split("#")[0].strip()
        if line:
            parts = [part.strip() for part in line.split(";")]
            ends = [int(end, 16) for end in parts[0].split("..")]
            yield ends[0], ends[-1], parts[1:]


def char_classes(ucd):
    """One nibble a code point: LETTER, NUMBER or SPACE, and WORD for a word character (\\w of UTS 18, Annex C)."""
    classes = bytearray(LIMIT)
    for code in range(LIMIT):
        category = unicodedata2.category(chr(code))
        classes[code] = LETTER if category[0] == "L" else NUMBER if category[0] == "N" else 0
        if category[0] in "LM" or category in ("Nd", "Nl", "Pc") or code in (0x200C, 0x200D):
            classes[code] |= WORD
    for first, last, parts in fields(ucd / "PropList.txt"):
        for code in range(first, last + 1):
            if parts[0] == "White_Space":
                classes[code] = classes[code] & WORD | SPACE
            elif parts[0] == "Other_Alphabetic":
                classes[code] |= WORD
    return classes


def canonical(ucd):
    """(combining class of each code point, decompositions {code: [a] or [a, b]}, the codes that nothing composes to)."""
    old = set()
    for first, last, parts in fields(ucd / "DerivedAge.txt"):
        if float(parts[0]) <= NFC_AGE:
            old.update(range(first, last + 1))
    combining, decompositions = bytearray(LIMIT), {}
    for code, _, parts in fields(ucd / "UnicodeData.txt"):
        if code in old:
            combining[code] = int(parts[2])
            if parts[4] and not parts[4].startswith("<"):
                decompositions[code] = [int(part, 16) for part in parts[4].split()]
    excluded = set()
    for first, last, parts in fields(ucd / "DerivedNormalizationProps.txt"):
        if parts[0] == "Full_Composition_Exclusion":
            excluded.update(range(first, last + 1))
    return combining, decompositions, excluded


def nfc_classes(combining, decompositions, excluded):
    """0: a starter that text in NFC may hold anywhere; 255: another starter; else the combining class."""
    classes = bytearray(combining)
    suspects = set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))  # Hangul vowels and trailing consonants
    suspects |= {code for code in decompositions if code in excluded}
    suspects |= {parts[1] for code, parts in decompositions.items() if code not in excluded}
    assert max(combining) < 255
    for code in suspects:
        classes[code] = classes[code] or 255
    return classes


def two_stage(values):
    """(block numbers, blocks) of the table cut every BLOCK entries, each different block once."""
    numbers, blocks = [], {}
    for start in range(0, LIMIT, BLOCK):
        numbers.append(blocks.setdefault(bytes(values[start : start + BLOCK]), len(blocks)))
    assert len(blocks) <= 256
    return numbers, list(blocks)


def rows(items, width=114):
    """The items as lines of a braced list."""
    line, out = "", []
    for item in items:
        if len(line) + len(item) + 2 > width:
            out.append(line)
            line = ""
        line += (" " if line else "") + item + ","
    return ["    " + text for text in out + [line]]


def words(data):
    """Little-endian 64-bit words of bytes, as literals."""
    return [f"0x{int.from_bytes(data[at : at + 8], 'little'):x}" for at in range(0, len(data), 8)]


def pack_nibbles(block):
    return bytes(block[at] | block[at + 1] << 4 for at in range(0, len(block), 2))


def write(path, comment, declarations):
    text = [f"// {comment} Written by tools/make_unicode_tables.py.", '#include "data/tokenizer/unicode.h"', ""]
    text += ["// clang-format off", "namespace mantissa::tokenizer {", ""]
    for head, items in declarations:
        text += [f"{head} = {{"] + rows(items) + ["};", ""]
    text += ["}  // namespace mantissa::tokenizer"]
    path.write_text("\n".join(text) + "\n", encoding="utf-8")
    print(f"{path}: {len(text)} lines")


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    ucd = Path(sys.argv[1])
    out = Path(sys.argv[2] if len(sys.argv) == 3 else Path(__file__).parent.parent / "src/data/tokenizer")
    if unicodedata2.unidata_version != "16.0.0":
        sys.exit(f"unicodedata2 holds Unicode {unicodedata2.unidata_version}, expected 16.0.0")

    numbers, blocks = two_stage(char_classes(ucd))
    packed = b"".join(map(pack_nibbles, blocks))
    write(out / "char_class_table.cpp", "Unicode 16.0: letters, numbers, white space, word characters.", [
        (f"const uint8_t kCharClassBlocks[{len(numbers)}]", map(str, numbers)),
        (f"const uint64_t kCharClasses[{len(packed) // 8}]", words(packed))])

    combining, decompositions, excluded = canonical(ucd)
    numbers, blocks = two_stage(nfc_classes(combining, decompositions, excluded))
    packed = b"".join(blocks)
    write(out / "nfc_class_table.cpp", "Unicode 9.0: what NFC has to look at.", [
        (f"const uint8_t kNfcClassBlocks[{len(numbers)}]", map(str, numbers)),
        (f"const uint64_t kNfcClasses[{len(packed) // 8}]", words(packed))])

    codes = sorted(decompositions)
    pairs = [(*decompositions[code], at) for at, code in enumerate(codes) if code not in excluded]
    assert all(len(pair) == 3 for pair in pairs)
    triples = [f"{{0x{code:x},0x{parts[0]:x},0x{parts[1] if len(parts) == 2 else 0:x}}}"
               for code, parts in sorted(decompositions.items())]
    write(out / "nfc_pair_table.cpp", "Unicode 9.0: canonical decompositions, and those that compose.", [
        (f"const Decomposition kDecompositions[{len(codes)}]", triples),
        (f"const uint16_t kCompositions[{len(pairs)}]", [str(at) for _, _, at in sorted(pairs)])])
    print(f"unicode.h: kDecompositionCount {len(codes)}, kCompositionCount {len(pairs)}, "
          f"NFC class words {len(packed) // 8}")


if __name__ == "__main__":
    main()
