"""``bpt draw`` at the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpt.apps.commands.job import Job
from bpt.base.errors import UsageError
from bpt.cli.main import COMMANDS, make_parser
from tests.support.commands import Bpt
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.figures import size

NET = ("draw", "--model=lenet_train_test.prototxt", "--output=a.svg")


@pytest.mark.usefixtures("inputs")
def test_a_picture(bpt: Bpt) -> None:
    pytest.importorskip("matplotlib")
    outcome = bpt(*NET)
    assert (outcome.status, outcome.err) == (0, "")
    assert outcome.out == "a.svg: 9 layers in 8 boxes\n"
    width, height = size(Path("a.svg"))
    assert height > width
    bpt(*NET, "-rankdir", "LR", "--phase=ALL", "-display_lrm", "--columns", "1")
    width, height = size(Path("a.svg"))
    assert width > height


@pytest.mark.usefixtures("inputs")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["draw"], "bpt draw needs --model: the network to draw"),
        (["draw", "--model=a"], "bpt draw needs --output: the picture to write"),
        ([*NET, "--columns=0"], '--columns: takes a whole number of at least 1, found "0" (bpt draw --help explains)'),
        ([*NET, "--fase=TEST"], 'unrecognized arguments: --fase=TEST; did you mean "--phase"?'),
        ([*NET[:2], "--output=no/a.svg"], 'no/a.svg: cannot be written: there is no folder "no"; make it, or name '
         "another"),
        ([*NET[:2], "--output=a.gif"], "a.gif: drawings are written to files that end in .svg, .png, .pdf"),
    ],
)  # fmt: skip
def test_mistakes(words: list[str], message: str, bpt: Bpt) -> None:
    pytest.importorskip("matplotlib")
    outcome = bpt(*words)
    assert outcome.error == message
    assert outcome.status == 2


def test_many_ranks_are_refused() -> None:
    for words in (["draw", "--model=a", "--output=b.svg"], ["plot", "--output=b.svg", "--log=a"]):
        arguments = make_parser().parse_args(words)
        with pytest.raises(UsageError, match=f"bpt {words[0]} runs on one process; leave mpirun out"):
            run_ranks(
                2,
                lambda world, words=words, arguments=arguments: COMMANDS[words[0]].run(arguments, Job(world, 0, 1)),  # type: ignore[misc]
            )
