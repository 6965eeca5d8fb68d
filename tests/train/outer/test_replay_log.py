"""The log of a run on disk: whole after any end of the run, and refused if it is of another."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from bpt.base.errors import FileError, UserError, WriteError
from bpt.parallel.outer.outer_instructions import (
    ApplyGradient,
    AverageSubmitted,
    CutShort,
    Lost,
    Merge,
    Order,
    OuterInstruction,
    SendOrder,
    Settled,
)
from bpt.parallel.outer.update_factors import AgwuUpdate
from bpt.train.outer.replay_log import RecordedRun, RunFacts, check_replay, read_log, remarks, writing

SOLVER = "max_iter: 9\nparallel_param {\n  exchange: AGWU\n}\n"
FACTS = RunFacts(SOLVER, "def", "012", 60_000, 2, 2**63 + 1, (1, 4))
INSTRUCTIONS: tuple[OuterInstruction, ...] = (
    Settled(1, 2, 0),
    SendOrder(Order(0, 0, Fraction(1), Fraction(0), ((0, 5),), batch=1)),
    Merge(AgwuUpdate(0, 0, 0, 0.1, 1 / 3)),
    Settled(0, 1, 1),
    AverageSubmitted((0, 1), (0.25, 0.75), 1),
    ApplyGradient(AgwuUpdate(1, 2, 3, 1.0, 1.0), Fraction(1, 3)),
    CutShort(0, Fraction(7, 3), 5),
    Lost((1,)),
)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A whole one, in a folder that was not there before."""
    path = tmp_path / "new" / "run" / "replay.jsonl"
    with writing(str(path)) as log:
        log.begin(FACTS)
        for instruction in INSTRUCTIONS:
            log.add(instruction)
    return path


def test_there_and_back(log: Path) -> None:
    recorded = read_log(str(log))
    assert recorded == RecordedRun(str(log), FACTS, INSTRUCTIONS)
    assert recorded.engines == {0: (1, 1), 1: (2, 0)}
    assert len(log.read_text().splitlines()) == 1 + len(INSTRUCTIONS)


def test_each_line_is_there_at_once(tmp_path: Path) -> None:
    """... so that a run that is killed leaves what it has done."""
    path = tmp_path / "replay.jsonl"
    with writing(str(path)) as log:
        log.begin(FACTS)
        for number, instruction in enumerate(INSTRUCTIONS):
            log.add(instruction)
            assert read_log(str(path)).instructions == INSTRUCTIONS[: number + 1]


def test_a_new_run_starts_a_new_log(log: Path) -> None:
    with writing(str(log)) as again:
        again.begin(FACTS)
    assert read_log(str(log)).instructions == ()


def test_a_log_that_was_cut_off_anywhere(log: Path) -> None:
    """Whole lines are read, the last one also without its end; half a line is refused where it stands."""
    text = log.read_text()
    whole = {at for at, letter in enumerate(text) if letter == "\n"}
    for end in sorted({*range(0, len(text), 7), *whole, *(at + 1 for at in whole)}):
        log.write_text(text[:end])
        lines = text[:end].count("\n")
        if end < min(whole):
            with pytest.raises(FileError, match="this is no replay log of bpt"):
                read_log(str(log))
        elif end in whole or text[end - 1] == "\n":
            assert read_log(str(log)).instructions == INSTRUCTIONS[: lines - (end not in whole)]
        else:
            with pytest.raises(FileError) as caught:
                read_log(str(log))
            assert str(caught.value).startswith(f"{log}:{lines + 1}: this is no instruction of a replay log: ")
            assert str(caught.value).endswith("; the file was cut: remove this line to repeat what stands before it")


