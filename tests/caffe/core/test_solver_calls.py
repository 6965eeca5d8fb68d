"""What scripts call on solvers beside step: updates by hand, callbacks, the learning rate; types; modes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bpt
from bpt.base.errors import UserError
from bpt.caffe import core as pycaffe
from bpt.caffe.core import mode
from tests.support.pycaffe_texts import inner_product, inputs, layer, numbers, write

NET = inputs(x=(2, 3)) + inner_product("x", "ip", 2, "param { lr_mult: 1 } param { lr_mult: 0 }")
NET += layer("Reduction", "ip", "sum", "loss_weight: 1")
SOLVER = 'net: "net.prototxt" base_lr: 0.1 lr_policy: "step" gamma: 0.5 stepsize: 2 max_iter: 9 random_seed: 3 '


@pytest.fixture(autouse=True)
def _texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, NET)
    write(tmp_path, SOLVER, "solver.prototxt")
    monkeypatch.setattr(mode, "_MODE", mode.Mode())


class TestUpdates:
    def test_by_hand(self) -> None:
        solver = pycaffe.SGDSolver("solver.prototxt", "momentum: 0.5")
        weight = solver.net.params["ip"][0]
        data, diff = weight.data, weight.diff
        data[...] = 0
        diff[...] = 1
        solver.apply_update()
        np.testing.assert_allclose(data, -0.1, rtol=1e-6)
        np.testing.assert_allclose(diff, 0.1, rtol=1e-6)  # what was subtracted
        diff[...] = 1
        solver.apply_update()
        np.testing.assert_allclose(data, -0.1 - 0.15, rtol=1e-6)
        assert solver.iter == 2
        diff[...] = 1
        solver.apply_update()  # half the rate: momentum 0.15 / 2, and 0.05
        np.testing.assert_allclose(data, -0.25 - 0.125, rtol=1e-6)

    def test_a_loop_by_hand_trains_as_steps_do(self) -> None:
        by_hand, stepping = (bpt.get_solver("solver.prototxt", "momentum: 0.5 weight_decay: 0.1") for _ in range(2))
        for seed in range(3):
            for solver in (by_hand, stepping):
                solver.net.blobs["x"].data[...] = numbers(2, 3, seed=seed)
            by_hand.net.clear_param_diffs()
            by_hand.net.forward()
            by_hand.net.backward()
            by_hand.apply_update()
            stepping.step(1)
            for one, other in zip(by_hand.net.params["ip"], stepping.net.params["ip"], strict=True):
                np.testing.assert_array_equal(one.data, other.data)
        assert by_hand.iter == stepping.iter == 3

    def test_callbacks(self) -> None:
        solver = bpt.get_solver("solver.prototxt")
        solver.net.blobs["x"].data[...] = 1
        weight = solver.net.params["ip"][0]
        before = weight.data.copy()
        calls: list[tuple[Any, ...]] = []
        kept = weight.diff

        def ready() -> None:
            calls.append(("ready", solver.iter, kept.copy()))
            weight.diff[...] = 5

        solver.add_callback(lambda: calls.append(("start", solver.iter)), ready)
        solver.step(2)
        assert [call[:2] for call in calls] == [("start", 0), ("ready", 0), ("start", 1), ("ready", 1)]
        np.testing.assert_allclose(calls[1][2], 2)  # of the sum over 2 samples of ones
        np.testing.assert_allclose(before - weight.data, 2 * 0.1 * 5, rtol=1e-5)

    def test_callbacks_of_the_net_are_called_in_every_iteration(self) -> None:
        solver = bpt.get_solver("solver.prototxt")
        seen: list[int] = []
        solver.net.after_forward(seen.append)
        solver.step(2)
        assert seen == 2 * [0, 1, 2]

    def test_the_learning_rate(self) -> None:
        solver = bpt.get_solver("solver.prototxt")
        solver.net.blobs["x"].data[...] = 1
        param = solver.param
        assert (round(param.base_lr, 6), param.max_iter, param.display, param.layer_wise_reduce) == (0.1, 9, 0, True)
        solver.param.base_lr = 0.4
        before = solver.net.params["ip"][0].data.copy()
        solver.step(3)  # 0.4 twice, then half of it
        np.testing.assert_allclose(before - solver.net.params["ip"][0].data, 2 * (0.4 + 0.4 + 0.2), rtol=1e-5)
        with pytest.raises(UserError, match="base_lr must be a number from 0 on, not -1"):
            solver.param.base_lr = -1

    def test_weights_shared_with_another_net(self) -> None:
        solver, net = bpt.get_solver("solver.prototxt"), bpt.Net("net.prototxt", bpt.TEST)
        solver.share_weights(net)
        solver.net.blobs["x"].data[...] = numbers(2, 3)
        solver.step(3)
        np.testing.assert_array_equal(net.params["ip"][0].data, solver.net.params["ip"][0].data)


@pytest.mark.parametrize("kind", ["SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam"])
def test_a_class_for_each_type(kind: str) -> None:
    """Whatever the text says, in today's words or in the old ones."""
    settings = "rms_decay: 0.9 " * (kind == "RMSProp") + "momentum: 0.9 " * (kind == "AdaDelta")
    own = getattr(pycaffe, f"{kind}Solver")("solver.prototxt", settings + "solver_type: ADAM")
    named = bpt.get_solver("solver.prototxt", settings + f'type: "{kind}"')
    for solver in (own, named):
        solver.net.blobs["x"].data[...] = numbers(2, 3)
        solver.step(2)
    np.testing.assert_array_equal(own.net.params["ip"][0].data, named.net.params["ip"][0].data)
    assert isinstance(own, pycaffe.Solver)


class TestMode:
    def test_cpu(self, tmp_path: Path) -> None:
        write(tmp_path, SOLVER + "solver_mode: GPU", "solver.prototxt")
        mode.set_device(0)
        mode.set_mode_cpu()
        bpt.get_solver("solver.prototxt").step(1)

    @pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
    def test_no_gpu(self) -> None:
        with pytest.raises(UserError, match=r'set_mode_gpu: device "cuda:0": this machine has 0 usable CUDA devices'):
            mode.set_mode_gpu()
        bpt.Net("net.prototxt", bpt.TEST)

    @pytest.mark.gpu
    def test_gpu(self) -> None:
        mode.set_mode_gpu()
        net = bpt.Net("net.prototxt", bpt.TEST)
        assert net._operator.device == torch.device("cuda:0")
        assert bpt.get_solver("solver.prototxt").net._operator.device == torch.device("cuda:0")

    def test_seed(self, tmp_path: Path) -> None:
        write(tmp_path, SOLVER.replace("random_seed: 3", ""), "free.prototxt")

        def weights(seed: int | None) -> list[np.ndarray]:
            if seed is not None:
                mode.set_random_seed(seed)
            made = [bpt.Net("net.prototxt", bpt.TRAIN), bpt.get_solver("free.prototxt").net]
            return [net.params["ip"][0].data.copy() for net in made]

        plain = bpt.Net("net.prototxt", bpt.TRAIN).params["ip"][0].data
        first, again, other = weights(1), weights(1), weights(2)
        np.testing.assert_array_equal(first, again)
        assert (first[0] == first[1]).all()
        assert (first[0] != other[0]).any()
        assert (first[0] != plain).any()
        named = bpt.get_solver("solver.prototxt").net.params["ip"][0].data.copy()
        mode.set_random_seed(8)
        np.testing.assert_array_equal(named, bpt.get_solver("solver.prototxt").net.params["ip"][0].data)
        with pytest.raises(UserError, match="set_random_seed: the seed must be a whole number"):
            mode.set_random_seed(-1)
