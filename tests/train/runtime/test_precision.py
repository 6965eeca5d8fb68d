"""``precision: FLOAT64``: every number of a run is in double precision, on one rank and on many; files are Caffe's."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
import torch

from bpt.config.plan.resolve import read_plan
from bpt.nn.net import Net
from bpt.parallel.exchange.buckets import Bucket, Message
from bpt.system.comm.base import Communicator
from bpt.train.solver.solver import Solver
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.spread_runs import Saved, train

pytestmark = pytest.mark.usefixtures("folder")

DOUBLE = "precision: FLOAT64"
CGDP = "parallel_param { exchange: CGDP cgdp_param { chunk_size: 1 } }"


Numbers = dict[str, np.ndarray]


def trained(ranks: int, *overrides: str) -> Numbers:
    """The loss of the fifth iteration, the weights after it, and the moments, on the first rank."""

    def run(comm: Communicator) -> Numbers:
        with Solver(read_plan("solver.prototxt", (*overrides, "test_interval: 100")), world=comm) as solver:
            solver.step(5)
            named: dict[str, torch.Tensor] = {
                f"{layer}/{blob}": value for (layer, blob), value in solver.net.values_by_name().items()
            }
            named |= {f"history {number}": value for number, value in enumerate(solver.runtime.updater.rule.history)}
            found = {name: value.detach().numpy().copy() for name, value in named.items()}
            return {**found, "loss": np.array(solver.loss)}

    return run_ranks(ranks, run)[0]


@pytest.mark.parametrize(
    "exchange", ["", "parallel_param { exchange: TREE }", "parallel_param { exchange: RING }", CGDP]
)
def test_two_ranks_are_one_process_to_twelve_digits(exchange: str) -> None:
    one, two = trained(1, DOUBLE), trained(2, DOUBLE, exchange)
    assert one.keys() == two.keys()
    for name, values in one.items():
        assert values.dtype == two[name].dtype == np.float64, name
        np.testing.assert_allclose(two[name], values, rtol=0, atol=1e-12 * np.abs(values).max(), err_msg=name)


def test_it_begins_and_goes_on_as_in_single_precision() -> None:
    """What fillers, masks and data draw is the same."""
    single, double = trained(1), trained(1, DOUBLE)
    for name, values in single.items():
        assert values.dtype == (np.float64 if name == "loss" else np.float32)
        np.testing.assert_allclose(double[name], values, rtol=0, atol=1e-4 * np.abs(values).max(), err_msg=name)
    assert any((double[name] != values).any() for name, values in single.items())


def test_every_blob_gradient_and_message(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, set[object]] = {"blobs": set(), "gradients": set(), "messages": set(), "weights": set()}
    run, pack, send = Net.run, Bucket.pack_gradients, Bucket.pack_weights

    def looked(net: Net, start: int, end: int, values: dict[int, torch.Tensor], *more: object) -> None:
        run(net, start, end, values, *more)  # type: ignore[arg-type]
        seen["blobs"].update(value.dtype for value in values.values())

    def packed(bucket: Bucket) -> list[Message]:
        seen["gradients"].update(p.grad.dtype for p in bucket.parameters if p.grad is not None)
        messages = pack(bucket)
        seen["messages"].update(message.dtype for message in messages)
        return messages

    def sent(bucket: Bucket) -> list[Message]:
        messages = send(bucket)
        seen["weights"].update(message.dtype for message in messages)
        return messages

    monkeypatch.setattr(Net, "run", looked)
    monkeypatch.setattr(Bucket, "pack_gradients", packed)
    monkeypatch.setattr(Bucket, "pack_weights", sent)
    train(2, DOUBLE, "parallel_param { exchange: TREE }", "max_iter: 2")
    number = np.dtype(np.float64)
    assert seen == {
        "blobs": {torch.float64},
        "gradients": {torch.float64},
        "messages": {number},
        "weights": {number},
    }


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("rule", ['type: "SGD"', 'type: "Nesterov"', 'type: "Adam" momentum2: 0.99'])
def test_files_hold_single_precision_and_training_goes_on_from_them(rule: str, ranks: int) -> None:
    """As exactly as float32 can tell."""
    train(1, DOUBLE, rule, "snapshot: 5")
    expected = Saved.read(9)
    train(ranks, DOUBLE, rule, resume="small_iter_5.solverstate")
    Saved.read(9).check(expected, 1e-5)


@pytest.mark.parametrize(("ranks", "overrides"), [(1, ""), (2, "parallel_param { num_shards: 2 }")])
def test_hdf5_files_hold_single_precision(ranks: int, overrides: str) -> None:
    train(ranks, DOUBLE, "snapshot_format: HDF5", overrides)
    kinds: set[object] = set()

    def note(path: str, item: h5py.Group | h5py.Dataset) -> None:
        if path.startswith(("data/", "history/")) and isinstance(item, h5py.Dataset):
            kinds.add(item.dtype)

    for name in ("small_iter_9.caffemodel.h5", "small_iter_9.solverstate.h5"):
        with h5py.File(name) as file:
            file.visititems(note)
    assert kinds == {np.dtype(np.float32)}


@pytest.mark.parametrize("rule", ['type: "Nesterov"', 'type: "Adam" momentum2: 0.99'])
def test_fast_updates_lose_no_digits(rule: str) -> None:
    """torch takes the factor of clipped gradients as float32, so such updates go the other way in double precision."""
    assert trained(1, DOUBLE, rule, "clip_gradients: 0.01")["fc/0"] == pytest.approx(
        updated_slowly(rule), rel=1e-13, abs=1e-15
    )


def updated_slowly(rule: str) -> np.ndarray:
    """The weights by updates of which every step is done by itself."""

    def run(comm: Communicator) -> np.ndarray:
        overrides = (DOUBLE, rule, "clip_gradients: 0.01", "test_interval: 100", "snapshot_diff: true")
        with Solver(read_plan("solver.prototxt", overrides), world=comm) as solver:
            solver.step(5)
            weights: np.ndarray = solver.net.values_by_name()["fc", 0].detach().numpy().copy()
            return weights

    return run_ranks(1, run)[0]
