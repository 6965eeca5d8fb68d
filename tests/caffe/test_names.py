"""pycaffe's names are all there, also under ``import caffe``."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import bpt
import bpt.caffe
from bpt.base.errors import UserError
from bpt.caffe.__main__ import main
from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.layers import LAYERS
from bpt.nn.layers.caffe_import import CaffeFinder, install


@pytest.fixture
def _installed() -> Iterator[None]:
    install()
    yield
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, CaffeFinder)]
    for name in [name for name in sys.modules if name.split(".")[0] == "caffe"]:
        del sys.modules[name]


@pytest.mark.usefixtures("_installed")
def test_import_caffe_gives_the_very_modules() -> None:
    caffe = importlib.import_module("caffe")
    assert caffe is bpt.caffe
    assert (
        caffe.__spec__ and caffe.__spec__.name == "bpt.caffe"
    )  # so that it can be reloaded and pickled by its own name
    for name in ("io", "classifier", "coord_map", "detector", "draw", "net_spec", "pycaffe", "_caffe", "proto"):
        assert importlib.import_module(f"caffe.{name}") is importlib.import_module(f"bpt.caffe.{name}")
    messages = importlib.import_module("caffe.proto.caffe_pb2")
    assert messages.NetParameter is pb.NetParameter
    assert (messages.TRAIN, messages.TEST) == (caffe.TRAIN, caffe.TEST) == (0, 1)
    with pytest.raises(ModuleNotFoundError, match=r"caffe\.nothing"):
        importlib.import_module("caffe.nothing")


def test_all_names_are_there() -> None:
    names = [*bpt.caffe.__all__, "__version__"]
    assert all(getattr(bpt.caffe, name) is not None for name in names)
    assert bpt.caffe.Net is bpt.Net
    assert bpt.caffe.NetSpec is bpt.NetSpec
    assert bpt.caffe.layer_type_list() == list(LAYERS)
    with pytest.raises(AttributeError, match="module 'caffe' has no attribute 'Nett'"):
        _ = bpt.caffe.Nett


def test_a_script_runs_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nimport caffe\nfrom caffe.proto import caffe_pb2\nfrom beside import WORD\n"
        "assert __name__ == '__main__'\n"
        "print(WORD, sys.argv[1:], caffe_pb2.BlobProto(data=[1]).data[0], caffe.Layer.__name__)\nsys.exit(3)\n"
    )
    (tmp_path / "beside.py").write_text("WORD = 'found'\n")
    command = [sys.executable, "-m", "bpt.caffe", str(script), "an argument"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "found ['an argument'] 1.0 PycaffeLayer\n"), done.stderr
    assert main([]) == main([str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("error: python -m bpt.caffe SCRIPT")


def test_several_gpus_are_refused_in_words() -> None:
    caffe = bpt.caffe
    assert (caffe.has_nccl(), caffe.solver_count(), caffe.solver_rank()) == (False, 1, 0)
    caffe.set_solver_count(1)
    caffe.set_solver_rank(0)
    caffe.set_multiprocess(False)
    for call in (
        lambda: caffe.NCCL(None, "uid"),
        caffe.NCCL.new_uid,
        lambda: caffe.set_solver_count(2),
        lambda: caffe.set_solver_rank(1),
        lambda: caffe.set_multiprocess(True),
    ):
        with pytest.raises(UserError, match="mpirun -n 2 bpt train"):
            call()


def test_timer() -> None:
    timer = bpt.caffe.Timer()
    timer.start()
    running = timer.ms
    timer.stop()
    assert 0 <= running <= timer.ms == timer.ms < 600_000
