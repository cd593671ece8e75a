"""Tokenizers that Mantissa trains: the vocabulary and merges of Hugging Face's BpeTrainer, and files that it loads.

    trained_tokenizer.py MANTISSA              trains, compares, loads in tokenizers and transformers
    trained_tokenizer.py --write GOLDEN.json   what BpeTrainer learns from the committed corpus
"""
import json
import os
import subprocess
import sys
import tempfile

try:
    import transformers
except ImportError:
    transformers = None

SKIPPED = 77
HERE = os.path.dirname(os.path.abspath(__file__))
CORPUS = os.path.join(HERE, "..", "fixtures", "tokenizers", "corpus.txt")
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)"
          r"|\s+")
FAMILIES = {
    "gpt2": (None, False, ["<|endoftext|>"]),
    "llama3": (LLAMA3, False, ["<|begin_of_text|>", "<|end_of_text|>"]),
    "qwen": (LLAMA3.replace("{1,3}", ""), True, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]),
}


def documents(path):
    with open(path, newline="", encoding="utf-8") as file:
        return [part for part in file.read().split("\n\n") if part]


def train(name, docs, size):
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
    pattern, nfc, special = FAMILIES[name]
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)
    tokenizer = Tokenizer(models.BPE())
    if nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = byte_level if pattern is None else pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated"), byte_level])
    tokenizer.train_from_iterator(docs, trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return tokenizer


def learned(tokenizer):
    """Tokens by id and merges as "left right"."""
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    assert [model["vocab"][token] for token in tokens] == list(range(len(tokens)))
    return tokens, [" ".join(merge) if isinstance(merge, list) else merge for merge in model["merges"]]


def write(path):
    docs = documents(CORPUS)
    golden = {}
    for name, (_, nfc, special) in FAMILIES.items():
        tokenizer = train(name, docs, 700)
        tokens, merges = learned(tokenizer)
        golden[name] = {"special": special, "nfc": nfc, "tokens": tokens, "merges": merges,
                        "corpus_tokens": sum(len(tokenizer.encode(doc).ids) for doc in docs)}
    with open(path, "w", encoding="utf-8") as out:
        json.dump(golden, out, indent=0, separators=(",", ":"))
        out.write("\n")


def run(*command, **options):
    return subprocess.run(command, capture_output=True, check=True, **options).stdout


def compare(binary, name, corpus, docs, size, folder):
    from tokenizers import Tokenizer
    _, nfc, special = FAMILIES[name]
    flags = ["--nfc"] * nfc + (["--bos", special[0], "--eos", special[1], "--add-bos"] if name == "llama3" else [])
    run(binary, "tokenizer", "train", "--pattern", name, "--vocab-size", str(size), "--input", corpus, "--out", folder,
        *flags, "--special", *special)
    expected, loaded = train(name, docs, size), Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    assert learned(loaded) == learned(expected), f"{name}: other tokens or merges than BpeTrainer"
    text = "\n\n".join(docs)[:200000] + special[-1] + " e\u0301 '\u017f 12345\r\n\t x" + special[0]
    ids = loaded.encode(text).ids
    assert ids[1 if name == "llama3" else 0:] == expected.encode(text).ids, f"{name}: other ids"
    if transformers:
        auto = transformers.AutoTokenizer.from_pretrained(folder)
        assert auto.eos_token == (special[1] if name == "llama3" else special[0]), auto.eos_token
        assert auto(text).input_ids == ids
    own = run(binary, "tokenizer", "encode", folder, "-", input=text.encode()).decode().split()
    assert [int(word) for word in own] == ids, f"{name}: Mantissa encodes otherwise"
    back = run(binary, "tokenizer", "decode", folder, "-", input=" ".join(own).encode()).decode()
    assert back == loaded.decode(ids, skip_special_tokens=False), f"{name}: Mantissa decodes otherwise"
    print(f"{name}: {size} tokens of {len(docs)} documents, equal; {len(ids)} ids equal")


def compare_bytes(binary, folder):
    from tokenizers import Tokenizer
    run(binary, "tokenizer", "bytes", "--out", folder)
    text = "h\u00e9llo <\u4e16>\n\u0000\u0001 \u00ff \u0100 \U0001f30d  \r\n"
    ids = list(text.encode())
    loaded = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    assert loaded.encode(text).ids == ids and loaded.decode(ids) == text
    if transformers:
        auto = transformers.AutoTokenizer.from_pretrained(folder)
        assert auto(text).input_ids == ids and auto.decode(ids) == text
    print("bytes: ids are bytes")


def main():
    try:
        import tokenizers  # noqa: F401
    except ImportError as error:
        print(f"skipped: {error}")
        return SKIPPED
    if sys.argv[1] == "--write":
        write(sys.argv[2])
        return 0
    if not transformers:
        print("no transformers: loaded with tokenizers alone")
    corpora = [(CORPUS, 700)]
    data = os.environ.get("MANTISSA_TEST_DATA")
    shakespeare = os.path.join(data, "text", "tinyshakespeare.txt") if data else ""
    if os.path.exists(shakespeare):
        corpora.append((shakespeare, 5000))
    else:
        print("MANTISSA_TEST_DATA names no folder with text/tinyshakespeare.txt: the committed corpus alone")
    with tempfile.TemporaryDirectory() as folder:
        for corpus, size in corpora:
            docs = documents(corpus)
            lines = os.path.join(folder, "documents.jsonl")
            with open(lines, "w", encoding="utf-8") as out:
                out.writelines(json.dumps({"text": doc}) + "\n" for doc in docs)
            for name in FAMILIES:
                compare(sys.argv[1], name, lines, docs, size, os.path.join(folder, f"{name}-{size}"))
        compare_bytes(sys.argv[1], os.path.join(folder, "bytes"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
