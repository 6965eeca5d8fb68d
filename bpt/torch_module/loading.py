"""Files of weights into the nets of Python programs, with what pycaffe tells of them on stderr."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable

from bpt.arguments import Path
from bpt.net import Net
from bpt.report.log import warnings_on_stderr
from bpt.state import MissingWeights, WeightCoverage, load_to_run


def load_files(
    net: Net,
    files: Iterable[Path],
    coverage: WeightCoverage | None = None,
    missing: MissingWeights = MissingWeights.WARN,
    remedy: str = ", or leave strict=True out",
    now: str = "it is as its fillers made it",
) -> WeightCoverage:
    """Load ``files`` into ``net``, and warn of layers that are in none of them, and of those that the net lacks.

    Warnings go to the program's own log or, if it has none, to stderr.

    Args:
        coverage: what files have given the net before.
        missing, remedy, now: see WeightCoverage.check.

    Returns:
        Which of the net's layers all these files have.

    Raises:
        FileError: a file is none of weights, or does not fit; or a layer's weights are missing, and that is refused;
            then the last file is not loaded.
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
