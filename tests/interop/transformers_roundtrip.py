"""Model folders against transformers.

    transformers_roundtrip.py MANTISSA [--stored]

The goldens, exported by `mantissa export` (FP32, sharded, BF16), load in transformers without a missing, unexpected or
mismatched key and give the logits of the original within 1e-5 relative; a trained run's folder does; folders that
transformers writes itself (sharded, untied, tied with an equal and with a differing head, old torch-style names) are read by
`mantissa probe` with transformers' logits. With --stored the exported goldens alone, against the logits that the goldens store: for
transformers 4, which does not read the rotary keys of the goldens' own config.json.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SKIPPED = 77
try:
    import torch
    import transformers
    from safetensors.torch import load_file, save_file
    from transformers import AutoModelForCausalLM
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(SKIPPED)

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
MODELS = ("gpt2", "llama", "qwen2", "qwen3")
MANTISSA = sys.argv[1]
failures = []


def expect(condition, message):
    print(("ok    " if condition else "FAIL  ") + message)
    if not condition:
        failures.append(message)


def run(*args, code=0):
    done = subprocess.run([MANTISSA, *map(str, args)], capture_output=True, text=True)
    if done.returncode != code:
        raise SystemExit(f"mantissa {' '.join(map(str, args))}: exit {done.returncode}, expected {code}\n{done.stderr}")
    return done.stdout + done.stderr


def load(folder, dtype=torch.float32):
    model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, output_loading_info=True,
                                                       attn_implementation="eager")
    trouble = {key: sorted(map(str, value)) for key, value in info.items() if value}
    return model.eval(), trouble


def logits(model, ids):
    with torch.no_grad():
        return model(ids).logits.float()


def relative(a, b):
    return ((a - b).norm() / b.norm()).item()


def token_rows(vocab):
    return torch.randint(0, vocab, (4, 48), generator=torch.Generator().manual_seed(11))


def probe_logits(folder, ids, work):
    save_file({"input_ids": ids}, work / "tokens.safetensors")
    text = run("probe", folder, f"--input={work / 'tokens.safetensors'}", f"--output={work / 'out.safetensors'}")
    return load_file(work / "out.safetensors")["logits"], text


def exports(work):
    for name in MODELS:
        source = GOLDEN / name
        original, trouble = load(source)
        assert not trouble, trouble
        ids = token_rows(original.config.vocab_size)
        want = logits(original, ids)
        for form, flags in (("fp32", []), ("sharded", ["--shard-gb=0.0001"])):
            out = work / f"{name}-{form}"
            run("export", source, out, *flags)
            shards = sorted(file.name for file in out.glob("model-*.safetensors"))
            expect((form == "sharded") == (len(shards) > 1), f"{name} {form}: {len(shards)} shards")
            model, trouble = load(out)
            expect(not trouble, f"{name} {form}: loads with every key and no other {trouble or ''}")
            error = relative(logits(model, ids), want)
            expect(error <= 1e-5, f"{name} {form}: logits differ by {error:.2e} (1e-5 allowed)")
            ours = probe_logits(out, ids, work)[0]
            error = relative(ours, want)
            expect(error <= 1e-4, f"{name} {form}: probe differs from transformers by {error:.2e} (1e-4 allowed)")
            check_config(name, form, model, original, out)
        out = work / f"{name}-bf16"
        run("export", source, out, "--dtype=bf16")
        model, trouble = load(out)
        expect(not trouble, f"{name} bf16: loads with every key and no other {trouble or ''}")
        same = all(torch.equal(p, q.to(torch.bfloat16).float())
                   for p, q in zip(model.state_dict().values(), original.state_dict().values()))
        expect(same, f"{name} bf16: every value is the original's rounded to nearest even")
        # Without a dtype transformers follows the folder.
        follows = AutoModelForCausalLM.from_pretrained(out, dtype="auto").dtype
        expect(follows == torch.bfloat16, f"{name} bf16: dtype auto loads {follows}")


def check_config(name, form, model, original, out):
    written = json.loads((out / "config.json").read_text())
    for key in ("rope_theta", "rope_parameters", "rope_scaling") if name != "gpt2" else ():
        expect(key in written, f"{name} {form}: config.json has {key}")
    expect(written["torch_dtype"] == written["dtype"] == "float32", f"{name} {form}: config.json has both dtype keys")
    # What training changes or depends on; names of the writer and of files are free.
    free = {"transformers_version", "_name_or_path", "use_cache", "task_specific_params", "head_dim", "pretraining_tp",
            "max_window_layers"}
    a, b = model.config.to_dict(), original.config.to_dict()
    different = {key for key in a.keys() | b.keys() if a.get(key) != b.get(key)} - free
    expect(not different, f"{name} {form}: config as the original's {sorted(different) or ''}")


def against_stored(work):
    for name in MODELS:
        out = work / f"{name}-stored"
        run("export", GOLDEN / name, out)
        model, trouble = load(out)
        golden = load_file(GOLDEN / name / "golden.safetensors")
        error = relative(logits(model, golden["input_ids"]), golden["logits"])
        expect(not trouble and error <= 1e-5, f"{name}: logits differ from the stored ones by {error:.2e} (1e-5 allowed)")


def own_folders(work):
    """Folders of transformers' own making, and what becomes of lm_head.weight."""
    for name in MODELS:
        model, _ = load(GOLDEN / name)
        ids = token_rows(model.config.vocab_size)
        out = work / f"hf-{name}"
        model.save_pretrained(out, max_shard_size="100KB")
        expect((out / "model.safetensors.index.json").exists(), f"{name}: transformers wrote shards")
        error = relative(probe_logits(out, ids, work)[0], logits(model, ids))
        expect(error <= 1e-4, f"{name}: its shards read here, logits differ by {error:.2e}")
    for name, embedding in (("gpt2", "transformer.wte.weight"), ("qwen3", "model.embed_tokens.weight")):
        base = GOLDEN / name
        tensors = load_file(base / "model.safetensors")
        for form in ("equal", "differing", "alone"):
            out = work / f"{name}-head-{form}"
            out.mkdir()
            shutil.copy(base / "config.json", out)
            changed = dict(tensors)
            changed["lm_head.weight"] = tensors[embedding].clone()
            if form == "differing":
                changed["lm_head.weight"][3] += 0.5
            if form == "alone":
                del changed[embedding]
            save_file(changed, out / "model.safetensors", metadata={"format": "pt"})
            model, _ = load(out)
            ids = token_rows(model.config.vocab_size)
            ours, said = probe_logits(out, ids, work)
            error = relative(ours, logits(model, ids))
            expect(error <= 1e-4, f"{name}: lm_head {form}: logits differ by {error:.2e}")
            expect(("left untied" in said) == (form == "differing"), f"{name}: lm_head {form}: notice")
            if form == "differing":
                run("export", out, work / f"{name}-untied")
                again, trouble = load(work / f"{name}-untied")
                error = relative(logits(again, ids), logits(model, ids))
                expect(not trouble and not again.config.tie_word_embeddings and error <= 1e-5,
                       f"{name}: exported untied, logits differ by {error:.2e}")
    # GPT-2 as its first releases were: no prefix, the causal mask saved in each layer.
    old = work / "gpt2-old"
    old.mkdir()
    shutil.copy(GOLDEN / "gpt2" / "config.json", old)
    tensors = {key.removeprefix("transformer."): value for key, value in load_file(GOLDEN / "gpt2" / "model.safetensors").items()}
    for layer in range(2):
        tensors[f"h.{layer}.attn.bias"] = torch.ones(1, 1, 8, 8).tril()
    save_file(tensors, old / "model.safetensors", metadata={"format": "pt"})
    model, _ = load(old)
    ids = token_rows(model.config.vocab_size)
    error = relative(probe_logits(old, ids, work)[0], logits(model, ids))
    expect(error <= 1e-4, f"gpt2 of old names: logits differ by {error:.2e}")


