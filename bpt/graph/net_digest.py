"""The digest of a net, by which ranks check that they have read the same text."""

from __future__ import annotations

import hashlib

from bpt.graph.layer_graph import LayerGraph


def net_digest(graph: LayerGraph) -> str:
    """Return 16 hexadecimal digits that identify a net's layers and shapes.

    Paths of data may differ from host to host, and do not count.
    """
    content = hashlib.blake2b(digest_size=8)
    for node in graph.nodes:
        content.update(node.without_places().SerializeToString(deterministic=True))
    for edge in graph.edges:
        content.update(repr(edge.shape).encode())
    return content.hexdigest()
