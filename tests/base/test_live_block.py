"""The live block: at the bottom of a terminal, below what else is written, and gone at the end."""

from __future__ import annotations

import os
import sys

import pytest

from bpt.base.live_block import LiveBlock, can_be_drawn, is_live
from tests.support.pseudo_terminal import Terminal, screen, set_size

LINES = ["LeNet · one process", "[██··] 2 of 4"]


def test_the_block_stands_below_what_is_written() -> None:
    with Terminal() as terminal, LiveBlock(lambda width: LINES) as block:
        print("a warning", file=sys.stderr)
        print("two", "lines", sep="\n", file=sys.stderr)
        block.draw()
        shown = terminal.read()
        assert screen(shown) == ["a warning", "two", "lines", "", *LINES]
        assert screen(f"{shown}cursor")[3] == "cursor"  # it rests on the empty line


def test_nothing_is_left_of_the_block() -> None:
    with Terminal() as terminal:
        with LiveBlock(lambda width: LINES):
            print("a warning", file=sys.stderr)
        assert screen(terminal.read()) == ["a warning", ""]


def test_what_has_no_end_of_a_line_is_not_lost() -> None:
    with Terminal() as terminal:
        with LiveBlock(lambda width: LINES):
            sys.stderr.write("half")
            sys.stderr.flush()
            assert screen(terminal.read()) == ["", *LINES]
            sys.stderr.write(" a line\nrest")
        assert screen(terminal.read())[:2] == ["half a line", "rest"]


def test_lines_of_other_programs_stay() -> None:
    with Terminal() as terminal, LiveBlock(lambda width: LINES) as block:
        shown = terminal.read()
        os.write(terminal.file.fileno(), b"from a library\n")
        block.draw()
        assert screen(shown + terminal.read()) == ["from a library", "", *LINES]


def test_fewer_lines_erase_the_others() -> None:
    lines = list(LINES)
    with Terminal() as terminal, LiveBlock(lambda width: lines) as block:
        del lines[1:]
        block.draw()
        assert screen(terminal.read()) == ["", LINES[0]]


def test_a_window_of_another_size() -> None:
    """The next drawing erases all below the cursor, however the terminal has wrapped it, and fits the new size."""
    widths: list[int] = []

    def content(width: int) -> list[str]:
        widths.append(width)
        return ["x" * width] * 30

    with Terminal() as terminal, LiveBlock(content) as block:
        terminal.read()
        for width, height in ((40, 10), (120, 24), (0, 0)):
            set_size(terminal.file.fileno(), width, height)
            block.draw()
            drawn = terminal.read()
            assert drawn.startswith("\r\x1b[J")
            assert screen(drawn) == ["", *["x" * widths[-1]] * ((height or 24) - 2)]
    assert {39, 119, 79} == set(widths)


def test_without_unicode() -> None:
    with Terminal("ascii") as terminal, LiveBlock(lambda width: LINES):
        assert screen(terminal.read()) == ["", "LeNet - one process", "[##--] 2 of 4"]


def test_stdout_on_the_same_terminal_goes_above_and_elsewhere_stays(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Terminal() as terminal:
        with LiveBlock(lambda width: LINES):
            print("elsewhere")
        assert capsys.readouterr().out == "elsewhere\n"
        assert screen(terminal.read()) == [""]
        monkeypatch.setattr(sys, "stdout", terminal.file)
        with LiveBlock(lambda width: LINES):
            print("above")
            assert screen(terminal.read()) == ["above", "", *LINES]
        assert sys.stdout is terminal.file


def test_a_closed_terminal_disturbs_nobody() -> None:
    with Terminal() as terminal, LiveBlock(lambda width: LINES) as block:
        terminal.close_window()
        block.draw()
        print("nobody reads this", file=sys.stderr)


@pytest.mark.parametrize("name", ["", "dumb", "unknown"])
def test_terminals_that_cannot_move_their_cursor(name: str) -> None:
    with Terminal() as terminal:
        assert not can_be_drawn(terminal.file, {"TERM": name})
        assert can_be_drawn(terminal.file, {"TERM": "xterm"})
        assert not can_be_drawn(terminal.file, {"TERM": "xterm", "JPY_PARENT_PID": "7"})  # !bpt train in a notebook


@pytest.mark.parametrize(
    ("log", "environment", "live"),
    [
        ("", {}, True),
        ("train.log", {}, True),
        ("-", {}, False),
        ("", {"TERM": "dumb"}, False),
        ("", {"GLOG_logtostderr": "1"}, False),
        ("", {"GLOG_alsologtostderr": "true"}, False),
        ("", {"GLOG_alsologtostderr": "false"}, True),
    ],
)
def test_who_wants_the_log_on_stderr_gets_it(
    log: str, environment: dict[str, str], live: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JPY_PARENT_PID", raising=False)
    for name, value in ({"TERM": "xterm"} | environment).items():
        monkeypatch.setenv(name, value)
    with Terminal():
        assert is_live(log) == live


def test_a_pipe_gets_no_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert not is_live("")