def trained_run(work):
    text = work / "text.txt"
    text.write_text("\n\n".join(f"{i} times {i} is {i * i}, and that is all." for i in range(2000)))
    for weights in ("fp32", "bf16"):
        folder = work / f"run-{weights}"
        config = work / "c.yaml"
        config.write_text(f"""
run: {{dir: {folder}}}
model: {{arch: qwen3, hidden_size: 64, intermediate_size: 128, num_hidden_layers: 2, num_attention_heads: 4, head_dim: 16}}
data: {{train: {text}, sequence_length: 64}}
batch: {{tokens: 256}}
precision: {{weights: {weights}}}
train: {{steps: 3, eval_rows: 1}}
log: {{console: false}}
""")
        run("train", config)
        run("verify", folder)
        model, trouble = load(folder / "model")
        expect(not trouble, f"run with {weights} weights: its folder loads {trouble or ''}")
        tensors = load_file(folder / "model" / "model.safetensors")
        dtypes = {str(value.dtype) for value in tensors.values()}
        expect(dtypes == {"torch.float32" if weights == "fp32" else "torch.bfloat16"}, f"run with {weights} weights: {dtypes}")
        ids = token_rows(256)
        error = relative(probe_logits(folder / "model", ids, work)[0], logits(model, ids))
        expect(error <= 1e-4, f"run with {weights} weights: probe differs from transformers by {error:.2e}")
        check_bytes_tokenizer(folder / "model")


def check_bytes_tokenizer(folder):
    from transformers import AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = "Bytes: \u00e9\u4e2d\U0001f600 \n\t end"
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    expect(ids == list(text.encode()), f"{folder.parent.name}: tokenizer of bytes gives bytes")
    expect(tokenizer.decode(ids) == text, f"{folder.parent.name}: and decodes them")


def main():
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        against_stored(work)
        if "--stored" in sys.argv:
            return finish()
        exports(work)
        own_folders(work)
        trained_run(work)
    return finish()


def finish():
    print(f"{len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    sys.exit(main())
