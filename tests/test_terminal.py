"""Streams that are closed, full or broken; what the command does then is in tests/cli/test_streams.py."""

from __future__ import annotations

import io
import sys

import pytest

from bpt.terminal import say


class Full(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


def test_said_where_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    say("one\n")
    assert (out.getvalue(), err.getvalue()) == ("", "one\n")
    monkeypatch.setattr(sys, "stderr", Full())
    say("two\n")
    assert out.getvalue() == "two\n"
    monkeypatch.setattr(sys, "stdout", Full())
    say("three\n")  # nowhere, and without an error
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    monkeypatch.setattr(sys, "stdout", out)
    say("four\n")
    assert out.getvalue() == "two\nfour\n"
