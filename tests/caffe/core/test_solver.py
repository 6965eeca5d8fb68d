"""bpt.get_solver does what pycaffe's does: steps, and what is read from and written to the nets between them."""

from __future__ import annotations

import gc
import re
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import bpt
from bpt.base.errors import UserError
from tests.support.open_files import open_files, prefetchers
from tests.support.paths import TESTS
from tests.support.pycaffe_texts import inner_product, inputs, layer, numbers, write

pytestmark = pytest.mark.usefixtures("mirrors")

RATE = 0.1
# The loss is Σ (W x + b), so W's gradient is Σ x and b's is the batch.
LINEAR = inputs(x=(2, 3)) + inner_product("x", "ip", 2, "param { lr_mult: 1 } param { lr_mult: 0 }")
LINEAR += layer("Flatten", "ip", "sum", "loss_weight: 1")
FIXED = f'net: "net.prototxt" base_lr: {RATE} lr_policy: "fixed" max_iter: 4 snapshot_prefix: "s"\n'

DIGITS = """layer { name: "data" type: "Data" top: "data" top: "label" transform_param { scale: 0.004 }
    data_param { source: "lmdb" backend: LMDB batch_size: 10 } }"""
TRAINED = (
    DIGITS
    + inner_product("data", "ip1", 20)
    + layer("ReLU", "ip1", "ip1", name="relu")
    + layer("Dropout", "ip1", "ip1", name="drop")
    + inner_product("ip1", "ip2", 10)
    + layer("SoftmaxWithLoss", "ip2 label", "loss")
    + layer("Accuracy", "ip2 label", "accuracy", "include { phase: TEST }")
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, LINEAR)
    write(tmp_path, FIXED, "solver.prototxt")
    return tmp_path


@pytest.fixture
def digits(folder: Path) -> Path:
    """A net that reads an LMDB, with a test net."""
    (folder / "lmdb").symlink_to(TESTS / "golden" / "lmdb" / "digits_train_lmdb")
    write(folder, TRAINED)
    more = "test_iter: 2 test_interval: 3 momentum: 0.9 weight_decay: 0.001 random_seed: 3"
    write(folder, FIXED + more, "solver.prototxt")
    return folder


def all_params(net: bpt.Net) -> dict[str, np.ndarray]:
    return {f"{name}/{i}": p.data.copy() for name, params in net.params.items() for i, p in enumerate(params)}


