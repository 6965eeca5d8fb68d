#!/usr/bin/env python3
"""Caffe's compute_image_mean: ``bpt convert mean`` under its old name."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bpt.cli.converters import MEAN
from bpt.cli.options import Parser
from bpt.cli.tool import run_tool


def make_parser() -> Parser:
    return MEAN.tool_parser(__file__)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line ``words`` (None: this process's), and return the exit status."""
    return run_tool(make_parser(), MEAN.run, words)


if __name__ == "__main__":
    sys.exit(main())
