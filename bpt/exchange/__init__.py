"""How replicas agree: on gradients each iteration, or on weights each local epoch.

``EXCHANGES`` has all ways, and imports the one that is asked for, as ``bpt.layers`` does with layers.
"""

from bpt.exchange.base import EXCHANGES, Exchange, broadcast
from bpt.exchange.buckets import Bucket

__all__ = ["EXCHANGES", "Bucket", "Exchange", "broadcast"]
