"""Workers that are killed, under fault tolerance: the server and the other workers go on, and end well."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.mpi.lost_ranks import DEATHS, ROUNDS
from tests.support.mpirun import mpirun, needs_mpi

pytestmark = needs_mpi

SECONDS = 60  # in which a death is noticed on a machine that is busy; it takes some hundredths


def test_server_and_survivors_go_on_after_the_death_of_two_workers_and_end_well(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "tests.mpi.lost_ranks", str(tmp_path)]
    done = mpirun(5, argv, timeout=120, options=("--with-ft", "ulfm"))
    assert (done.returncode, done.stderr.strip("\0\n")) == (0, "")
    told = [line.split() for line in done.stdout.splitlines()]

    def of(what: str, rank: int) -> list[str]:
        (words,) = [words[2:] for words in told if words[:2] == [what, str(rank)]]
        return words

    lost: set[int] = set()
    for rank, rounds in DEATHS.items():
        lost.add(rank)
        served, noticed, named = of("lost", rank)
        assert (served, named) == (str(rounds), "True")
        assert 0 < float(noticed) - float(of("dies", rank)[0]) < SECONDS
        known = ",".join(map(str, sorted(lost)))
        assert of("sending", rank) == [known]
        assert of("again", rank) == [known] * 3
    assert ["rounds", "5", "8", str(ROUNDS), str(ROUNDS)] in told
    for place, rank in enumerate((0, 3, 4)):
        assert of("survivor", rank) == [str(place), "0", "3", "4", "12"]
        assert (tmp_path / str(rank)).read_text() == "whole"
    assert any(words[0] == "revoked" and words[1] != "done" for words in told)
