"""What every Communicator must do: plain functions that each rank calls with its communicator.

They are run over the serial and the thread communicator by ``tests/system/comm/test_contract.py``, and over MPI by
``tests/mpi/test_contract.py``. Expected values are worked out from rank and size by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bpt.system.comm.base import Communicator
from tests.support.comm_contract import collectives, comm_threads, counting, groups, messages, survivors, windows

Check = Callable[[Communicator], None]

CHECKS: Sequence[Check] = [
    check
    for module in (collectives, counting, comm_threads, groups, messages, survivors, windows)
    for name, check in sorted(vars(module).items())
    if name.startswith("check_")
]
