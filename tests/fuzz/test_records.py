"""Records of LMDBs: Datums, raw, of floats and encoded, and what is made of them before they are a batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpt.config.proto import bpt_pb2 as pb
from tests.fuzz.engine import Target, run_cases, run_one
from tests.fuzz.targets.records import TARGETS, Datums


@pytest.mark.parametrize("kind", TARGETS, ids=lambda kind: kind.name)
def test_records_are_taken_or_refused(kind: type[Target], tmp_path: Path) -> None:
    run_cases(kind(tmp_path), 1, range(kind.short))


@pytest.mark.parametrize(
    "datum",
    [
        pb.Datum(channels=2**31 - 1, height=2**31 - 1, width=2**31 - 1, data=b"1"),
        pb.Datum(channels=0, height=2**31 - 1, width=2**31 - 1),
        pb.Datum(encoded=True, data=b"\x89PNG\r\n\x1a\n"),
    ],
    ids=range(3),
)
def test_records_that_announce_more_than_they_hold(datum: pb.Datum, tmp_path: Path) -> None:
    assert run_one(Datums(tmp_path), datum.SerializeToString()).refused
