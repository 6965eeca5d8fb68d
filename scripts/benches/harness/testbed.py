"""The test bed (``scripts/testbed``) for benches: it is made and removed, and workers of benches run on its hosts."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scripts.benches.harness.launch import ROOT, order, read_answer
from scripts.testbeds import bed, cgroups

TESTBED = ROOT / "scripts" / "testbed"


def add_hosts(parser: argparse.ArgumentParser, hosts: str, bandwidth: str, what: str) -> None:
    """The flags --hosts (``what`` they are) and --bandwidth."""
    parser.add_argument("--hosts", default=hosts, help=f"{what} (default %(default)s)")
    parser.add_argument("--bandwidth", default=bandwidth, help="of each host's link (default %(default)s)")


def end_by_signals() -> None:
    """Let signals end this program in order, or else the test bed would stay."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, frame: sys.exit(128 + number))


def call(script: Path, *words: str) -> None:
    """Run a script of ours; if it fails, it has said why."""
    if subprocess.run([sys.executable, str(script), *words], stdout=subprocess.DEVNULL, check=False).returncode:
        sys.exit(f"{script.name} {words[0]} failed; see above")


def run_on_hosts(module: str, work: object, folder: Path, ranks: int = 0) -> Any:
    """Let ``module`` do its ``work``, on so many ranks; returns the first rank's answer; see ``launch.order``.

    Args:
        ranks: 0: one a slot.
    """
    words, answer = order(module, work, folder)
    call(TESTBED, "run", *(["-n", str(ranks)] if ranks else []), "--", "python", *words)
    return read_answer(answer)


@contextmanager
def on_testbed(hosts: str, bandwidth: str, any_will_do: bool = False) -> Iterator[str]:
    """A test bed, told in words; it is removed in the end.

    Args:
        any_will_do: whether one that is up serves, and stays.
    """
    present = bed.load() if any_will_do else None
    if present:
        groups = cgroups.find()
        if busy := [host.name for host in present.hosts if cgroups.processes(groups.host(host.name))]:
            sys.exit(f"the test bed that is up is in use ({', '.join(busy)}); see scripts/testbed status")
        yield f"test bed: {present} (was up)"
        return
    call(TESTBED, "up", "--hosts", hosts, "--bandwidth", bandwidth)
    try:
        yield f"test bed: hosts {hosts}; bandwidth {bandwidth}"
    finally:
        call(TESTBED, "down")
