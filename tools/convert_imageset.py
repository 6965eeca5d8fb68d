#!/usr/bin/env python3
"""Caffe's convert_imageset: ``bpt convert imageset`` under its old name."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bpt.cli.converters import IMAGESET
from bpt.cli.options import Parser
from bpt.cli.tool import run_tool


def make_parser() -> Parser:
    return IMAGESET.tool_parser(__file__)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line ``words`` (None: this process's), and return the exit status."""
    return run_tool(make_parser(), IMAGESET.run, words)


if __name__ == "__main__":
    sys.exit(main())
