"""``outer_ranks`` whose workers report made-up seconds (``PacedWorker``)."""

from __future__ import annotations

import sys
from unittest import mock

from bpt.system.comm import rank_failure
from bpt.system.comm.base import Communicator
from bpt.train.outer import outer_training
from tests.mpi import outer_ranks
from tests.support.paced_worker import PacedWorker


def main(world: Communicator) -> None:
    with mock.patch.object(outer_training, "Worker", PacedWorker):
        outer_ranks.main(world)


if __name__ == "__main__":
    sys.exit(rank_failure.run(main))
