"""Python programs are told of layers that are in no weights, on stderr as by pycaffe, or in their own log."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import bpt
from bpt import caffe
from bpt.base.errors import FileError
from tests.support.pycaffe_texts import inner_product, inputs, write

NET = inputs(x=(2, 3)) + inner_product("x", "ip", 4) + inner_product("ip", "out", 2)
LINES = (
    r"^W.*\] Ignoring source layer fc$",
    r"^W.*\] Layer ip is in none of the weights; .*fc \(.*\), of the same shapes",
)


Load = Callable[..., None]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that call the layer ip fc, and weights that have all layers."""
    monkeypatch.chdir(tmp_path)
    with bpt.Net(write(tmp_path, NET.replace('"ip"', '"fc"')), bpt.TEST) as made:
        made.save("w.caffemodel")
    with bpt.Net(write(tmp_path, NET), bpt.TEST) as made:
        made.save("whole.caffemodel")


def leave_logging_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no handler of pytest's, as in a program that has not configured logging."""
    logger = logging.getLogger("bpt")
    monkeypatch.setattr(logger, "handlers", [logging.NullHandler()])
    monkeypatch.setattr(logger, "propagate", False)


def by_copy_from(weights: str, strict: bool = False) -> None:
    bpt.Net("net.prototxt", bpt.TEST).copy_from(weights, strict=strict)


def by_net(weights: str, strict: bool = False) -> None:
    bpt.Net("net.prototxt", bpt.TEST, weights=weights, strict=strict)


def by_module(weights: str, strict: bool = False) -> None:
    bpt.load_module("net.prototxt", weights, strict=strict)


@pytest.mark.parametrize("load", [by_copy_from, by_net, by_module])
def test_warnings_on_stderr(load: Load, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    leave_logging_alone(monkeypatch)
    load("w.caffemodel")
    told = capsys.readouterr().err
    assert all(re.search(line, told, re.MULTILINE) for line in LINES)
    with pytest.raises(FileError, match="layer ip is in none of the weights"):
        load("w.caffemodel", strict=True)
    capsys.readouterr()
    load("whole.caffemodel", strict=True)
    assert capsys.readouterr().err == ""


def test_pycaffes_net(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    leave_logging_alone(monkeypatch)
    caffe.Net("net.prototxt", "w.caffemodel", caffe.TEST)
    assert re.search(LINES[0], capsys.readouterr().err, re.MULTILINE)


def test_what_is_strict_loads_nothing() -> None:
    net = bpt.Net("net.prototxt", bpt.TEST)
    before = net.params["out"][0].data.copy()
    net.params["out"][0].data[...] += 1
    with pytest.raises(FileError):
        net.copy_from("w.caffemodel", strict=True)
    assert (net.params["out"][0].data == before + 1).all()


def test_files_before_count(caplog: pytest.LogCaptureFixture) -> None:
    net = bpt.Net("net.prototxt", bpt.TEST)
    net.copy_from("whole.caffemodel")
    net.copy_from("w.caffemodel", strict=True)
    bpt.load_module("net.prototxt", ["w.caffemodel", "whole.caffemodel"])
    assert not [message for message in caplog.messages if message.startswith("Layer ip")]


def test_the_programs_own_log_comes_first(capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    by_net("w.caffemodel")
    assert capsys.readouterr().err == ""
    assert any(message.startswith("Layer ip is in none of the weights") for message in caplog.messages)
