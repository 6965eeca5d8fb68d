"""``scripts/bench combinations``: what works, what is refused and why, and what fails is seen as such."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpt.base.errors import RunError
from scripts.benches import combinations
from scripts.benches.combinations import ALL, FAILED, REFUSED, WORKS, Combination, attempt, attempt_by_mpirun
from tests.support.bench_arguments import parse
from tests.support.mpirun import needs_mpi

PLAIN = Combination("ALLREDUCE", "UNIFORM", "plain", "LIBRARY")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    combinations.write_files(tmp_path)
    return tmp_path


def test_all_combinations_have_four_to_nine_ranks_and_two_replicas_or_workers() -> None:
    assert len(set(ALL)) == 8 * 4 * 4 * 2 == 256
    ranks = {(each.exchange in combinations.OUTER, each.layout): each.ranks for each in ALL}
    assert ranks == {
        (False, "plain"): 4, (False, "stages"): 4, (False, "shards"): 4, (False, "stages x shards"): 8,
        (True, "plain"): 4, (True, "stages"): 5, (True, "shards"): 5, (True, "stages x shards"): 9,
    }  # fmt: skip


@pytest.mark.parametrize(
    "combination",
    [
        PLAIN,
        Combination("CGDP", "STATIC", "shards", "LIBRARY"),
        Combination("RING", "UNIFORM", "stages", "TASK_DAG"),
        Combination("SGWU", "IDPA", "plain", "LIBRARY"),
    ],
    ids=lambda combination: f"{combination.exchange} {combination.layout}",
)
def test_what_works(combination: Combination, folder: Path) -> None:
    tried = attempt(combination, folder)
    assert (tried.result, tried.why) == (WORKS, "")


def test_a_refusal_is_told_without_the_place_in_a_text_that_nobody_sees(folder: Path) -> None:
    tried = attempt(Combination("TREE", "IDPA", "plain", "LIBRARY"), folder)
    assert tried.result == REFUSED
    assert tried.why.startswith("parallel_param: balance: IDPA divides the data set among the workers")


def test_ranks_that_differ_from_one_process_have_failed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(combinations, "TOLERANCE", -1.0)  # which nothing keeps
    tried = attempt(PLAIN, folder)
    assert tried.result == FAILED
    assert tried.why.startswith("the ranks and one process differ in conv1")


def test_any_other_error_is_a_failure(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object) -> None:
        raise RunError("lost\nand more")

    monkeypatch.setattr(combinations, "compare", broken)
    tried = attempt(PLAIN, folder)
    assert (tried.result, tried.why) == (FAILED, "RunError: lost")
    words = str(tried).split()
    assert words[:5] == ["ALLREDUCE", "UNIFORM", "plain", "LIBRARY", "4"]
    assert words[6:] == ["FAILED:", "RunError:", "lost"]


@pytest.mark.slow
def test_the_table_and_the_exit_status(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--exchange", "ALLREDUCE", "--layout", "plain", "--inner", "LIBRARY", "--only", "refused")
    combinations.run(parse(combinations, *words))
    head, refused, summary = capsys.readouterr().out.splitlines()
    assert head.split() == ["exchange", "balance", "layout", "inner", "ranks", "s", "result"]
    assert refused.split()[:5] == ["ALLREDUCE", "IDPA", "plain", "LIBRARY", "4"]
    assert summary == "4 combinations: 3 works, 1 refused, 0 FAILED"

    failed = [combinations.Tried(PLAIN, FAILED, "lost", 0.0)]
    monkeypatch.setattr(combinations, "attempts", lambda *arguments: failed)
    with pytest.raises(SystemExit) as ended:
        combinations.run(parse(combinations, *words))
    assert ended.value.code == 1
    assert capsys.readouterr().out.splitlines()[-1] == "4 combinations: 0 works, 0 refused, 1 FAILED"


def test_unknown_names_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(combinations, "--exchange", "RINGS")
    assert 'no exchange "RINGS" here; there are ALLREDUCE, TREE, CGDP' in capsys.readouterr().err


@needs_mpi
@pytest.mark.slow
def test_by_mpirun(folder: Path) -> None:
    assert attempt_by_mpirun(PLAIN, folder).result == WORKS
    assert attempt_by_mpirun(Combination("RING", "IDPA", "plain", "LIBRARY"), folder).result == REFUSED
