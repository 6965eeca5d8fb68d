"""What is left out of a compiled program: random numbers, and what counts passes."""

from __future__ import annotations

import itertools
import subprocess
import sys
import warnings
from pathlib import Path

import torch

import bpt
from tests.support.pycaffe_texts import inner_product, inputs, layer, write


def test_the_compiler_is_loaded_by_those_who_compile_only() -> None:
    """It takes longer to load than all of bpt."""
    program = "import sys, bpt.train.solver.solver; sys.exit('torch._dynamo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_compiled_net_draws_the_same_numbers_in_every_pass(tmp_path: Path) -> None:
    text = inputs(x=(4, 6)) + inner_product("x", "h", 8) + layer("Dropout", "h", "d") + inner_product("d", "y", 3)
    plain, other = (bpt.load_module(write(tmp_path, text), phase=bpt.TRAIN) for _ in range(2))
    x = torch.linspace(-1, 1, 24).reshape(4, 6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own making
        compiled = torch.compile(other, backend="aot_eager")
        found = [compiled(x) for _ in range(10)]  # more than torch compiles a function anew before it gives up
    torch.compiler.reset()
    expected = [plain(x) for _ in range(10)]
    torch.testing.assert_close(found, expected)
    assert not any(torch.equal(one, two) for one, two in itertools.pairwise(expected))
