"""Reads back figures that were drawn."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle


def texts(path: Path) -> list[str]:
    """What matplotlib notes beside the outlines of each text."""
    return [(comment.text or "").strip() for comment in ET.parse(path, parser()).iter() if comment.tag is ET.Comment]


def parser() -> ET.XMLParser:
    return ET.XMLParser(target=ET.TreeBuilder(insert_comments=True))


def size(path: Path) -> tuple[float, float]:
    root = ET.parse(path).getroot()
    return float(root.attrib["width"].rstrip("pt")), float(root.attrib["height"].rstrip("pt"))


def bars_of(axes: Axes) -> list[Rectangle]:
    """The bars of a chart, in the order in which they were drawn."""
    return [patch for patch in axes.patches if isinstance(patch, Rectangle)]
