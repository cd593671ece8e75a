"""tools/check_layers.py finds each kind of violation and leaves a clean tree alone."""
import importlib.util
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "check_layers.py"
spec = importlib.util.spec_from_file_location("check_layers", SCRIPT)
check_layers = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check_layers)

CLEAN = {
    "src/base/error.h": '#include <string>\n#include <fmt/core.h>\n',
    "src/ops/norm.h": '#include "tensor/tensor.h"\n#include "base/error.h"\n',
    "src/ops/cpu/norm.cpp": '#include <cmath>\n#include "ops/cpu/norm.h"\n// no std::vector, no throw here\nint x;\n',
    "src/train/trainer.cpp": '#include "data/loader.h"\n#include "model/decoder.h"\n',
    "src/app/main.cpp": '#include "report/table.h"\n#include "train/trainer.h"\n',
    "src/recipes/nvfp4.cpp": 'const char* name = "nvfp4";\n',
    "src/ops/cuda/norm.cu": '#include <cuda_runtime.h>\n',
    "tests/ops/norm_test.cpp": '#include "ops/norm.h"\n#include "tests/ops/cases.h"\nauto r = "mxfp8";\n',
}


class CheckLayers(unittest.TestCase):
    def findings(self, files):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            return check_layers.check(root)

    def assert_finds(self, name, text, what):
        findings = self.findings({**CLEAN, name: text})
        self.assertEqual(len(findings), 1, findings)
        self.assertIn(what, findings[0])
        self.assertTrue(findings[0].startswith(name + ":"), findings[0])

    def test_clean_tree(self):
        self.assertEqual(self.findings(CLEAN), [])

    def test_upward_include(self):
        self.assert_finds("src/base/a.h", '#include "tensor/tensor.h"\n', "base includes tensor/tensor.h")
        self.assert_finds("src/ops/a.h", '\n#  include "recipes/recipe.h"\n', "a.h:2: ops includes recipes/recipe.h")
        self.assert_finds("src/report/a.cpp", '#include "tensor/tensor.h"\n', "report includes tensor/tensor.h")
        self.assert_finds("src/data/a.cpp", '#include "numerics/bf16.h"\n', "data includes numerics/bf16.h")
        self.assert_finds("src/model/a.cpp", '#include "data/loader.h"\n', "model includes data/loader.h")
        self.assert_finds("src/modules/a.cpp", '#include "model/decoder.h"\n', "modules includes model/decoder.h")
        self.assert_finds("src/ops/a.cpp", '#include "modules/a.h"\n', "ops includes modules/a.h")
        self.assert_finds("tests/ops/a_test.cpp", '#include "model/decoder.h"\n', "ops includes model/decoder.h")

    def test_relative_and_unknown_includes(self):
        self.assert_finds("src/ops/a.cpp", '#include "norm.h"\n', "not written from src/")
        self.assert_finds("src/ops/a.cpp", '#include "../base/error.h"\n', "not written from src/")
        self.assert_finds("src/ops/a.cpp", '#include "utils/misc.h"\n', "no folder of src/")
        self.assert_finds("src/utils/misc.h", "int x;\n", "no known folder")

    def test_cuda_outside_its_folders(self):
        self.assert_finds("src/tensor/a.h", "#include <cuda_runtime.h>\n", "CUDA header")
        self.assert_finds("src/ops/a.cpp", "#include <cublasLt.h>\n", "CUDA header")
        self.assert_finds("src/ops/a.cu", "int x;\n", "CUDA source")

    def test_kernels_stay_free_of_containers(self):
        self.assert_finds("src/ops/cpu/a.cpp", "#include <vector>\n", "vector in a CPU kernel")
        self.assert_finds("src/ops/cpu/a.cpp", "#include <fmt/core.h>\n", "fmt/core.h in a CPU kernel")
        self.assert_finds("src/ops/cpu/a.cpp", "void f() { std::vector<int> v; }\n", "std::vector in a CPU kernel")
        self.assert_finds("src/ops/cpu/a.cpp", "void f() { throw 1; }\n", "throw in a CPU kernel")

    def test_recipe_names(self):
        self.assert_finds("src/model/a.cpp", 'bool f(S s) { return s == "fp8-delayed"; }\n', 'recipe name "fp8-delayed"')
        self.assert_finds("src/train/a.cpp", 'if (config.recipe == "bf16") f();\n', "branch on a recipe's name")
        self.assert_finds("src/train/a.cpp", 'if (find_recipe().name != "fp32") f();\n', "branch on a recipe's name")
        self.assertEqual(self.findings({**CLEAN, "src/model/a.cpp": '// for "nvfp4"\n/* "mxfp8"\n "nvfp4" */ int x;\n'}), [])
        self.assertEqual(self.findings({**CLEAN, "src/train/a.cpp": 'bool b = recipe().info().path != "native";\n'}), [])

    def test_long_file(self):
        self.assert_finds("src/base/long.cpp", "int x;\n" * 601, "601 lines, at most 600")
        self.assert_finds("docs/long.md", "text\n" * 700, "700 lines")
        self.assertEqual(self.findings({**CLEAN, "src/base/long.cpp": "int x;\n" * 600}), [])


if __name__ == "__main__":
    unittest.main()
