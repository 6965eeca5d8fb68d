"""How replicas agree: on gradients each iteration, or on weights each local epoch.

``EXCHANGES`` has all ways, and imports the one that is asked for, as ``bpt.nn.layers`` does with layers.
"""

from bpt.parallel.exchange.base import EXCHANGES, Exchange, broadcast
from bpt.parallel.exchange.buckets import Bucket

__all__ = ["EXCHANGES", "Bucket", "Exchange", "broadcast"]
