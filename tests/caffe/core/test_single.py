"""Nets, their Blobs and solvers are not copied or pickled: what was made so would share the original's memory."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import bpt
from bpt.base.errors import UserError
from tests.support.pycaffe_texts import inner_product, inputs, layer, write

NET = inputs(x=(2, 3), t=(2, 1)) + inner_product("x", "y", 1) + layer("EuclideanLoss", "y t", "loss")
SOLVER = 'net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 1 snapshot_after_train: false'
WORDS = {
    "net": "a bpt.Net cannot be copied or pickled: make another, bpt.Net(path, phase, weights=...), with weights that "
    "save() has written; bpt.load_module gives a module that can be copied and pickled",
    "solver": "a solver cannot be copied or pickled: write its state by snapshot(), and let another, "
    "bpt.get_solver(path), restore() that",
    "blob": "a Blob of a net cannot be copied or pickled: copy its numbers, blob.data.copy()",
}


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    monkeypatch.chdir(tmp_path)
    net = bpt.Net(write(tmp_path, NET), bpt.TEST)
    return {
        "net": net,
        "solver": bpt.get_solver(write(tmp_path, SOLVER, "solver.prototxt")),
        "blob": net.params["y"][0],
    }


def torch_save(one: object) -> None:
    torch.save(one, io.BytesIO())


@pytest.mark.parametrize("what", WORDS)
@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, pickle.dumps, torch_save])
def test_refused_in_words(made: dict[str, object], what: str, again: Callable[[object], object]) -> None:
    for one in (made[what], {"inside": [made[what]]}):
        if again is copy.copy and one is not made[what]:
            continue  # it copies the dict only
        with pytest.raises(UserError) as caught:
            again(one)
        assert str(caught.value) == WORDS[what]


def test_what_the_words_advise(made: dict[str, object], tmp_path: Path) -> None:
    net, solver = made["net"], made["solver"]
    assert isinstance(net, bpt.Net)
    assert isinstance(solver, bpt.Solver)
    weight = net.params["y"][0].data
    kept = weight.copy()
    weight += 1
    net.save("w.caffemodel")
    assert (bpt.Net("net.prototxt", bpt.TEST, weights="w.caffemodel").params["y"][0].data == kept + 1).all()
    copy.deepcopy(bpt.load_module("net.prototxt"))
    solver.step(1)
    other = bpt.get_solver("solver.prototxt")
    other.restore(solver.snapshot())
    assert other.iter == 1
    assert (other.net.params["y"][0].data == solver.net.params["y"][0].data).all()
