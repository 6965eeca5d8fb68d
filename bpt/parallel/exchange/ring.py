"""RING: as ALLREDUCE, by messages round a ring of the ranks (Hybrid, section 3.2, Fig. 3)."""

from __future__ import annotations

from bpt.parallel.exchange.allreduce import Allreduce
from bpt.parallel.exchange.base import EXCHANGES
from bpt.parallel.exchange.transport.transport import RING


@EXCHANGES.register("RING")
class Ring(Allreduce):
    """Sums a segment's gradients round a ring while the segments before it run backward.

    All ranks get the same bits, as under ALLREDUCE; between those two the order of sums may differ. With ``transport:
    TORCH_DISTRIBUTED`` both are the library's all-reduce: gloo's goes round a ring, and NCCL chooses its way.
    """

    transport = RING
    levels = False
