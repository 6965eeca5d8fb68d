"""Arguments of benches, as ``scripts/bench`` hands them over."""

from __future__ import annotations

import argparse
from typing import Any


def parse(bench: Any, *words: str) -> argparse.Namespace:
    """Return what the module ``bench`` reads from the words of its command line."""
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    return parser.parse_args(words)
