"""Runs ``bpt`` and notes what takes the time to its first iteration: ``startup_probe.py ANSWER START WORD…``.

Works with any checkout of bpt on PYTHONPATH: it listens to Python's imports, and to a few calls of bpt's. At any moment
the time belongs to one phase, the innermost that is under way: ``numpy`` is not part of ``torch``, though torch imports
it, and what bpt's own files import of the standard library counts as bpt's. Each rank leaves a file ANSWER.RANK with
the phases in order: name → seconds by the clock, seconds of CPU. START is what the clock (``time.monotonic``) showed
when the launcher was started.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

INTERPRETER, IMPORTS, MPI, PLAN, BIND, ITERATION = (
    "interpreter, launcher", "bpt's imports", "MPI's start", "text to plan", "bind", "first iteration",
)  # fmt: skip
TORCH, SYMPY, OTHERS = "torch", "sympy", "other libraries"
PHASES = (INTERPRETER, TORCH, SYMPY, OTHERS, IMPORTS, MPI, PLAN, BIND, ITERATION)
_OF_PACKAGE = {
    "bpt": IMPORTS, "torch": TORCH, "sympy": SYMPY, "mpmath": SYMPY, "mpi4py": MPI,
    **dict.fromkeys(("numpy", "google", "tqdm", "lmdb", "h5py"), OTHERS),
}  # fmt: skip
# Calls of bpt that begin another phase, by module: (class or "", function, phase); what lies between them is PLAN.
_CALLS = {
    "bpt.system.comm.launch": ("", "world", MPI),
    "bpt.apps.commands.training": ("", "train", BIND),
    "bpt.train.runtime.runtime": ("Runtime", "train", ITERATION),
}
_EARLIER = {"train": "iterate"}  # names in older checkouts


class Phases:
    """The time of each phase, of which one is under way."""

    def __init__(self, start: float) -> None:
        self.seconds = {phase: [0.0, 0.0] for phase in PHASES}
        self.seconds[INTERPRETER] = [time.monotonic() - start, time.process_time()]
        self._stack = [PLAN]
        self._last = time.monotonic(), time.process_time()
        self._done = False

    @property
    def now(self) -> str:
        """The phase under way."""
        return self._stack[-1]

    def during(self, phase: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """``call``, whose time is that of ``phase``."""

        def timed(*arguments: Any, **named: Any) -> Any:
            self._note()
            self._stack.append(phase)
            try:
                return call(*arguments, **named)
            finally:
                self._note()
                self._stack.pop()
                self._done |= phase == ITERATION

        return timed

    def _note(self) -> None:
        now = time.monotonic(), time.process_time()
        if not self._done:
            for place in range(2):
                self.seconds[self.now][place] += now[place] - self._last[place]
        self._last = now


class Finder(MetaPathFinder):
    """Has the import of each package counted as what it is."""

    def __init__(self, phases: Phases) -> None:
        self._phases = phases

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See MetaPathFinder; ``None``: found as ever."""
        phase = _OF_PACKAGE.get(fullname.partition(".")[0])
        if phase is None or (phase == self._phases.now and fullname not in _CALLS):
            return None
        others = (finder.find_spec(fullname, path, target) for finder in sys.meta_path if finder is not self)
        spec = next((found for found in others if found is not None), None)
        if spec is None or spec.loader is None:
            return None
        execute = self._phases.during(phase, spec.loader.exec_module)

        def run(module: ModuleType) -> None:
            execute(module)
            if fullname in _CALLS:
                holder, name, own = _CALLS[fullname]
                of = getattr(module, holder) if holder else module
                name = name if hasattr(of, name) else _EARLIER.get(name, name)
                setattr(of, name, self._phases.during(own, getattr(of, name)))

        spec.loader.exec_module = run  # type: ignore[method-assign]
        return spec


def main(answer: str, start: str, *words: str) -> int:
    """The process's life; returns its exit status."""
    phases = Phases(float(start))
    # This folder has files of the names of Python's own modules.
    sys.path[:] = [folder for folder in sys.path if Path(folder or ".").resolve() != Path(__file__).resolve().parent]
    sys.meta_path.insert(0, Finder(phases))
    status: int = phases.during(PLAN, _bpt)(words)
    Path(f"{answer}.{os.environ.get('OMPI_COMM_WORLD_RANK', '0')}").write_text(json.dumps(phases.seconds))
    return status


def _bpt(words: Sequence[str]) -> int:
    from bpt.cli.main import main as bpt  # noqa: PLC0415  which is what is measured

    return bpt(words)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
