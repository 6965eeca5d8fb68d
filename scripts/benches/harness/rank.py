"""The program that the processes of a bench run: ``rank.py MODULE …``, with a module of ``scripts.benches``.

``rank.py MODULE ORDER ANSWER``, a rank of a job: the module's ``work`` gets what stands in the file ORDER and the
communicator of all ranks; what it returns on the first rank goes to the file ANSWER. Both are JSON. If the module has
``keep_memory``, it gets the order, too, and replaces what is usual.

``rank.py MODULE WORD…``, such as a side that takes turns with others (turns.py): the module's ``serve`` gets the words,
and returns the exit status, if it is not 0.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C, of which the bench tells
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import torch

from bpt.base.malloc_settings import keep_freed_memory
from bpt.system.comm import rank_failure
from bpt.system.comm.base import Communicator
from bpt.system.comm.cores import share_cores

GROUPS = "BENCH_CGROUPS"
"""The variable that names the folder of cgroups, one for each rank, called by its number; not set: ranks have none."""


def main(words: Sequence[str]) -> int:
    """The process's life; returns its exit status."""
    module = import_module(f"scripts.benches.{words[0]}")
    if hasattr(module, "serve"):
        status: int | None = module.serve(*words[1:])
        return status or 0
    ordered, answer = map(Path, words[1:])
    order: dict[str, Any] = json.loads(ordered.read_text())
    # This and what follows as the command line does it.
    if hasattr(module, "keep_memory"):
        module.keep_memory(order)
    else:
        keep_freed_memory()

    def command(world: Communicator) -> None:
        torch.set_num_threads(share_cores(world))
        gc.freeze()
        if groups := os.environ.get(GROUPS):  # not before: a rank of a small share would be minutes in starting
            (Path(groups) / str(world.rank) / "cgroup.procs").write_text(str(os.getpid()))
        seen = module.work(order, world)
        if world.rank == 0:
            answer.write_text(json.dumps(seen, indent=1))

    return rank_failure.run(command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
