"""How replicas agree: on gradients each iteration, or on weights each local epoch.

Importing this package registers all ways, like ``bpt.layers`` does with layers.
"""

from bpt.exchange import allreduce, ring, tree  # noqa: F401  (they register themselves)
from bpt.exchange.base import EXCHANGES, Exchange, broadcast
from bpt.exchange.buckets import Bucket
from bpt.exchange.cgdp import exchange  # noqa: F401  (they register themselves)

__all__ = ["EXCHANGES", "Bucket", "Exchange", "broadcast"]
