#!/usr/bin/env python3
"""Checks the house: who may include whom, no CUDA header outside cuda/, kernels free of the standard library's
containers, no branch on a recipe's name outside recipes/, no file over 600 lines.

usage: check_layers.py [ROOT]     prints "file:line: what is wrong" for each finding; exit 1 if there is any
"""
import re
import sys
from pathlib import Path

MAX_LINES = 600

CHAIN = ["base", "numerics", "tensor", "ops", "recipes", "model", "train", "app"]
ALLOWED = {folder: set(CHAIN[: i + 1]) for i, folder in enumerate(CHAIN)}
ALLOWED["data"] = {"base", "data"}
ALLOWED["report"] = {"base", "report"}
ALLOWED["device"] = ALLOWED["recipes"] | {"device"}
ALLOWED["generation"] = ALLOWED["model"] | {"data", "generation"}
ALLOWED["train"] |= {"data", "device", "generation"}
ALLOWED["app"] |= ALLOWED["train"] | {"report"}
ALLOWED["gpu"] = ALLOWED["train"]  # tests of the GPU, from ops to runs
ALLOWED["modules"] = ALLOWED["ops"] | {"data", "modules"}  # libraries loaded at run time

RECIPES = ["fp8-delayed", "fp8-tensorwise", "fp8-blockwise", "mxfp8", "nvfp4"]
# (file, what it may name): the reason. Names that are data, never a choice between behaviours.
RECIPE_NAMES_ALLOWED: dict[tuple[str, str], str] = {}

GENERATED = {"commit.h"}  # headers that the build writes

CODE = {".h", ".cpp", ".cu", ".cuh"}
COUNTED = CODE | {".py", ".sh", ".cmake", ".md", ".txt", ".js", ".css", ".html"}
COUNTED_FOLDERS = ["src", "tests", "bench", "tools", "docs", "cmake", "configs"]

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
CUDA_HEADER = re.compile(r"^(cuda|cublas|cudnn|cusolver|cusparse|curand|cutlass|cute|nccl|nvtx|nvml)")
KERNEL_HEADERS = {
    "vector", "string", "string_view", "map", "unordered_map", "set", "unordered_set", "deque", "list", "array", "span",
    "functional", "optional", "variant", "any", "sstream", "iostream", "regex", "stdexcept",
}
KERNEL_TOKENS = re.compile(
    r"\bstd::(vector|string|map|unordered_map|set|function|optional|variant|array|span|ostream)\b|\bfmt::|\bthrow\b|\btry\b"
)
RECIPE_LITERAL = re.compile(r'"(' + "|".join(RECIPES) + r')"')
RECIPE_COMPARED = re.compile(r'recipe[\w.()>-]*\s*[!=]=\s*"(bf16|fp32)"|"(bf16|fp32)"\s*[!=]=\s*[\w.()>-]*recipe')


def without_comments(text: str) -> str:
    """The text with comments blanked, line numbers and string literals kept."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)

    def blank(match: re.Match) -> str:
        piece = match.group(0)
        return re.sub(r"[^\n]", " ", piece) if piece.startswith("/") else piece

    return pattern.sub(blank, text)


def check_include(folder: str, quoted: bool, name: str, in_tests: bool) -> str | None:
    if not quoted:
        return None
    if name in GENERATED:
        return None
    top = name.split("/")[0]
    if name.startswith(".") or "/" not in name:
        return f'"{name}" is not written from src/ ("{folder}/...")'
    if in_tests and top == "tests":
        return None
    if top not in ALLOWED:
        return None if top in {"nlohmann", "oneapi"} else f'"{name}" is no folder of src/'
    if top not in ALLOWED[folder]:
        return f"{folder} includes {name}, may include only {' '.join(sorted(ALLOWED[folder]))}"
    return None


def check_code(root: Path, path: Path, findings: list[str]) -> None:
    relative = path.relative_to(root).as_posix()
    parts = relative.split("/")
    in_src, in_tests = parts[0] == "src", parts[0] == "tests"
    folder = parts[1] if len(parts) > 2 else ""
    layered = folder in ALLOWED and (in_src or in_tests)
    if in_src and not layered:
        findings.append(f"{relative}:1: {folder or 'a file'} is no known folder of src/")
        return
    in_cuda = "cuda" in parts[:-1]
    kernel = in_src and parts[1:3] == ["ops", "cpu"]
    if path.suffix in {".cu", ".cuh"} and in_src and not in_cuda:
        findings.append(f"{relative}:1: CUDA source outside a cuda/ folder")
    code = without_comments(path.read_text(encoding="utf-8"))
    for number, line in enumerate(code.splitlines(), 1):

        def report(what: str) -> None:
            findings.append(f"{relative}:{number}: {what}")

        include = INCLUDE.match(line)
        if include:
            name = include.group(2)
            wrong = check_include(folder, include.group(1) == '"', name, in_tests) if layered else None
            if wrong:
                report(wrong)
            if in_src and not in_cuda and CUDA_HEADER.match(name):
                report(f"CUDA header {name} outside a cuda/ folder")
            if kernel and (name in KERNEL_HEADERS or name.startswith("fmt/") or name == "base/error.h"):
                report(f"{name} in a CPU kernel: its inline functions would be compiled for one instruction set and linked for all")
            continue
        if kernel and KERNEL_TOKENS.search(line):
            report(f"{KERNEL_TOKENS.search(line).group(0)} in a CPU kernel")
        if in_src and folder != "recipes":
            for literal in RECIPE_LITERAL.findall(line):
                if (relative, literal) not in RECIPE_NAMES_ALLOWED:
                    report(f'recipe name "{literal}" outside recipes/')
            if RECIPE_COMPARED.search(line):
                report("branch on a recipe's name outside recipes/")


def check(root: Path) -> list[str]:
    findings: list[str] = []
    for name in COUNTED_FOLDERS:
        for path in sorted((root / name).rglob("*")):
            if not path.is_file() or "golden" in path.parts or path.suffix not in COUNTED:
                continue
            lines = path.read_bytes().count(b"\n")
            if lines > MAX_LINES:
                findings.append(f"{path.relative_to(root).as_posix()}:{MAX_LINES + 1}: {lines} lines, at most {MAX_LINES}")
            if path.suffix in CODE:
                check_code(root, path, findings)
    for file, literal in RECIPE_NAMES_ALLOWED:
        if not (root / file).is_file() and root == ROOT:
            findings.append(f"tools/check_layers.py:1: allows {literal} in {file}, which does not exist")
    return findings


ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    root = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT
    if not (root / "src").is_dir():
        print(f"{root}: no src/ here", file=sys.stderr)
        return 2
    findings = check(root)
    for finding in findings:
        print(finding)
    print(f"{len(findings)} findings" if findings else "layers, headers, recipe names and file sizes: in order", file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
