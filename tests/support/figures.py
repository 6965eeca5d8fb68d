"""Reads back figures that were drawn."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path


def texts(path: Path) -> list[str]:
    """What matplotlib notes beside the outlines of each text."""
    return [comment.text.strip() for comment in ET.parse(path, parser()).iter() if comment.tag is ET.Comment]


def parser() -> ET.XMLParser:
    return ET.XMLParser(target=ET.TreeBuilder(insert_comments=True))


def size(path: Path) -> tuple[float, float]:
    root = ET.parse(path).getroot()
    return float(root.attrib["width"].rstrip("pt")), float(root.attrib["height"].rstrip("pt"))
