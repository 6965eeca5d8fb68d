"""Streams that are closed, full or broken; what the command does then is in tests/cli/test_streams.py."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

import bpt
from bpt.base.terminal import allow_all_characters, say
from bpt.cli.main import main


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


def written(text: str, encoding: str, errors: str = "strict") -> bytes:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, errors=errors)
    allow_all_characters(stream)
    stream.write(text)
    stream.flush()
    return raw.getvalue()


@pytest.mark.parametrize(
    ("text", "encoding", "expected"),
    [
        ("3 × 4 … → µ", "ascii", b"3 x 4 ... -> u"),
        ("3 × 4 … → µ", "latin-1", b"3 \xd7 4 ... -> \xb5"),
        ("3 × 4 … → µ", "utf-8", "3 × 4 … → µ".encode()),
        ("猫", "ascii", b"\\u732b"),
        ("猫", "cp437", b"\\u732b"),
        ("ö", "ascii", b"\\xf6"),
        ("a\udcffb", "utf-8", b"a\xffb"),
        ("a\udcffb", "ascii", b"a\xffb"),
        ("\ud800", "utf-8", b"\\ud800"),
    ],
)
@pytest.mark.parametrize("errors", ["strict", "surrogateescape", "backslashreplace"])
def test_characters_that_an_encoding_does_not_have(text: str, encoding: str, expected: bytes, errors: str) -> None:
    assert written(text, encoding, errors) == expected


def test_what_somebody_chose_stays() -> None:
    assert written("3 × 4", "ascii", "replace") == b"3 ? 4"


def test_every_character_of_the_program_can_be_written() -> None:
    sources = Path(bpt.__file__).parent.rglob("*.py")
    text = "".join({character for path in sources for character in path.read_text(encoding="utf-8")})
    for encoding in ("ascii", "latin-1", "cp1252", "cp437"):
        assert written(text, encoding)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
@pytest.mark.parametrize("words", [["summary", "--model", "a.prototxt"], ["--help"], ["train", "--help"], ["summary"]])
def test_commands_write_to_streams_without_unicode(
    encoding: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once met: bpt summary ended with a traceback, UnicodeEncodeError, where stdout is ASCII."""
    monkeypatch.chdir(tmp_path)
    Path("a.prototxt").write_text(
        'layer { name: "ein×" type: "Input" top: "x" input_param { shape { dim: 1 dim: 9 } } }', encoding="utf-8"
    )
    streams = {name: io.TextIOWrapper(io.BytesIO(), encoding=encoding) for name in ("stdout", "stderr")}
    for name, stream in streams.items():
        monkeypatch.setattr(sys, name, stream)
    try:
        status = main(words)
    except SystemExit as end:
        status = int(end.code or 0)
    assert status == (2 if words == ["summary"] else 0)
    for stream in streams.values():
        stream.flush()
        assert b"Traceback" not in stream.buffer.getvalue()
    assert any(stream.buffer.getvalue() for stream in streams.values())
