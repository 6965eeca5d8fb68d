"""The file of ``cgdp_param { choice }``: chunks that a search has chosen, for later runs of the same net and ranks.

JSON: the format's number, what the choice is good for, the chunks from the top layer down, and what was tried.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TypeVar

import torch

from bpt.base.errors import FileError
from bpt.base.user_files import write_json
from bpt.base.version import VERSION
from bpt.config.plan.run_plan import RunPlan
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.net_digest import net_digest
from bpt.parallel.balance.profile import RankFacts
from bpt.parallel.balance.rank_facts import facts
from bpt.parallel.cgdp.chunks import Trial
from bpt.system.comm.agreement import outcome_of_first
from bpt.system.comm.grid import ProcessGrid

LOG = logging.getLogger("bpt")

FORMAT = 1
REMEDY = "delete it, and the next run searches and writes it anew"

T = TypeVar("T")
_KINDS: dict[type, str] = {int: "whole number", str: "text", list: "list"}


@dataclass(frozen=True)
class Setting:
    """The setting that a choice of chunks holds for.

    Attributes:
        net: digest of the training net, its batch included; see ``net_digest``.
        layers: those with trained parameters.
        grid: how the ranks are arranged.
        ranks: their hosts, devices and threads.
    """

    net: str
    layers: int
    grid: str
    ranks: tuple[RankFacts, ...]

    @classmethod
    def of(cls, plan: RunPlan, graph: LayerGraph, layers: int, grid: ProcessGrid, device: torch.device) -> Setting:
        """Return the setting of a run; a collective call.

        Args:
            graph: the training net.
        """
        return cls(net_digest(graph), layers, str(grid), facts(plan, graph, device, grid.world).ranks)

    def differences(self, now: Setting) -> Iterator[str]:
        """Yield in words what differs ``now``."""
        if (self.net, self.layers) != (now.net, now.layers):
            yield "it is of another network or batch"
        if self.grid != now.grid:
            yield f"it is of {self.grid}, now there are {now.grid}"
            return
        for number, (then, today) in enumerate(zip(self.ranks, now.ranks, strict=True)):
            for what, before, after in (
                ("ran on host", then.host, today.host),
                ("computed on", then.device, today.device),
                ("had threads", then.threads, today.threads),
            ):
                if before != after:
                    yield f"rank {number} {what} {before}, now {after}"


class ChoiceFile:
    """The file of a run; its methods are collective calls. Only the first rank reads and writes.

    Args:
        path: of the file, which may not be there yet.
        setting: of the run.
        grid: its ranks.
    """

    def __init__(self, path: str, setting: Setting, grid: ProcessGrid) -> None:
        self.path = path
        self._setting = setting
        self._world = grid.world

    def read(self) -> tuple[int, ...] | None:
        """Return the chunks chosen for this setting; ``None`` without a file, or with one for another setting.

        Raises:
            FileError: the file is damaged, or there is no folder for it.
        """
        found = outcome_of_first(self._world, None if self._world.rank else lambda: _read(self.path))
        if found is None:
            return None
        setting, lengths = found
        differences = list(setting.differences(self._setting))
        if differences:
            LOG.warning(
                "Chunks: %s was not chosen for this run: %s. A new search will overwrite it",
                self.path, "; ".join(differences[:4]),
            )  # fmt: skip
            return None
        return lengths

    def write(self, lengths: Sequence[int], trials: Sequence[Trial]) -> None:
        """Write the chosen chunks and the trials that led to them.

        Raises:
            WriteError: the file could not be written.
        """
        content = {
            "format": FORMAT,
            "bpt": VERSION,
            **asdict(self._setting),
            "lengths": list(lengths),
            "trials": [{"lengths": list(trial.lengths), "seconds": trial.seconds} for trial in trials],
        }
        write = partial(write_json, content, self.path)
        outcome_of_first(self._world, None if self._world.rank else write)


def _read(path: str) -> tuple[Setting, tuple[int, ...]] | None:
    if not os.path.exists(path):
        folder = os.path.dirname(os.path.abspath(path))
        if not os.path.isdir(folder):
            raise FileError(path, f'cannot be written when the search has ended: there is no folder "{folder}"')
        return None
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except OSError as error:
        raise FileError(path, f"cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise FileError(path, f"is not a choice of chunks: {error}; {REMEDY}") from None
    return _Reader(path).choice(content)


class _Reader:
    """Parses a choice from a file's content, or says what is wrong with it."""

    def __init__(self, path: str) -> None:
        self._path = path

    def choice(self, content: Any) -> tuple[Setting, tuple[int, ...]]:
        number = self._field(content, "format", int)
        if number != FORMAT:
            raise FileError(self._path, f"has format {number}, but this bpt reads format {FORMAT}; {REMEDY}")
        ranks = tuple(self._rank(rank) for rank in self._field(content, "ranks", list))
        layers = self._field(content, "layers", int)
        setting = Setting(self._field(content, "net", str), layers, self._field(content, "grid", str), ranks)
        lengths = self._field(content, "lengths", list)
        if not all(type(length) is int and length >= 1 for length in lengths) or sum(lengths) != layers:
            raise self._error(f"lengths must be whole numbers above 0 whose sum is {layers}, the number of layers")
        return setting, tuple(lengths)

    def _rank(self, rank: Any) -> RankFacts:
        return RankFacts(
            self._field(rank, "host", str), self._field(rank, "device", str), self._field(rank, "threads", int)
        )

    def _field(self, content: Any, name: str, kind: type[T]) -> T:
        value = content.get(name) if isinstance(content, dict) else None
        if type(value) is not kind:  # a truth value is no number here
            raise self._error(f'"{name}" is missing, or not a {_KINDS[kind]}')
        return value

    def _error(self, message: str) -> FileError:
        return FileError(self._path, f"is not a choice of chunks: {message}; {REMEDY}")
