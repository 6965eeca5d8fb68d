"""What the programs in tools/ share: spellings of switches, errors and exit statuses."""

from __future__ import annotations

import argparse

import pytest

from bpt.base.errors import RunError, UsageError, UserError
from bpt.cli.options import Parser, check_backend
from bpt.cli.tool import run_tool


@pytest.fixture
def parser() -> Parser:
    made = Parser(prog="a.py")
    made.add_argument("file", nargs="?")
    made.switch("gray", "grey")
    made.flag("size", "size", default="0")
    return made


@pytest.mark.parametrize(
    ("words", "gray"),
    [
        ([], False), (["-gray"], True), (["--gray"], True), (["--gray=true"], True), (["-gray=1"], True),
        (["--gray=FALSE"], False), (["--gray", "--nogray"], False), (["--gray", "-nogray"], False),
        (["--gray", "file"], True),
    ],
)  # fmt: skip
def test_switches_as_gflags_has_them(words: list[str], gray: bool, parser: Parser) -> None:
    seen: list[argparse.Namespace] = []
    assert run_tool(parser, seen.append, [*words, "--size=a=b"]) == 0
    assert (seen[0].gray, seen[0].size) == (gray, "a=b")


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (UserError("wrong"), 2, "error: wrong\n"),
        (RunError("failed"), 1, "error: failed\n"),
        (KeyboardInterrupt(), 1, "error: interrupted\n"),
        (OSError(5, "Input/output error", "a.txt"), 1, "error: [Errno 5] Input/output error: 'a.txt'\n"),
    ],
)
def test_how_it_ends(
    error: BaseException, status: int, line: str, parser: Parser, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(arguments: argparse.Namespace) -> None:
        raise error

    assert run_tool(parser, fail, []) == status
    assert capsys.readouterr().err == line
    assert run_tool(parser, lambda arguments: 7, []) == 7
    assert run_tool(parser, fail, ["--sise=3"]) == 2
    assert 'did you mean "--size"?' in capsys.readouterr().err


def test_backends() -> None:
    check_backend("LMDB")
    with pytest.raises(UsageError, match="--backend leveldb: LevelDB is neither read nor written"):
        check_backend("leveldb")
    with pytest.raises(UsageError, match='DB_TYPE takes lmdb, found "x"'):
        check_backend("x", "DB_TYPE")
