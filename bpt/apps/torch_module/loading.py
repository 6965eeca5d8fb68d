"""Load files of weights into the nets of Python programs, with the warnings of pycaffe on stderr."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable

from bpt.apps.arguments import Path
from bpt.base.log import warnings_on_stderr
from bpt.nn.net import Net
from bpt.train.state import MissingWeights, WeightCoverage, load_to_run


def load_files(
    net: Net,
    files: Iterable[Path],
    coverage: WeightCoverage | None = None,
    missing: MissingWeights = MissingWeights.WARN,
    remedy: str = ", or leave strict=True out",
    now: str = "it is as its fillers made it",
) -> WeightCoverage:
    """Load ``files`` into ``net``, and warn of layers that no file has, and of layers that the net lacks.

    Warnings go to the program's own log or, if it has none, to stderr.

    Args:
        net: the net.
        files: the files of weights.
        coverage: the layers that earlier files have loaded; ``None``: none.
        missing, remedy, now: see WeightCoverage.check.

    Returns:
        The net's layers that all files together have.

    Raises:
        FileError: a file has no weights, or does not fit. Or a layer's weights are missing, and that is refused; then
            the last file is not loaded.
    """
    paths = [os.fspath(file) for file in files]
    coverage = coverage or WeightCoverage(net.graph)

    def check(covered: WeightCoverage) -> None:
        if len(covered.paths) == last:
            covered.check(missing, (), remedy, now)

    last = len(coverage.paths) + len(paths)
    with warnings_on_stderr():
        for path in paths:
            coverage = load_to_run(net, path, coverage, check, logging.WARNING)
    return coverage
