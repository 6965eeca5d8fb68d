"""``bpt``, of which rank 1 stands still while nets are made: the first argument says for which time.

With a second time to come rank 2 is killed in iteration 3, after which the others are bound anew. The second argument
is the folder to work in; the rest is bpt's.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

from bpt.cli.main import main
from bpt.nn.net import Net
from bpt.system.comm.base import Communicator
from bpt.train.runtime import runtime
from bpt.train.runtime.run_facts import check_content
from bpt.train.runtime.runtime import Runtime

STANDS_STILL, IS_KILLED = 1, 2

where = int(sys.argv.pop(1))
os.chdir(sys.argv.pop(1))
calls = itertools.count(1)
iterate = Runtime.iterate


def checking(world: Communicator, nets: Mapping[str, Net]) -> None:
    if next(calls) == where and world.world_ranks[world.rank] == STANDS_STILL:
        os.kill(os.getpid(), signal.SIGSTOP)
    check_content(world, nets)


def iterating(self: Runtime, *arguments: Any, **named: Any) -> float:
    if where > 1 and self.iteration == 3 and self.world.world_ranks[self.world.rank] == IS_KILLED:
        os.kill(os.getpid(), signal.SIGKILL)
    return iterate(self, *arguments, **named)


setattr(runtime, "check_content", checking)  # noqa: B010
Runtime.iterate = iterating  # type: ignore[method-assign]
sys.exit(main())
