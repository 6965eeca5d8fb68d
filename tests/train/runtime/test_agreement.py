"""Ranks that are about to do different things say so; and what the first one finds out, all learn."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

import bpt
from bpt.base.errors import DataError, FileError, UserError, WriteError
from bpt.data.hdf5_file import Hdf5Source
from bpt.graph.net_digest import net_digest
from bpt.nn.net import Net
from bpt.system.comm.agreement import check_same, outcome_of_first
from bpt.system.comm.base import Communicator
from bpt.train.runtime.run_facts import check_content, data_facts, facts_of, solver_digest
from tests.support.doubles.thread_ranks import ThreadCommunicator, run_ranks
from tests.support.golden_cases import graph_of
from tests.support.hdf5_files import numbered, text, write
from tests.support.small_solver import NET
from tests.support.training import solver_of

FACTS = {"bpt version": "0.1.0", "solver text": "aa", "network text": "bb"}
REMEDY = "; copy the same files and install the same packages on all hosts (bpt doctor shows them)"


@pytest.fixture(autouse=True)
def hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every rank has a host of its own: a, b, c, …"""
    monkeypatch.setattr(ThreadCommunicator, "host", property(lambda comm: "abcd"[comm.rank]))


def test_facts() -> None:
    param = solver_of("base_lr: 1")
    graph, tests = graph_of(NET), [graph_of(NET, phase=1), graph_of(NET.replace("num_output: 3", "num_output: 2"))]
    assert facts_of(param, graph) == {
        "bpt version": bpt.__version__,
        "torch version": torch.__version__,
        "numpy version": np.__version__,
        "solver text": solver_digest(param),
        "network text": net_digest(graph),
    }
    assert facts_of(param, graph, *tests) == facts_of(param, graph) | {
        "text of test net #0": net_digest(tests[0]),
        "text of test net #1": net_digest(tests[1]),
    }


@pytest.mark.parametrize("ranks", [1, 3])
def test_the_same_everywhere(ranks: int) -> None:
    run_ranks(ranks, lambda comm: check_same(comm, FACTS))


def complaints(*facts: dict[str, str]) -> set[str]:
    def run(comm: Communicator) -> str:
        with pytest.raises(UserError) as caught:
            check_same(comm, facts[comm.rank])
        return str(caught.value)

    return set(run_ranks(len(facts), run))


def test_all_ranks_name_the_one_that_differs() -> None:
    assert complaints(FACTS, FACTS, FACTS | {"solver text": "cc"}) == {
        f"rank 2 on host c differs from rank 0 on host a in solver text (cc, not aa){REMEDY}"
    }


def test_all_that_differs() -> None:
    assert complaints(FACTS, {"bpt version": "0.2.0", "solver text": "aa", "network text": "dd"}) == {
        f"rank 1 on host b differs from rank 0 on host a in bpt version (0.2.0, not 0.1.0), network text (dd, not bb)"
        f"{REMEDY}"
    }


def test_of_several_the_first_is_named() -> None:
    """Where the first rank is the odd one out, too: nobody can tell."""
    (message,) = complaints(FACTS | {"bpt version": "9"}, FACTS, FACTS)
    assert message.startswith("rank 1 on host b differs from rank 0 on host a in bpt version (0.1.0, not 9)")


def test_a_test_net_more_or_less() -> None:
    more = FACTS | {"text of test net #0": "ee"}
    (message,) = complaints(FACTS, more)
    assert "rank 1 on host b differs from rank 0 on host a in text of test net #0 (ee, not none)" in message
    (message,) = complaints(more, FACTS)
    assert "rank 1 on host b differs from rank 0 on host a in text of test net #0 (none, not ee)" in message


