"""The folder that begins the paths of a list: Caffe puts it before each as it is, and a slash is easily forgotten."""

from __future__ import annotations

import os


def slash_remedy(root: str) -> str:
    """Ends a message that shows ``root``: to write a slash, if it is a folder and its name lacks that; else ``""``."""
    return f', so write "{root}/"' if os.path.isdir(root) and not root.endswith("/") else ""


def slash_hint(root: str, name: str) -> str:
    """Ends a message that the image ``root`` + ``name`` cannot be read; ``""`` if no slash is missing between them."""
    remedy = slash_remedy(root)
    if not remedy or name.startswith("/") or os.path.exists(root + name):
        return ""
    return f'; paths begin with the root folder as it is, "{root}"{remedy}'