class TestStep:
    def test_it_trains_on_what_the_caller_sets(self) -> None:
        solver = bpt.get_solver("solver.prototxt")
        x, weight = solver.net.blobs["x"].data, solver.net.params["ip"][0].data
        expected = weight.copy()
        for seed in (1, 2):
            x[...] = numbers(2, 3, seed=seed)
            solver.step(1)
            expected -= RATE * numbers(2, 3, seed=seed).sum(0)
            np.testing.assert_allclose(weight, expected, rtol=1e-5)
        assert solver.iter == 2
        expected = 0.5 * weight
        weight[...] = expected
        solver.step(2)
        np.testing.assert_allclose(weight, expected - 2 * RATE * numbers(2, 3, seed=2).sum(0), rtol=1e-5)

    def test_in_double_precision(self, tmp_path: Path) -> None:
        write(tmp_path, FIXED + "precision: FLOAT64", "solver.prototxt")
        solver = bpt.get_solver("solver.prototxt")
        solver.net.blobs["x"].data[...] = 1 / 3
        weights = solver.net.params["ip"][0].data.copy()
        solver.step(1)
        data = {blob.data.dtype for blob in solver.net.blobs.values()}
        assert data | {blob.diff.dtype for blob in solver.net.blobs.values()} == {np.dtype(np.float64)}
        expected = weights - float(np.float32(RATE)) * 2 / 3
        np.testing.assert_allclose(solver.net.params["ip"][0].data, expected, rtol=1e-14)

    def test_a_diff_is_what_the_step_has_subtracted(self) -> None:
        """As in Caffe, whose Net::Update subtracts diff from data; pycaffe's users plot it."""
        solver = bpt.get_solver("solver.prototxt")
        solver.net.blobs["x"].data[...] = numbers(2, 3)
        weight, bias = solver.net.params["ip"]
        diff, before = weight.diff, weight.data.copy()
        solver.step(1)
        np.testing.assert_allclose(diff, RATE * np.tile(numbers(2, 3).sum(0), (2, 1)), rtol=1e-5)
        np.testing.assert_allclose(before - weight.data, diff, rtol=1e-4)
        assert not bias.diff.any()
        diff[...] = 100  # counts for nothing, for each iteration begins with diffs of zero
        before = weight.data.copy()
        solver.step(1)
        np.testing.assert_allclose(before - weight.data, diff, rtol=1e-4)

    def test_momentum_is_not_what_is_shown(self) -> None:
        solver = bpt.get_solver("solver.prototxt", "momentum: 0.5")
        solver.net.blobs["x"].data[...] = 1
        solver.step(1)
        solver.net.params["ip"][0].diff[...] = 100
        before = solver.net.params["ip"][0].data.copy()
        solver.step(1)
        # v = 0.5 · (0.1 · 2) + 0.1 · 2
        np.testing.assert_allclose(before - solver.net.params["ip"][0].data, 0.3, rtol=1e-5)

    def test_passes_by_hand_do_not_count(self) -> None:
        solver = bpt.get_solver("solver.prototxt")
        solver.net.forward(x=numbers(2, 3))
        for _ in range(3):
            solver.net.backward()
        weight = solver.net.params["ip"][0]
        np.testing.assert_allclose(weight.diff, 3 * np.tile(numbers(2, 3).sum(0), (2, 1)), rtol=1e-5)
        before = weight.data.copy()
        solver.step(1)
        np.testing.assert_allclose(before - weight.data, RATE * np.tile(numbers(2, 3).sum(0), (2, 1)), rtol=1e-4)

    def test_backward_by_hand_goes_back_from_what_the_blobs_hold(self) -> None:
        """As Caffe's layers do; without a forward pass by hand it was refused."""
        solver = bpt.get_solver("solver.prototxt")
        solver.step(1)
        solver.net.blobs["x"].data[...] = numbers(2, 3)
        solver.net.clear_param_diffs()
        solver.net.backward()
        diff = solver.net.params["ip"][0].diff
        np.testing.assert_allclose(diff, np.tile(numbers(2, 3).sum(0), (2, 1)), rtol=1e-5)

    def test_looking_changes_nothing(self, digits: Path) -> None:
        with bpt.get_solver("solver.prototxt") as blind, bpt.get_solver("solver.prototxt") as seeing:
            blind.step(4)
            kept = []
            for _ in range(4):
                for net in (seeing.net, *seeing.test_nets):
                    blobs = (*net.blobs.values(), *(p for params in net.params.values() for p in params))
                    kept.append([(blob.data, blob.diff) for blob in blobs])
                seeing.step(1)
            expected = all_params(blind.net)
            for name, values in all_params(seeing.net).items():
                np.testing.assert_array_equal(values, expected[name], err_msg=name)
            for name, blob in seeing.net.blobs.items():
                np.testing.assert_array_equal(blob.data, blind.net.blobs[name].data, err_msg=name)
                np.testing.assert_array_equal(blob.diff, blind.net.blobs[name].diff, err_msg=name)


class TestNets:
    def test_the_test_net_has_the_parameters_of_the_train_net(self, digits: Path) -> None:
        with bpt.get_solver("solver.prototxt") as solver:
            (test,) = solver.test_nets
            assert set(test.blobs) - set(solver.net.blobs) == {
                "accuracy", "label_data_1_split_0", "label_data_1_split_1", "ip2_ip2_0_split_0", "ip2_ip2_0_split_1"
            }  # fmt: skip
            kept = all_params(test)
            solver.step(2)
            expected = all_params(solver.net)
            for name, values in all_params(test).items():
                np.testing.assert_array_equal(values, expected[name])
                assert (values != kept[name]).any()
            out = test.forward()
            hits = test.blobs["ip2"].data.argmax(1) == test.blobs["label"].data
            np.testing.assert_allclose(out["accuracy"], hits.mean())

    def test_a_pass_by_hand_takes_a_batch(self, digits: Path) -> None:
        labels = np.load(TESTS / "golden/lmdb/lmdb_contents.npz")["digits_train_lmdb/label"]
        with bpt.get_solver("solver.prototxt") as solver:
            label = solver.net.blobs["label"].data
            acts: list[Callable[[], object]] = [solver.net.forward, lambda: solver.step(1), solver.net.forward]
            for batch, act in enumerate(acts):
                act()
                np.testing.assert_array_equal(label, labels[10 * batch : 10 * batch + 10])


