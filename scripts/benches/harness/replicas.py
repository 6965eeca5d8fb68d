"""Unlike ranks on this machine without hosts of their own: each in a cgroup with a share of the processor.

They have one name, one memory and no network between them, so many start in a moment; the test bed (testbed.py) has
hosts instead.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scripts.benches.harness.launch import call, order, read_answer
from scripts.benches.harness.rank import GROUPS
from scripts.testbeds import cgroups

SLOW = 0.25  # of a fast replica
DIFFERENCE = 0.05  # between those of a group, up to three times
SPARE = 0.2  # of the machine, for what else there is


def unlike_shares(number: int, cores: int) -> list[float]:
    """Shares in cores of so many replicas: fast ones and as many or one fewer slow ones, none quite like the next.

    As in the paper's clusters of GPUs and CPUs. Together they leave a part of the machine; none has more than a core,
    which is all that a rank of one thread can use.
    """
    fast = (number + 1) // 2
    relative = [
        (1.0 if each < fast else SLOW) * (1 - DIFFERENCE * ((each if each < fast else each - fast) % 4))
        for each in range(number)
    ]
    unit = min(1.0, (1 - SPARE) * cores / sum(relative))
    return [round(unit * each, 4) for each in relative]


@dataclass(frozen=True)
class Replicas:
    """Ranks that have so many cores each, in cgroups below ``folder``, once they have started."""

    shares: Sequence[float]
    folder: Path

    def run(self, module: str, work: object, scratch: Path) -> Any:
        """Let ``module`` do its ``work`` on these ranks, of one thread each; see ``launch.order``.

        Raises:
            JobError: it has failed.
        """
        words, answer = order(module, work, scratch)
        call(["env", f"{GROUPS}={self.folder}", sys.executable, *words], len(self.shares), threads=1)
        return read_answer(answer)


@contextmanager
def replicas(shares: Sequence[float]) -> Iterator[Replicas]:
    """Cgroups for ranks with these shares; they are removed in the end, with what still runs in them.

    Raises:
        RunError: the kernel refuses; says what is needed.
    """
    groups = replace(cgroups.find(), name=f"bpt-replicas-{os.getpid()}")
    try:
        for rank, share in enumerate(shares):
            groups.add_host(str(rank), share)
        yield Replicas(tuple(shares), groups.root)
    finally:
        groups.remove()
