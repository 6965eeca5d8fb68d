"""Recorded runs of four variants of BPT-CNN, and digits to train on."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from bpt.data.datum import encode_datum
from bpt.data.lmdb_file import LmdbWriter
from bpt.train.outer.report import NodeRow, RunRecord, UpdateRow
from bpt.train.outer.report import record as rows
from scripts.benches.bptcnn.results import Run


def node(worker: int, host: str, computed: float, waited: float, idle: float) -> NodeRow:
    return NodeRow(worker, host, 100, 1.0, computed, waited, idle, 1, 0, 0)


def update(worker: int, seconds: float, staleness: int) -> UpdateRow:
    return UpdateRow(1, seconds, worker, "a", 0, staleness, 1.0, 1.0, 1.0, 1.0, 100, seconds, 0.0, 0.0)


def seen_at(seconds: float, accuracy: float) -> rows.TestRow:
    return rows.TestRow(seconds, 1, 1.0, 1, 0, 0.1, accuracy, math.nan)


def run(seconds: float, accuracy: float, tested: float, waited: float = 0.1, seed: int = 1) -> Run:
    """Two workers with ten seconds: b computes for 8 of them."""
    record = RunRecord(
        seconds=seconds,
        nodes=[node(0, "a", 10.0, 0.0, 0.0), node(1, "b", 8.0, waited, 1.0)],
        updates=[update(0, 10.0, 0), update(1, 8.0, 1)],
        tests=[seen_at(4.0, tested - 0.1), seen_at(9.0, tested)],
    )
    return Run(seed, record, accuracy, others=0.25)


def alone(seconds: float, accuracy: float, seed: int = 1) -> Run:
    record = RunRecord(seconds=seconds, nodes=[node(0, "a", seconds, 0.0, 0.0)], tests=[seen_at(5.0, 0.98)])
    return Run(seed, record, accuracy)


FOUR = {
    "SGWU+UDPA": [run(20.0, 0.97, 0.97)],
    "AGWU+IDPA": [run(10.0, 0.97, 0.97), run(12.0, 0.98, 0.95, waited=0.6, seed=2)],
    "one process": [alone(15.0, 0.983), alone(15.0, 0.975, seed=2)],
}


def write_digits(folder: Path, train: int, test: int) -> None:
    """Stand-ins for the digits: number i is an image whose pixels are i."""
    for name, images in (("train_lmdb", train), ("test_lmdb", test)):
        with LmdbWriter(folder / name) as writer:
            for index in range(images):
                writer.put(encode_datum(np.full((1, 32, 32), index, np.uint8), index % 10))
