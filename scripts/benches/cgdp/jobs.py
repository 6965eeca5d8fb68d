"""Jobs of ``scripts/bench cgdp`` and ``gpu``: processes that train a network, in one way or in several in turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scripts.benches.harness.launch import run_worker


@dataclass(frozen=True)
class Way:
    """One way to train.

    Attributes:
        name: in tables.
        parallel: the text of ``parallel_param``.
        apart: each rank trains for itself, all at the same time.
        lengths: chunks to use, from the top layer down; empty: those that ``parallel`` says.
    """

    name: str
    parallel: str = ""
    apart: bool = False
    lengths: tuple[int, ...] = ()


@dataclass(frozen=True)
class Work:
    """What a job does.

    Attributes:
        net: a folder of ``prototxt/``.
        size: of its images.
        batch: images of each rank.
        ranks: how many train.
        ways: what is trained in turn; those that differ in their chunks only share a solver.
        turns: of each way; every second time in the other order.
        iterations: of a turn.
        warm_up: iterations before the first turn of a way, that do not count.
        engine: the solver's.
        gpu: number of the device that all ranks use; empty: they compute on the CPU.
        threads: of each rank; 0: its share of the cores.
        trace: where to write a trace of a few more iterations of the last way; empty: nowhere.
    """

    net: str
    size: int
    batch: int
    ranks: int = 1
    ways: tuple[Way, ...] = (Way("alone", apart=True),)
    turns: int = 1
    iterations: int = 10
    warm_up: int = 3
    engine: str = "AUTO"
    gpu: str = ""
    threads: int = 1
    trace: str = ""

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Work:
        """From what a rank is told: ``asdict`` of a Work."""
        ways = tuple(Way(**{**way, "lengths": tuple(way["lengths"])}) for way in fields["ways"])
        return cls(**{**fields, "ways": ways})


@dataclass(frozen=True)
class Turn:
    """What was seen in a turn of one way.

    Attributes:
        seconds: of each iteration, on the first rank.
        ranks: seconds of each phase of an iteration (bpt.system.events.totals), the turn's mean, by rank.
    """

    seconds: tuple[float, ...]
    ranks: tuple[Mapping[str, float], ...]


@dataclass(frozen=True)
class Done:
    """What was seen in a job.

    Attributes:
        turns: of each way.
        lengths: of each way that has them, layers of the chunks, from the top layer down.
        settling: of each way that had something to try out at the start, seconds of each of these iterations.
        trials: of each way that has searched: chunks, seconds.
        peak: bytes of memory that each rank has taken at most: of the device, or else of the process (where ranks share
            memory, it counts on each that has touched it).
        engine: the memory layout that the last way has used.
    """

    turns: Mapping[str, tuple[Turn, ...]]
    lengths: Mapping[str, tuple[int, ...]]
    settling: Mapping[str, tuple[float, ...]]
    trials: Mapping[str, tuple[tuple[tuple[int, ...], float], ...]]
    peak: tuple[int, ...]
    engine: str

    @classmethod
    def of(cls, read: Mapping[str, Any]) -> Done:
        """From what the first rank has written."""
        return cls(
            {
                way: tuple(Turn(tuple(turn["seconds"]), tuple(turn["ranks"])) for turn in turns)
                for way, turns in read["turns"].items()
            },
            {way: tuple(lengths) for way, lengths in read["lengths"].items()},
            {way: tuple(seconds) for way, seconds in read["settling"].items()},
            {
                way: tuple((tuple(lengths), seconds) for lengths, seconds in trials)
                for way, trials in read["trials"].items()
            },
            tuple(read["peak"]),
            read["engine"],
        )


def run_job(work: Work, folder: Path, module: str = "cgdp.ranks") -> Done:
    """Do the ``work`` in processes of their own.

    Args:
        folder: for what goes to the ranks and comes back.
        module: of ``scripts.benches``: what they do.

    Raises:
        JobError: it has failed.
    """
    return Done.of(run_worker(module, asdict(work), folder, work.ranks, work.threads))
