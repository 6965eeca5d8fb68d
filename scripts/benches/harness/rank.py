"""The program that a rank of a bench runs: ``rank.py MODULE ORDER ANSWER``.

The function ``work`` of the module gets what stands in the file ORDER and the communicator of all ranks. What it
returns on the first rank goes to the file ANSWER; both are JSON.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import torch

from bpt.allocator import keep_freed_memory
from bpt.comm import failure
from bpt.comm.base import Communicator
from bpt.comm.cores import share_cores


def main(words: Sequence[str]) -> int:
    """The rank's life; returns its exit status."""
    module = import_module(f"scripts.benches.{words[0]}")
    ordered, answer = map(Path, words[1:])
    # This and what follows as the command line does it.
    getattr(module, "keep_memory", keep_freed_memory)()

    def command(world: Communicator) -> None:
        torch.set_num_threads(share_cores(world))
        gc.freeze()
        seen = module.work(json.loads(ordered.read_text()), world)
        if world.rank == 0:
            answer.write_text(json.dumps(seen, indent=1))

    return failure.run(command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
