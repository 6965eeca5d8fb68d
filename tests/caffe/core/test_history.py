"""What a Solver tells from Python while it trains: history, milestones, its figure; and what the prompt shows."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import bpt
from bpt.base.errors import UserError
from bpt.base.progress import ProgressBar
from bpt.train.solver import milestones
from tests.caffe.core.history_solver import NET, SOLVER
from tests.support.pycaffe_texts import write


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, NET)
    write(tmp_path, SOLVER + "display: 1 test_iter: 1 test_interval: 2 random_seed: 1", "solver.prototxt")
    return tmp_path


def test_history_and_milestones() -> None:
    told: list[milestones.Milestone] = []
    with bpt.Solver("solver.prototxt") as solver:
        assert solver.lr == 0.5
        solver.listeners.append(told.append)
        first = float(solver.net.params["ip"][1].data.sum())
        solver.step(4)
        assert solver.lr == 0.125
        rates = [row.rate for row in solver.history.losses]
        losses = [row.values["loss"] for row in solver.history.losses]
        assert rates == [0.5, 0.5, 0.25, 0.25]
        assert losses == pytest.approx([first, first - 1, first - 2, first - 2.5])  # two biases, each by its rate
        assert [row.values["sum"] for row in solver.history.train] == losses
        assert [row.iteration for row in solver.history.test] == [0, 2]
        assert list(solver.history.test[1].values) == ["sum", "twice", "twice[1]"]
        assert solver.history.weighted == {"sum"}
        assert solver.loss == losses[-1]
        assert [type(each) for each in told].count(milestones.Displayed) == 4
        assert [type(each) for each in told].count(milestones.Tested) == 2
        assert repr(solver.history).startswith("<history of solver: 4 losses, 2 tests; iteration 3: loss = ")


def test_its_figure(folder: Path) -> None:
    pytest.importorskip("matplotlib")
    with bpt.Solver("solver.prototxt", "max_iter: 2") as solver:
        with pytest.raises(UserError, match="nothing to show"):
            solver.plot()
        solver.step(2)
        figure = solver.plot("curve.png")
    assert [axes.get_ylabel() for axes in figure.axes] == ["loss", "test twice", "test twice[1]", "learning rate"]
    assert (folder / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_what_the_prompt_shows() -> None:
    with bpt.Solver("solver.prototxt", "type: 'Adam'") as solver:
        assert repr(solver) == '<Solver of "" by Adam: iteration 0 of 4, lr 0.5>'
        assert repr(solver.net) == '<Net "", TRAIN: 3 layers, 8 parameters; x (1, 3), sum ()>'
        assert repr(solver.net.blobs["x"]) == "<Blob (1, 3): [[0. 0. 0.]]>"
    assert set(dir(bpt)) == {*bpt.__all__, "__doc__", "__name__", "__version__"}
    assert {"Net", "SGDSolver", "io", "set_mode_cpu"} <= set(dir(bpt.caffe))
    assert bpt.__getattr__("errors").UserError is UserError  # without an import of its own


def test_a_notebook_has_a_progress_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Though its stderr is no terminal; without ipywidgets in letters."""
    kernel = SimpleNamespace(config={"IPKernelApp": {}})
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: kernel))
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    monkeypatch.setattr("bpt.base.progress.find_spec", lambda name: None)
    with ProgressBar(10, label="training") as progress:
        progress.to(4, 0.25)
    assert "training:  40%" in capsys.readouterr().err
