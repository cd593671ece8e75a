"""What a PyTorch user gets on this CPU: whole optimizer steps of a Qwen3-shaped model through transformers.

A step is forward, loss, backward, gradient clipping at 1.0 and fused AdamW on random tokens; BF16 holds weights, gradients
and moments in BF16. One JSON line per (implementation, dtype): tokens_per_s is the median over the steps of --seconds
after the warm-up, first_step_s includes compilation.

usage: torch_step.py [--impl eager,compile] [--dtype bf16,fp32] [--threads 2] [--seconds 20] [sizes]
"""
import argparse
import json
import statistics
import time

import torch
import transformers
from transformers import Qwen3Config, Qwen3ForCausalLM

WARMUP_STEPS = 3


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--impl", default="eager,compile")
    parser.add_argument("--dtype", default="bf16,fp32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--intermediate", type=int, default=768)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--kv-heads", type=int, default=2)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--vocab", type=int, default=256)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--sequence", type=int, default=512)
    return parser.parse_args()


def make_model(a: argparse.Namespace, dtype: torch.dtype) -> Qwen3ForCausalLM:
    config = Qwen3Config(
        vocab_size=a.vocab, hidden_size=a.hidden, intermediate_size=a.intermediate, num_hidden_layers=a.layers,
        num_attention_heads=a.heads, num_key_value_heads=a.kv_heads, head_dim=a.head_dim, tie_word_embeddings=True,
        max_position_embeddings=a.sequence, use_cache=False, attn_implementation="sdpa",
    )
    torch.manual_seed(0)
    return Qwen3ForCausalLM(config).to(dtype).train()


def measure(a: argparse.Namespace, impl: str, dtype_name: str) -> dict:
    model = make_model(a, {"bf16": torch.bfloat16, "fp32": torch.float32}[dtype_name])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    forward = torch.compile(model) if impl == "compile" else model

    def step() -> float:
        tokens = torch.randint(0, a.vocab, (a.batch, a.sequence))
        start = time.perf_counter()
        loss = forward(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return time.perf_counter() - start

    first = step()
    for _ in range(WARMUP_STEPS):
        step()
    times, start = [], time.perf_counter()
    while time.perf_counter() - start < a.seconds or len(times) < 3:
        times.append(step())
    quarters = statistics.quantiles(times, n=4)
    tokens = a.batch * a.sequence
    return {
        "impl": impl, "dtype": dtype_name, "tokens_per_s": tokens / statistics.median(times),
        "spread": (quarters[2] - quarters[0]) / statistics.median(times), "steps": len(times), "first_step_s": first,
        "threads": a.threads, "parameters": sum(p.numel() for p in model.parameters()), "tokens_per_step": tokens,
        "torch": torch.__version__, "transformers": transformers.__version__,
    }


def main() -> None:
    a = parse()
    torch.set_num_threads(a.threads)
    for dtype_name in a.dtype.split(","):
        for impl in a.impl.split(","):
            print(json.dumps(measure(a, impl, dtype_name)), flush=True)


if __name__ == "__main__":
    main()
