"""debug_info in a net's text: its passes in Python are logged, layer by layer, as in pycaffe."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

import bpt
from tests.support.pycaffe_texts import inputs, layer, write

TEXT = inputs(x=(1, 2)) + layer("Bias", "x", "y", "bias_param { filler { value: 3 } }")
HEAD = "force_backward: true "


def test_every_pass_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "bpt")
    with bpt.Net(write(tmp_path, f"{HEAD} debug_info: true {TEXT}"), bpt.TEST) as net:
        net.forward(x=np.array([[1, -5]]))
        net.backward(y=np.array([[1, -2]]))
    assert [line.strip() for line in caplog.messages] == [
        "[Forward] Layer in, top blob x data: 3",
        "[Forward] Layer y, top blob y data: 3",  # 4 and -2
        "[Forward] Layer y, param blob 0 data: 3",
        "[Backward] Layer y, bottom blob x diff: 1.5",
        "[Backward] Layer y, param blob 0 diff: 1.5",
    ]


def test_without_it_nothing_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "bpt")
    with bpt.Net(write(tmp_path, f"{HEAD} {TEXT}"), bpt.TEST) as net:
        net.forward(x=np.array([[1, -5]]))
        net.backward(y=np.array([[1, -2]]))
    assert not caplog.messages
