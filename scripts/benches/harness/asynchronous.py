"""Training by workers that do not go in step (AGWU, SGWU, ASGD), by ``bpt train``, which leaves a record of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from bpt.train.outer.report import RunRecord, read_csv
from scripts.benches.harness.launch import TIMEOUT, call


def train_asynchronously(
    solver: str, fields: Sequence[str], ranks: int, folder: Path, threads: int = 1, timeout: float = TIMEOUT
) -> RunRecord:
    """Train on this machine; return what was seen.

    Args:
        fields: laid over the solver's text.
        folder: for the snapshot and the record.
        threads: of each rank.
        timeout: seconds.

    Raises:
        JobError: it has failed.
    """
    prefix = folder.resolve() / "asynchronous"
    words = [sys.executable, "-m", "bpt", "train", "--solver", solver]
    for text in (*fields, f'snapshot: 0 snapshot_prefix: "{prefix}"'):
        words += ["--set", text]
    call(words, ranks, threads, timeout)
    return read_csv(prefix.with_name("asynchronous_run"))
