"""The digest of a net, by which ranks see that they have read the same text."""

from __future__ import annotations

import hashlib

from bpt.graph.layer_graph import LayerGraph


def net_digest(graph: LayerGraph) -> str:
    """16 hexadecimal digits that tell a net's layers and shapes from those of any other.

    Where its data lie may differ from host to host, and does not count.
    """
    content = hashlib.blake2b(digest_size=8)
    for node in graph.nodes:
        content.update(node.without_places().SerializeToString(deterministic=True))
    for edge in graph.edges:
        content.update(repr(edge.shape).encode())
    return content.hexdigest()
