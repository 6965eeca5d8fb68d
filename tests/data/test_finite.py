"""Numbers that are not finite, told as the data's."""

from __future__ import annotations

import logging
from pathlib import Path

import h5py
import numpy as np
import pytest

from bpt.data.datum import encode_datum
from bpt.data.finite import FiniteWatch, all_finite
from bpt.data.lmdb_file import LmdbWriter
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from tests.support.golden_cases import graph_of

NAN, INF = float("nan"), float("inf")


class Messages(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is logged, on a rank that is not the first."""
    handler, logger = Messages(), logging.getLogger("bpt")
    monkeypatch.setattr(logger, "handlers", [handler])
    monkeypatch.setattr(logger, "propagate", False)
    monkeypatch.setattr(logger, "disabled", False)
    monkeypatch.setattr(logger, "level", logging.CRITICAL + 1)
    logger.manager._clear_cache()  # type: ignore[attr-defined]
    return handler.messages


WHY = "if the loss is not finite, this is why"


def test_sums_that_overflow_are_no_mistake() -> None:
    largest = np.finfo(np.float32).max
    assert all_finite(np.full((3, 4), largest, np.float32))
    assert all_finite(np.array([largest, -largest, -largest, -largest], np.float32))
    assert all_finite(np.array([2**63], np.uint64))
    assert all_finite(np.zeros((0, 3), np.float32))
    for bad in (NAN, INF, -INF):
        assert not all_finite(np.array([0, bad, 1], np.float32))
    assert not all_finite(np.array([INF, -INF], np.float64))


def test_three_places_of_a_source_are_told_each_once(told: list[str]) -> None:
    watch = FiniteWatch()
    for name in ("a", "b", "a", "fine", "c", "d"):
        watch.check(np.array([1, 2, NAN if name != "fine" else 3], np.float32), lambda name=name: name)  # type: ignore[misc]
    message = ": 1 of 3 numbers in the data is NaN or infinite: " + WHY
    assert told == [f"a{message}", f"b{message}", f"c{message}; further ones are not reported"]


def run(text: str, batches: int) -> None:
    net = Net(graph_of(text), PassContext())
    for _ in range(batches):
        net.run(0, len(net.graph.nodes), {})
    net.close()


def test_a_record_of_an_lmdb(told: list[str], tmp_path: Path) -> None:
    with LmdbWriter(tmp_path / "db") as writer:
        for index in range(5):
            image = np.full((1, 2, 3), index, np.float32)
            if index == 3:
                image[0, 1, 1:] = NAN, -INF
            writer.put(encode_datum(image, index))
    source = f'source: "{tmp_path}/db" batch_size: 2 backend: LMDB'
    run(f'layer {{ name: "d" type: "Data" top: "x" data_param {{ {source} }} }}', 4)
    assert told == [f'{tmp_path}/db: record "00000003": 2 of 6 numbers in the data are NaN or infinite: {WHY}']


def test_a_row_of_an_hdf5_file(told: list[str], tmp_path: Path) -> None:
    for name, bad in (("0.h5", None), ("1.h5", 2)):
        values = np.zeros((4, 2, 2))
        if bad is not None:
            values[bad, 1, 1] = INF
        with h5py.File(tmp_path / name, "w") as file:
            file["x"] = values
            file["y"] = np.arange(4)
    (tmp_path / "list").write_text("0.h5\n1.h5\n")
    run(
        'layer { name: "d" type: "HDF5Data" top: "x" top: "y" hdf5_data_param '
        f'{{ source: "{tmp_path}/list" batch_size: 4 }} }}',
        5,
    )
    assert told == [f'{tmp_path}/1.h5: row 2 of dataset "x": 1 of 4 numbers in the data is NaN or infinite: {WHY}']
