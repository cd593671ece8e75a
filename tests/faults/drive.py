#!/usr/bin/env python3
"""Makes each call of a kind fail, one after the other, and holds what the program does to docs/faults.md.

usage: drive.py --program build/mantissa --preload build/libmantissa_faults.so [--quick] [--jobs N]
                [--scenario NAME ...] [--mode NAME ...] [--call N] [--audit]
prints a line for each finding; exit 1 if there is any, 77 when nothing could be run
"""
from __future__ import annotations

import argparse
import collections
import concurrent.futures
import difflib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from scenarios import RATES, SCENARIOS, TIMES, Maker, Scenario  # noqa: E402

USAGE, INPUT, STORAGE, MEMORY = 2, 3, 4, 6
SECONDS = 60  # a run that takes longer hangs


@dataclass(frozen=True)
class Mode:
    name: str
    calls: str  # kinds that share one count
    error: str
    codes: tuple[int, ...] = ()  # of a failure; none: nothing is lost, the program ends as ever
    sticky: bool = False  # every call from the n-th on
    leaves: bool = False  # what was begun may stay, under a temporary name


WRITES = "create,write,truncate,rename,mkdir,remove,fsync,link"
MODES = [
    Mode("open", "open", "EIO", (INPUT, STORAGE)),
    Mode("create", "create", "ENOSPC", (STORAGE,)),
    Mode("read", "read", "EIO", (INPUT, STORAGE)),
    Mode("read-interrupted", "read", "EINTR"),
    Mode("read-short", "read", "SHORT"),
    Mode("read-end", "read", "END", (INPUT, STORAGE), sticky=True),
    Mode("write", "write", "EIO", (STORAGE,)),
    Mode("write-interrupted", "write", "EINTR"),
    Mode("write-short", "write", "SHORT"),
    Mode("full", "create,write,mkdir", "ENOSPC", (STORAGE,), sticky=True),
    Mode("close", "close", "EIO", (STORAGE,)),
    Mode("leave", "leave", "EIO"),
    Mode("rename", "rename", "EIO", (STORAGE,)),
    Mode("fsync", "fsync", "EIO", (STORAGE,)),
    Mode("mmap", "mmap", "ENOMEM", (INPUT, STORAGE, MEMORY)),
    Mode("bus", "mmap", "BUS", (INPUT, STORAGE)),
    Mode("truncate", "truncate", "EIO", (STORAGE,)),
    Mode("mkdir", "mkdir", "ENOSPC", (STORAGE,)),
    Mode("remove", "remove", "EACCES", (STORAGE,), leaves=True),
    Mode("list", "list", "EIO", (INPUT, STORAGE), leaves=True),
    Mode("stat", "stat", "EIO", (INPUT, STORAGE), leaves=True),
    Mode("link", "link", "EIO", (STORAGE,)),
    Mode("lock", "lock", "ENOLCK", (STORAGE,)),
    Mode("killed", WRITES, "KILL", (-9,), leaves=True),
]

Tree = dict[str, tuple]  # relative path -> what stands there
TEMPORARY = re.compile(r"\.(tmp|new|old)-[0-9a-f]+")
LIBRARY_TEXT = re.compile(r"json\.exception|filesystem error|std::|terminate called|what\(\)|basic_string")


def tree_of(root: Path) -> Tree:
    tree: Tree = {}
    for folder, folders, files in os.walk(root):
        for name in folders + files:
            path = Path(folder, name)
            key = path.relative_to(root).as_posix()
            if path.is_symlink():
                tree[key] = ("link", os.readlink(path))
            elif path.is_dir():
                tree[key] = ("folder",)
            else:
                tree[key] = ("file", path.read_bytes().replace(str(root).encode(), b"ROOT"))
    return tree


def part(tree: Tree, names: list[str]) -> Tree:
    return {k: v for k, v in tree.items() if any(k == n or k.startswith(n + "/") for n in names)}


@dataclass
class Ran:
    code: int | None  # None: it did not end
    out: str
    err: str
    log: list[str]
    after: Tree

    def hits(self) -> list[str]:
        return [line[1:] for line in self.log if line.startswith("!")]


