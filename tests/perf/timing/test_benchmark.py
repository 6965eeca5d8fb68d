"""``bpt time`` tells how long a pass waits for its batches, and which algorithms run."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from bpt.engine import algorithm_trials
from bpt.nn.kernels.algorithm import Algorithm
from bpt.nn.layers.prefetching import PrefetchingDataLayer
from bpt.perf.timing.benchmark import time_model
from bpt.system.device import CPU
from tests.support.kernel_nets import NET
from tests.support.paths import GOLDEN

SOURCE = f'source: "{GOLDEN}/lmdb/digits_test_lmdb" backend: LMDB batch_size: 4'
IP = 'layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 2 } }'


def timed(folder: Path, text: str, caplog: pytest.LogCaptureFixture) -> list[str]:
    (folder / "net.prototxt").write_text(text)
    with caplog.at_level(logging.INFO, "bpt"):
        time_model(str(folder / "net.prototxt"), "TRAIN", 0, (), CPU, 3)
    return [message for message in caplog.messages if message.startswith("Wait for data")]


def test_the_wait_of_both_data_layers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = PrefetchingDataLayer.forward

    def slow(self: PrefetchingDataLayer) -> object:
        tops = forward(self)
        self.waited = 0.002  # as if it had
        return tops

    monkeypatch.setattr(PrefetchingDataLayer, "forward", slow)
    layers = "".join(
        f'layer {{ name: "{top}" type: "Data" top: "{top}" data_param {{ {SOURCE} }} }}\n' for top in ("data", "more")
    )
    [line] = timed(tmp_path, layers + IP, caplog)
    assert re.fullmatch(r"Wait for data: 4\.000 ± 0\.000 ms of a pass, [\d.]+% of its time\.", line)


def test_no_data_no_wait(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = 'layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 } } }\n'
    assert timed(tmp_path, text + IP, caplog) == []


def lines_about_algorithms(path: Path, caplog: pytest.LogCaptureFixture) -> list[str]:
    path.write_text(NET)
    with caplog.at_level(logging.INFO, "bpt"):
        time_model(str(path), "TRAIN", 0, (), CPU, 1)
    place = next(i for i, message in enumerate(caplog.messages) if message.startswith("Algorithms"))
    return caplog.messages[place:]


def test_the_algorithms_of_kernels(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def times(kernels: Mapping[Algorithm, object]) -> dict[Algorithm, float]:
        return {each: 0.001 if each == Algorithm.PATCHES else 0.004 for each in kernels}

    monkeypatch.setattr(algorithm_trials, "fastest", times)
    _, _, *rows = lines_about_algorithms(tmp_path / "net.prototxt", caplog)
    assert [row.split() for row in rows] == [
        ["conv", "forward", "PATCHES", "1.000", "4.000", "75%"],
        ["conv", "by", "weights", "PATCHES", "1.000", "4.000", "75%"],
    ]


def test_no_other_algorithm(tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(algorithm_trials, "fastest", lambda kernels: dict.fromkeys(kernels, 0.004))
    [line] = lines_about_algorithms(tmp_path / "net.prototxt", caplog)
    assert line == "Algorithms: TORCH for all kernels, since no other is clearly faster."