def test_a_line_in_the_middle_that_is_damaged(log: Path) -> None:
    lines = log.read_text().split("\n")
    lines[3] = lines[3][:20]
    log.write_text("\n".join(lines))
    with pytest.raises(FileError) as caught:
        read_log(str(log))
    assert str(caught.value) == f"{log}:4: this is no instruction of a replay log: {lines[3]!r}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "iteration,loss\n1,2\n",
        "[]\n",
        "7\n",
        '"bpt replay log"\n',
        '{"bpt replay log": 1}\n',
        '{"bpt replay log": 1, "threads": [1]}\n',
        '{"bpt replay log": 1, "threads": 1}\n',
    ],
)
def test_what_is_no_log(text: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    with pytest.raises(FileError) as caught:
        read_log(str(path))
    assert str(caught.value) == (
        f"{path}: this is no replay log of bpt; bpt train writes one as <snapshot_prefix>_run/replay.jsonl"
    )


@pytest.mark.parametrize("change", [{"bpt replay log": 1}, {"solver": "max_iter: 9 }"}, {"more": 1}, {"threads": None}])
def test_a_first_line_of_another_kind(change: dict[str, object], log: Path) -> None:
    first, *rest = log.read_text().split("\n")
    log.write_text("\n".join([json.dumps({**json.loads(first), **change}), *rest]))
    with pytest.raises(FileError, match="this is no replay log of bpt"):
        read_log(str(log))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="no_such: cannot read the replay log: No such file or directory"):
        read_log(str(tmp_path / "no_such"))
    with pytest.raises(FileError, match="cannot read the replay log: Is a directory"):
        read_log(str(tmp_path))
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileError, match="binary: cannot read the replay log: it is no text"):
        read_log(str(tmp_path / "binary"))


def test_files_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match="file/log: could not be written: "), writing(str(tmp_path / "file" / "log")):
        pass
    with pytest.raises(WriteError, match=r"could not be written: .*Is a directory"), writing(str(tmp_path)):
        pass


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk() -> None:
    """Closing the file, which tries once more, must not raise an OSError instead."""
    with pytest.raises(WriteError, match=r"/dev/full: could .* No space left"), writing("/dev/full") as log:
        log.begin(FACTS)


def test_the_same_run() -> None:
    check_replay(RecordedRun("log", FACTS, ()), replace(FACTS, threads=()))
    assert list(remarks(RecordedRun("log", FACTS, ()), (1, 4))) == []


def test_other_threads_are_worth_a_remark() -> None:
    told = list(remarks(RecordedRun("log", FACTS, ()), (1, 2)))
    assert told == ["worker 1 computed with 4 threads, and has 2 now: roundings may differ"]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"solver": SOLVER.replace("9", "8")}, "max_iter (9, now 8)"),
        (
            {"solver": SOLVER.replace("AGWU", "SGWU balance: IDPA")},
            "parallel_param { exchange (AGWU, now SGWU) }, parallel_param { balance (UNIFORM, now IDPA) }",
        ),
        ({"net": "x"}, "network text (def, now x)"),
        ({"weights": "x"}, "weights at the start (012, now x)"),
        ({"samples": 5}, "samples (60000, now 5)"),
        ({"workers": 3}, "workers (2, now 3)"),
        ({"seed": 1}, f"random_seed ({2**63 + 1}, now 1)"),
        ({"seed": 1, "net": "x"}, f"network text (def, now x), random_seed ({2**63 + 1}, now 1)"),
    ],
)
def test_another_run_is_refused(change: dict[str, object], named: str) -> None:
    now = replace(FACTS, **change)  # type: ignore[arg-type]
    with pytest.raises(UserError) as caught:
        check_replay(RecordedRun("a/log", FACTS, ()), now)
    assert str(caught.value) == (
        f"a/log: this log is of another run: {named}; --replay needs the same files, --set and number of ranks"
    )


def test_a_first_line_that_is_nested_deep(log: Path) -> None:
    log.write_text("[" * 100_000 + "\n")
    with pytest.raises(FileError, match="this is no replay log of bpt"):
        read_log(str(log))