class Bench:
    """One scenario: its files as they stand before, what a run without a fault makes of them."""

    def __init__(self, scenario: Scenario, arguments: argparse.Namespace, place: Path):
        self.scenario, self.arguments, self.place = scenario, arguments, place
        self.root, self.pristine = place / "root", place / "pristine"
        self.root.mkdir()
        scenario.build(Maker(arguments.program, arguments.source), self.root)
        # Of another origin: nothing that the command may touch.
        (self.root / "beside").mkdir()
        (self.root / "beside/notes.txt").write_text("mine\n")
        (self.root / "linked").symlink_to("beside/notes.txt")
        shutil.copytree(self.root, self.pristine, symlinks=True)
        self.before = tree_of(self.root)
        self.plain = self.run({})
        if self.plain.code != 0:
            raise SystemExit(f"faults: {scenario.name}: exits with {self.plain.code} without a fault: {self.plain.err}")
        if not self.plain.log:
            raise SystemExit(f"faults: {scenario.name}: {arguments.preload} sees no call: {self.plain.err}")
        again = self.run({})
        if self.known(again.after) != self.known(self.plain.after):
            raise SystemExit(f"faults: {scenario.name}: two runs differ: {self.differences(again.after)}")
        missing = [name for name in scenario.whole + scenario.grows if name not in self.plain.after]
        if missing:
            raise SystemExit(f"faults: {scenario.name}: wrote no {missing}")

    def run(self, faults: dict[str, str], restore: bool = True, strace: Path | None = None) -> Ran:
        root, log = self.root, self.place / "calls"
        log.unlink(missing_ok=True)
        if restore:
            shutil.rmtree(root)
            shutil.copytree(self.pristine, root, symlinks=True)
        environment = {"PATH": os.environ.get("PATH", ""), "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive",
                       "ASAN_OPTIONS": "verify_asan_link_order=0", "TMPDIR": str(root)}
        injected = {"LD_PRELOAD": str(self.arguments.preload), "FAULTS_ROOT": str(root), "FAULTS_LOG": str(log), **faults}
        command = [str(self.arguments.program), *self.scenario.command(str(root))]
        if strace:
            settings = [part for key, value in injected.items() for part in ("-E", f"{key}={value}")]
            command = ["strace", "-f", "-y", "-o", str(strace), "-e", "trace=desc,file", *settings, *command]
        else:
            environment |= injected
        try:
            done = subprocess.run(command, capture_output=True, env=environment, cwd=root, timeout=SECONDS)
            code, out, err = done.returncode, done.stdout, done.stderr
        except subprocess.TimeoutExpired as late:
            code, out, err = None, late.stdout or b"", late.stderr or b""

        def shown(printed: bytes) -> str:
            return printed.decode(errors="replace").replace(str(root), "ROOT")

        lines = log.read_text().replace(str(root), "ROOT").splitlines() if log.exists() else []
        return Ran(code, shown(out), shown(err), lines, tree_of(root))

    def known(self, tree: Tree) -> Tree:
        """Without what differs between two runs of the same command."""
        return {k: ("file", self.scenario.varies(k, v[1])) if v[0] == "file" else v for k, v in tree.items()}

    def differences(self, tree: Tree) -> str:
        found, expected = self.known(tree), self.known(self.plain.after)
        names = [f"{k}: {'missing' if k not in found else 'new' if k not in expected else 'differs'}"
                 for k in sorted(found.keys() | expected.keys()) if found.get(k) != expected.get(k)]
        return ", ".join(names[:6])

    def lines(self, ran: Ran, sign: str) -> list[str]:
        """Lines that the run printed and the one without a fault did not ("+"), or the other way ("-")."""

        def printed(by: Ran) -> list[str]:
            return [" ".join(TIMES.sub("TIME", RATES.sub(r"\1 RATES", line)).split()) for line in (by.out + by.err).splitlines()]

        return [d[2:] for d in difflib.ndiff(printed(self.plain), printed(ran)) if d.startswith(sign + " ")]

    def judge(self, mode: Mode, ran: Ran) -> list[str]:
        """What is wrong with a run in which the fault struck."""
        findings: list[str] = []
        outputs = self.scenario.whole + self.scenario.may_go + self.scenario.open
        own = part(self.before, self.scenario.whole + self.scenario.may_go + self.scenario.goes)
        foreign = {k: v for k, v in self.before.items() if self.plain.after.get(k) == v and k not in own}
        for name, was in foreign.items():
            if ran.after.get(name) != was:
                findings.append(f"touched {name}, which it did not write")
        strange = [k for k in ran.after if k not in foreign and k not in part(ran.after, outputs)]
        temporary = [k for k in ran.after if TEMPORARY.search(k) and k not in self.before]
        for name in set(strange) - set(temporary):
            findings.append(f"left {name}")
        # Weights that are trained and could not take their place, or those of before, stay until the next run.
        beside = [k for k in temporary if ran.code != 0 and re.search(r"/model\.(new|old)-", k)]
        if not mode.leaves:
            findings += [f"left {name}" for name in temporary[:1] if name not in beside]

        if ran.code is None:
            return findings + ["hangs"]
        if ran.code == 0:
            said = {k for k in ran.after if f"warning: ROOT/{k}: cannot be removed" in ran.err}
            for name in said:
                del ran.after[name]
                # Nor its folder, where nothing else lies in it.
                folder = os.path.dirname(name)
                if folder not in self.plain.after and not any(k.startswith(folder + "/") for k in ran.after):
                    ran.after.pop(folder, None)
            if self.known(part(ran.after, outputs)) != self.known(part(self.plain.after, outputs)):
                findings.append(f"exits with 0 and another output: {self.differences(ran.after)}")
            if self.lines(ran, "-"):
                findings.append(f"exits with 0 and does not print: {self.lines(ran, '-')[0]}")
            if mode.codes and not self.harmless(mode, ran) and not self.lines(ran, "+"):
                findings.append("exits with 0 without a word")
            return findings
        if not mode.codes:
            return findings + [f"exits with {ran.code}, expected 0: {ran.err.strip()}"]
        config = all(hit.endswith(" ROOT/c.yaml") for hit in ran.hits())  # a config that cannot be read: usage
        if ran.code not in mode.codes and not (config and ran.code == USAGE):
            findings.append(f"exits with {ran.code}, expected {' or '.join(map(str, mode.codes))}")
        for name in self.scenario.whole + self.scenario.may_go:
            now = self.known(part(ran.after, [name]))
            fits = [self.known(part(tree, [name])) for tree in (self.before, self.plain.after)]
            if now not in fits and (now or name in self.scenario.whole):
                findings.append(f"left a part of {name}")
        for name in self.scenario.grows:
            try:
                json.loads(ran.after[name][1] if name in ran.after else b"{}")
            except ValueError:
                findings.append(f"left a part of {name}")
        if ran.code < 0:
            return findings
        lines = [line for line in ran.err.splitlines() if line not in self.plain.err.splitlines()]
        if len([line for line in lines if line.startswith("mantissa: ")]) != 1 or not lines[-1].startswith("mantissa: "):
            findings.append("does not end with one line of error")
        if LIBRARY_TEXT.search(ran.err):
            findings.append("prints a library's text")
        places = [TEMPORARY.sub("", line.split(" ", 1)[1]) for line in ran.hits()]
        told = TEMPORARY.sub("", ran.err)
        # As it was given: from the root, or from the working directory.
        places += [p.removeprefix("ROOT/") + ":" for p in places]
        if not any(p in told or (os.path.dirname(p) != "ROOT" and os.path.dirname(p) in told) for p in places):
            findings.append("does not say where")
        return findings

    def harmless(self, mode: Mode, ran: Ran) -> bool:
        """Nothing was lost: a file without a name that was read to its end is closed, a lock is taken once more, or
        nobody reads the mapped page that is gone: what was made is compared all the same."""
        return mode.error == "BUS" or all((hit.startswith("close ") and hit.endswith(" (deleted)")) or
                   (hit.startswith("stat ") and hit.endswith("/run.lock")) for hit in ran.hits())

    def again(self, ran: Ran) -> list[str]:
        """After a failure the same command ends well, or says that its output stands there already."""
        complete = all(part(ran.after, [n]) and part(ran.after, [n]) == part(self.plain.after, [n])
                       for n in self.scenario.whole + self.scenario.grows)
        second = self.run({}, restore=False)
        if second.code != 0 and not (complete and second.code == 2):
            return [f"the same command again exits with {second.code}: {second.err.strip()}"]
        outputs = self.scenario.whole + self.scenario.may_go + self.scenario.grows
        if self.known(part(second.after, outputs)) != self.known(part(self.plain.after, outputs)):
            return [f"the same command again makes another output: {self.differences(second.after)}"]
        return []

    def try_call(self, mode: Mode, call: int) -> tuple[bool, list[str]]:
        """Whether the fault struck, and what is wrong."""
        faults = {"FAULTS_CALLS": mode.calls, "FAULTS_ERROR": mode.error, "FAULTS_NTH": str(call)}
        if mode.sticky:
            faults["FAULTS_STICKY"] = "1"
        ran = self.run(faults)
        if not ran.hits():
            return False, []
        findings = self.judge(mode, ran)
        if ran.code not in (0, None) and not self.arguments.quick:
            findings += self.again(ran)
        where = f"{self.scenario.name}: {mode.name} {call} ({mode.error} at {ran.hits()[0]})"
        said = f" [exit {ran.code}: {' / '.join(ran.err.splitlines())[:300]}]"
        return True, [f"{where}: {finding}{said}" for finding in findings]


