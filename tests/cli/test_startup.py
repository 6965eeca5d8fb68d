"""What commands import: what they need. What else they import, every run waits for, and every rank of it."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

PROGRAM = """
import json, os, sys

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            assert "KMP_BLOCKTIME" in os.environ, "too late: torch's threads have been told how to wait"

sys.meta_path.insert(0, Watch())
from bpt.cli.main import main
try:
    status = main(sys.argv[1:])
except SystemExit as end:
    status = end.code
json.dump([status, sorted(sys.modules)], open("modules.json", "w"))
"""

# Each takes as long to import as bpt itself, or longer.
LARGE = {"torch._dynamo", "torch._inductor", "torch.onnx", "sympy", "matplotlib", "scipy", "PIL", "onnx"}
# Rooms of bpt that serve other runs.
OF_OTHERS = {
    "bpt.apps.check", "bpt.data.nifti", "bpt.apps.doctor", "bpt.apps.draw", "bpt.parallel.cgdp.exchange",
    "bpt.parallel.task_dag", "bpt.apps.explain", "bpt.nn.layers.attention", "bpt.nn.layers.lstm",
    "bpt.nn.layers.python",
    "bpt.train.metrics", "bpt.engine.optim.rules.adam", "bpt.parallel.pipeline.placement",
    "bpt.parallel.pipeline.stage_placement", "bpt.perf.planner",
    "bpt.caffe.core", "bpt.train.outer.report", "bpt.parallel.cgdp.choice_file", "bpt.parallel.cgdp.layer_costs",
    "bpt.parallel.outer.base", "bpt.parallel.outer.simulation", "bpt.parallel.pipeline.simulation", "bpt.apps.score",
    "bpt.train.outer", "bpt.perf.simulate", "bpt.perf.timing", "bpt.perf.trace", "mpi4py",
}  # fmt: skip


def imported(folder: Path, *words: str) -> set[str]:
    """The modules that a process has at the end of a command that goes well."""
    subprocess.run([sys.executable, "-c", PROGRAM, *words], cwd=folder, check=True, capture_output=True)
    status, modules = json.loads((folder / "modules.json").read_text())
    assert not status
    return set(modules)


def found(names: set[str], modules: set[str]) -> set[str]:
    return {name for name in modules if name in names or any(name.startswith(f"{other}.") for other in names)}


def test_help_needs_no_library(tmp_path: Path) -> None:
    assert not found({"torch", "numpy", "google", "tqdm", "mpi4py"}, imported(tmp_path, "train", "--help"))


def test_a_job_starts_at_once(tmp_path: Path) -> None:
    assert not found({"torch", "google", "mpi4py"}, imported(tmp_path, "run", "--", "true"))


def test_training_imports_what_the_net_and_the_solver_need(inputs: Path) -> None:
    modules = imported(
        inputs, "train", "--solver", "solver.prototxt", "--set", "max_iter: 1 snapshot_after_train: false"
    )
    assert not found(LARGE | OF_OTHERS, modules)
    assert "bpt.nn.layers.inner_product" in modules


def test_all_that_is_named_here_exists() -> None:
    """A room that has moved would be watched in vain."""
    names = [name for name in OF_OTHERS if find_spec(name) is None]
    assert not names
