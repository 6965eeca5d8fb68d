"""Exchange of gradients each iteration, or of weights each local epoch, between the replicas of a net.

The sources are CGDP for ``TREE`` (Le et al., 2018, section 2.3, steps T-1 to T-5), the Hybrid paper for ``RING``
(section 3.2, Fig. 3), Local SGD for ``LOCAL``, and Stich et al. (2018), Lin et al. (2018) and Vogels et al. (2019)
for the codecs.

Read the files in this order:

1. ``exchange_rules.py`` and ``local_rules.py``: what combines with an exchange.
2. ``base.py``, ``buckets.py`` and ``flat.py``: the interface Exchange, and the messages.
3. ``allreduce.py``, ``ring.py``, ``tree.py`` and ``device_tree.py``: the ways to sum gradients.
4. ``averaging_context.py``, ``local_steps.py``, ``outer_versions.py`` and ``local.py``: averages of weights.
5. ``hierarchy.py``, ``transport`` and ``codec``: sums within and between hosts, and compressed messages.

CGDP's own exchange is in ``bpt.parallel.cgdp``, those of divided updates are in ``bpt.parallel.sharded_update``.
``EXCHANGES`` has all ways, and imports the one that is asked for, as ``bpt.nn.layers`` does with layers.
"""

from bpt.parallel.exchange.base import EXCHANGES, Exchange, broadcast
from bpt.parallel.exchange.buckets import Bucket

__all__ = ["EXCHANGES", "Bucket", "Exchange", "broadcast"]
