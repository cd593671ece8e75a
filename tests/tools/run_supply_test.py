"""What ./run takes from outside: wheels by version and hash, the text's package by its known hash, clang-format of one
version."""
import pathlib
import re
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
REQUIREMENTS = ROOT / "tools" / "requirements"


def in_run(script):
    """Runs `script` with the functions of ./run: (exit code, stderr)."""
    done = subprocess.run(["bash", "-c", f"set -- help; source ./run >/dev/null; {script}"], cwd=ROOT, text=True,
                          capture_output=True, env={"PATH": "/usr/bin:/bin", "NO_COLOR": "1"})
    return done.returncode, done.stderr


class Wheels(unittest.TestCase):
    def test_every_requirement_is_pinned_with_hashes(self):
        files = sorted(REQUIREMENTS.glob("*.txt"))
        self.assertEqual([f.stem for f in files], sorted(f.stem for f in REQUIREMENTS.glob("*.in")))
        self.assertGreaterEqual(len(files), 5)
        for file in files:
            entries = file.read_text().replace("\\\n", " ").splitlines()
            self.assertTrue(entries, file)
            for entry in entries:
                self.assertRegex(entry, r"^[a-z0-9.-]+==[0-9][0-9a-z.+!]*( ; [^#]+?)?( +--hash=sha256:[0-9a-f]{64})+$", file)

    def test_what_is_asked_for_is_pinned(self):
        for file in REQUIREMENTS.glob("*.in"):
            pinned = file.with_suffix(".txt").read_text()
            for line in file.read_text().split():
                name, _, version = line.partition("==")
                self.assertRegex(pinned, rf"(?m)^{re.escape(name)}=={re.escape(version) if version else '[0-9]'}", line)

    def test_pip_installs_by_one_function_with_hashes_and_wheels(self):
        calls = [line for line in (ROOT / "run").read_text().splitlines() if re.search(r"(-m pip|/pip) install", line)]
        self.assertEqual(len(calls), 1, calls)
        with tempfile.TemporaryDirectory() as folder:
            python = pathlib.Path(folder) / "python"
            python.write_text('#!/bin/sh\nprintf "%s\\n" "$@" >&2\n')
            python.chmod(0o755)
            code, args = in_run(f"pip_install {python} torch --target x")
        self.assertEqual(code, 0)
        args = args.splitlines()
        for expected in ("--require-hashes", "--only-binary=:all:", "tools/requirements/torch.txt", "--target"):
            self.assertIn(expected, args)

    def test_every_list_that_run_names_is_there(self):
        text = (ROOT / "run").read_text()
        names = re.findall(r"(?:pip_install|install_into) \S+ ([a-z-]+)(?: |$)", text, re.M)
        self.assertEqual(set(names), {f.stem for f in REQUIREMENTS.glob("*.txt")})


class Text(unittest.TestCase):
    """The hash of the file is given by a stand-in for sha256."""

    KNOWN = "7b0af5cfde3cbdef5e9d6e78f92ec335ced7c2790f37a40f49bebc6f7347ac0f"

    def check(self, version, digest, other):
        return in_run(f"sha256() {{ echo {digest}; }}; check_text x.deb {version} {other}")

    def test_known(self):
        self.assertEqual(self.check("0.48.5+nmu2", self.KNOWN, 0), (0, ""))

    def test_another_hash_of_a_known_version_is_never_taken(self):
        for other in (0, 1):
            code, said = self.check("0.48.5+nmu2", "0" * 64, other)
            self.assertEqual(code, 1)
            self.assertIn("0" * 64, said)
            self.assertIn(self.KNOWN, said)

    def test_another_version_needs_a_word(self):
        code, said = self.check("9.9", "0" * 64, 0)
        self.assertEqual(code, 1)
        for part in ("9.9", "0.48.5+nmu2, 0.48.5+nmu4", "--other-text"):
            self.assertIn(part, said)
        code, said = self.check("9.9", "0" * 64, 1)
        self.assertEqual(code, 0)
        self.assertIn("9.9 is not a version known here", said)

    def test_nothing_is_unpacked_before_the_check(self):
        text = (ROOT / "run").read_text()
        self.assertLess(text.index('check_text "$deb"'), text.index("dpkg-deb -x"))


class Format(unittest.TestCase):
    OTHER = """command() { return 1; }; install() { :; }; clang-format() { echo 'Ubuntu clang-format version 18.1.3 (1)'; }; """

    def test_another_version_checks_nothing_and_says_so(self):
        code, said = in_run(self.OTHER + "task_format --check")
        self.assertEqual(code, 0, said)
        self.assertIn("clang-format is version 18, and the code is laid out by 14", said)
        self.assertIn("not checked", said)

    def test_another_version_changes_nothing(self):
        code, said = in_run(self.OTHER + "task_format")
        self.assertEqual(code, 1, said)
        self.assertIn("nothing was changed", said)

    def test_an_unknown_option_formats_nothing(self):
        code, said = in_run("task_format --chek")
        self.assertEqual(code, 1, said)
        self.assertIn("unknown option --chek", said)


if __name__ == "__main__":
    unittest.main()
