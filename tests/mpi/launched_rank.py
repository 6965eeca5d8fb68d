"""Prints what a rank finds out about how it was started."""

from __future__ import annotations

import json
import os
import sys

from bpt.system.comm import rank_failure
from bpt.system.comm.base import Communicator
from bpt.system.comm.cores import allowed_cpus, share_cores
from bpt.system.comm.launch import local_ranks

SET = "OMPI_MCA_mpi_yield_when_idle", "OMPI_MCA_btl"  # by bpt, unless the user has


def main(comm: Communicator) -> None:
    place = local_ranks(comm), local_ranks(comm, {})  # by the environment, by host names
    facts = [comm.rank, comm.size, share_cores(comm), sorted(allowed_cpus()), *place, comm.describe(), comm.concurrent]
    sys.stdout.write(json.dumps([*facts, *map(os.environ.get, SET)]) + "\n")


if __name__ == "__main__":
    sys.exit(rank_failure.run(main))