class TestFiles:
    def test_solve_snapshot_and_restore(self, digits: Path) -> None:
        with bpt.get_solver("solver.prototxt", ["snapshot: 2", "snapshot_prefix: 'out/s'"]) as solver:
            solver.solve()
            assert solver.iter == 4
            straight = all_params(solver.net)
            assert solver.snapshot() == "out/s_iter_4.solverstate"
        with bpt.get_solver("solver.prototxt") as solver:
            kept = solver.net.params["ip1"][0].data
            solver.restore(Path("out/s_iter_2.solverstate"))
            assert solver.iter == 2
            saved = bpt.Net("net.prototxt", bpt.TRAIN, "out/s_iter_2.caffemodel").params["ip1"][0]
            np.testing.assert_array_equal(kept, saved.data)
        with bpt.get_solver("solver.prototxt") as solver:
            solver.solve("out/s_iter_2.solverstate")
            for name, values in all_params(solver.net).items():
                np.testing.assert_array_equal(values, straight[name], err_msg=name)

    def test_weights_to_start_from(self) -> None:
        solver = bpt.get_solver("solver.prototxt")
        solver.net.params["ip"][0].data[...] = 5
        solver.net.save("w.caffemodel")
        other = bpt.get_solver("solver.prototxt")
        other.net.copy_from("w.caffemodel")
        other.step(1)
        np.testing.assert_array_equal(other.net.params["ip"][0].data, 5)  # x is zero

    def test_closing_ends_threads_and_closes_files(self, digits: Path) -> None:
        before = prefetchers()
        with bpt.get_solver("solver.prototxt") as solver:
            solver.step(1)
            assert prefetchers() == before + 2
        assert prefetchers() == before
        assert not open_files((digits / "lmdb").resolve())
        for train in (lambda: solver.step(1), lambda: solver.step(3), solver.solve):
            with pytest.raises(UserError, match="the net is closed"):
                train()
        assert solver.iter == 1

    def test_closing_ends_the_threads_that_compute(self, folder: Path) -> None:
        weights = 'convolution_param { num_output: 50 kernel_size: 5 weight_filler { type: "xavier" } }'
        text = inputs(x=(64, 20, 24, 24)) + layer("Convolution", "x", "y", weights)
        write(folder, text + layer("Flatten", "y", "sum", "loss_weight: 1"))

        def threads() -> set[threading.Thread]:
            return set(threading.enumerate())

        before = threads()
        with bpt.get_solver(
            "solver.prototxt", "parallel_param { inner_param { engine: TASK_DAG num_threads: 2 } }"
        ) as s:
            s.step(3)
            mine = threads() - before
            assert mine
        for thread in mine:
            thread.join(60)
        assert not threads() & mine

    def test_dropping_ends_threads(self, digits: Path) -> None:
        """Something kept the last solvers of a process alive."""
        before = prefetchers()
        solver = bpt.get_solver("solver.prototxt")
        solver.step(1)
        assert prefetchers() == before + 2
        del solver
        gc.collect()
        assert prefetchers() == before


class TestArguments:
    def test_who_steps_need_not_say_how_far(self, digits: Path) -> None:
        text = (digits / "solver.prototxt").read_text().replace("max_iter: 4", "")
        write(digits, text, "solver.prototxt")
        with bpt.get_solver("solver.prototxt") as solver:
            solver.step(2)
            assert solver.iter == 2
            solver.solve()  # whose max_iter is 0, as Caffe's
            assert solver.iter == 2

    def test_a_net_that_is_never_due_may_have_a_test_iter_of_0(
        self, digits: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        text = (digits / "solver.prototxt").read_text().replace("test_iter: 2", "test_iter: 0")
        write(digits, text, "solver.prototxt")
        with pytest.raises(UserError, match="test_iter is 0; it must be at least 1"):
            bpt.get_solver("solver.prototxt")
        write(digits, text + " test_initialization: false", "solver.prototxt")
        with pytest.raises(UserError, match="test_iter is 0; it must be at least 1"):  # test_interval: 3, max_iter: 4
            bpt.get_solver("solver.prototxt")
        with bpt.get_solver("solver.prototxt", "max_iter: 2") as solver:
            solver.step(4)  # further than the text: the test would be due after the third iteration
        assert caplog.messages.count("test_iter is 0: net (#0) is not tested") == 1

    def test_overrides(self) -> None:
        for overrides in ("base_lr: 7", ["base_lr: 6", "base_lr: 7"]):
            solver = bpt.get_solver("solver.prototxt", overrides)
            solver.net.blobs["x"].data[...] = 1
            solver.step(1)
            np.testing.assert_allclose(solver.net.params["ip"][0].diff, 14)

    def test_the_device_is_the_texts_or_the_callers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
        with pytest.raises(UserError, match=re.escape("solver_mode: GPU: this machine has no usable CUDA device")):
            bpt.get_solver("solver.prototxt", "solver_mode: GPU")
        assert bpt.get_solver("solver.prototxt", "solver_mode: GPU", device="cpu").iter == 0
