"""What the user should know of a layer's text, and what is no error."""

from __future__ import annotations

import logging

from bpt.graph.spec import LayerSpec

log = logging.getLogger("bpt")


def notice(spec: LayerSpec, message: str, *path: str) -> None:
    """Log what the user should know of the field ``path`` of this layer."""
    log.warning("%s", spec.error(message, *path))