def test_sizes_of_data(tmp_path: Path) -> None:
    small = write(tmp_path, numbered(0, 5), numbered(5, 4))
    (tmp_path / "list.txt").write_text(f"{tmp_path}/0.h5\n{tmp_path}/1.h5\n")
    with_data, without = Net(graph_of(text(small))), Net(graph_of(NET))
    facts = data_facts({"train": with_data, "test#0": without, "test#1": with_data})
    with_data.close()
    assert facts == {
        'the data of layer "d" of train': "9 samples",
        'the data of layer "d" of test#1': "9 samples",
    }
    (message,) = complaints(facts, facts | {'the data of layer "d" of train': "8 samples"})
    assert 'rank 0 on host a in the data of layer "d" of train (8 samples, not 9 samples)' in message


def content_complaints(*folders: Path | None) -> set[str]:
    """What ranks say that read the lists in these folders; None: it has no such layer."""

    def run(comm: Communicator) -> str:
        folder = folders[comm.rank]
        net = Net(graph_of(NET if folder is None else text(folder / "list.txt")))
        try:
            check_content(comm, {"train": net})
        except UserError as error:
            return str(error)
        finally:
            net.close()
        return ""

    return set(run_ranks(len(folders), run))


def test_ranks_that_read_other_data(tmp_path: Path) -> None:
    here, copy, other = (tmp_path / name for name in ("here", "copy", "other"))
    for folder in (here, copy, other):
        folder.mkdir()
        rows = [numbered(0, 5), numbered(5, 4)]
        if folder == other:
            rows[1]["data"][3] = 7
        write(folder, *rows)
    assert content_complaints(here, copy) == {""}
    assert content_complaints(None, here, None, copy) == {""}
    (message,) = content_complaints(None, here, copy, other)
    assert re.fullmatch(
        r'rank 3 on host d reads other data than rank 1 on host b for layer "d" of train: the records of '
        rf"{other}/list.txt there \([0-9a-f]{{16}}\) are not those of {here}/list.txt here \([0-9a-f]{{16}}\); "
        r"copy the same data to all hosts \(bpt doctor compares more of them\)",
        message,
    )


def test_data_that_only_one_rank_can_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was there when the net was built."""
    write(tmp_path, numbered(0, 5))
    monkeypatch.setattr(Hdf5Source, "glance", lambda source: (_ for _ in ()).throw(DataError("gone")))
    assert content_complaints(tmp_path, tmp_path) == {""}


# What the first rank finds out


def test_a_result_for_all() -> None:
    asked = []

    def run(comm: Communicator) -> int:
        return outcome_of_first(comm, None if comm.rank else lambda: asked.append(1) or 7)

    assert run_ranks(3, run) == [7, 7, 7]
    assert asked == [1]


def test_the_first_ones_result_counts() -> None:
    assert run_ranks(3, lambda comm: outcome_of_first(comm, lambda: 10 + comm.rank)) == [10, 10, 10]


@pytest.mark.parametrize("error", [FileError("a", "is damaged"), WriteError("b", "No space left on device")])
def test_an_error_for_all(error: FileError | WriteError) -> None:
    """On ranks with a part in the work, which raise it by themselves, and on those without."""

    def fail() -> None:
        raise error

    def run(comm: Communicator) -> tuple[type, str, str]:
        with pytest.raises((FileError, WriteError)) as caught:
            outcome_of_first(comm, None if comm.rank == 2 else fail)
        found = caught.value
        assert isinstance(found, (FileError, WriteError))
        return type(found), str(found), found.path

    assert run_ranks(3, run) == [(type(error), str(error), error.path)] * 3


def test_what_one_rank_alone_may_raise_is_raised_at_once() -> None:
    """Nobody waits for it."""

    def fail() -> None:
        raise DataError("record 7")

    with pytest.raises(DataError, match="record 7"):
        run_ranks(2, lambda comm: outcome_of_first(comm, None if comm.rank else fail))


def test_the_message_is_one_line() -> None:
    (message,) = complaints(FACTS, FACTS | {"solver text": "cc"})
    assert re.fullmatch(r"[^\n]+", message)