def chosen_calls(count: int, most: int) -> list[int]:
    """Every call, or `most` of them: the first, the last and even steps between; one alone from the middle."""
    if count <= most:
        return list(range(1, count + 1))
    if most == 1:
        return [(count + 1) // 2]
    return sorted({1 + round(i * (count - 1) / (most - 1)) for i in range(most)})


def audit(bench: Bench) -> list[str]:
    """Calls on the scenario's files that strace sees and the preload does not."""
    kinds = {"open": ["open", "openat", "creat"], "read": ["read", "pread64", "readv", "preadv", "copy_file_range", "sendfile"],
             "write": ["write", "pwrite64", "writev", "pwritev"], "close": ["close"],
             "rename": ["rename", "renameat", "renameat2"], "fsync": ["fsync", "fdatasync", "sync_file_range", "msync"],
             "mmap": ["mmap"], "truncate": ["ftruncate", "truncate", "fallocate"], "mkdir": ["mkdir", "mkdirat"],
             "remove": ["unlink", "unlinkat", "rmdir"], "lock": ["flock"], "link": ["link", "linkat", "symlink", "symlinkat"],
             "stat": ["stat", "lstat", "fstat", "newfstatat", "statx", "statfs", "fstatfs", "access", "faccessat",
                      "faccessat2", "readlink"]}
    trace = bench.place / "strace.log"
    ran = bench.run({}, strace=trace)
    root = str(bench.root)
    # A resumed call is counted where it began.
    seen = collections.Counter(m.group(1) for line in trace.read_text(errors="replace").splitlines()
                               if re.search(re.escape(root) + r"[/\">]", re.sub("AT_FDCWD<[^>]*>", "", line)) and (m := re.match(r"(?:\d+\s+)?(\w+)\(", line)))
    logged = collections.Counter(line[1:].split(" ", 1)[0] for line in ran.log)
    logged["open"] += logged["create"]
    logged["close"] += logged["leave"]
    # opendir() and closedir() look at their descriptor and close it without a call that a preload sees.
    folders = len(re.findall(r"O_DIRECTORY\) = \d", trace.read_text(errors="replace")))
    findings = []
    for kind, calls in kinds.items():
        traced = sum(seen[c] for c in calls)
        hidden = folders if kind in ("stat", "close") else 0
        if not logged[kind] <= traced <= logged[kind] + hidden:
            findings.append(f"{bench.scenario.name}: audit: {kind}: strace sees {traced} calls, the preload {logged[kind]}")
    return findings


def run_scenario(scenario: Scenario, arguments: argparse.Namespace) -> tuple[list[str], str]:
    """Findings and a line about what was done."""
    with tempfile.TemporaryDirectory(prefix="faults-") as place:
        bench = Bench(scenario, arguments, Path(place))
        if arguments.audit:
            found = audit(bench)
            print("\n".join(found), end="\n" if found else "", flush=True)
            return found, f"{scenario.name}: audit: {'some calls escape' if found else 'every call is seen'}"
        counted = collections.Counter(line[1:].split(" ", 1)[0] for line in bench.plain.log)
        runs, findings = 0, []
        for mode in MODES:
            if arguments.mode and mode.name not in arguments.mode:
                continue
            count = sum(counted[kind] for kind in mode.calls.split(","))
            most = scenario.quick if arguments.quick else count
            for call in [arguments.call] if arguments.call else chosen_calls(count, most):
                struck, found = bench.try_call(mode, call)
                runs += struck
                findings += found
                if found:
                    print("\n".join(found), flush=True)
        kinds = ", ".join(f"{kind} {n}" for kind, n in sorted(counted.items()))
        return findings, f"{scenario.name}: {runs} faults in runs of {sum(counted.values())} calls: {kinds}"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", type=Path, required=True)
    parser.add_argument("--preload", type=Path, required=True)
    parser.add_argument("--quick", action="store_true", help="some calls of each kind alone, none tried again")
    parser.add_argument("--jobs", type=int, default=1, help="scenarios at a time")
    parser.add_argument("--scenario", action="append", default=[])
    parser.add_argument("--mode", action="append", default=[])
    parser.add_argument("--call", type=int)
    parser.add_argument("--audit", action="store_true", help="compare with strace which calls the preload sees")
    arguments = parser.parse_args()
    arguments.program, arguments.preload = arguments.program.resolve(), arguments.preload.resolve()
    arguments.source = Path(__file__).resolve().parents[2]
    for given, known in ((arguments.scenario, SCENARIOS), (arguments.mode, MODES)):
        for name in given:
            if name not in [k.name for k in known]:
                parser.error(f"{name}: unknown; known: {', '.join(k.name for k in known)}")

    chosen = []
    for scenario in SCENARIOS:
        if scenario.needs and not (arguments.program.parent / scenario.needs).exists():
            print(f"{scenario.name}: left out, there is no {scenario.needs}")
        elif not arguments.scenario or scenario.name in arguments.scenario:
            chosen.append(scenario)
    findings: list[str] = []
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for found, summary in pool.map(lambda scenario: run_scenario(scenario, arguments), chosen):
            findings += found
            print(summary, flush=True)
    print(f"faults: {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
