"""Which tests are skipped, which run one at a time, and what each finds as it was."""

from __future__ import annotations

import logging
import os
import signal
import tempfile
from collections.abc import Iterator

import pytest
import torch
from hypothesis import HealthCheck, settings

from bpt.base.caller import on_command_line
from tests.support.mpirun import needs_mpi

pytest_plugins = ("tests.support.commands",)

# A busy machine is no fault of a property or of its strategy.
settings.register_profile("bpt", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("bpt")

_CACHE = tempfile.TemporaryDirectory(prefix="bpt-tests-cache-")  # removed when the process ends


def pytest_configure() -> None:
    """Ctrl-C interrupts: a job that a shell has put in the background ignores it, and so would all that it starts."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Times that tests measure stay out of the user's cache.
    os.environ["XDG_CACHE_HOME"] = _CACHE.name


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Jobs of many ranks run one at a time: ranks wait busily, and two jobs on two cores take each other's time."""
    for item in items:
        if item.get_closest_marker("gpu") and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
        if needs_mpi.mark in item.iter_markers("skipif") or "integration" in item.path.parts:
            item.add_marker(pytest.mark.xdist_group("jobs"))


@pytest.fixture(autouse=True)
def logger_as_it_was() -> Iterator[None]:
    """What a command that ran in this process did to the logger is undone."""
    logger = logging.getLogger("bpt")
    handlers, propagate, level = list(logger.handlers), logger.propagate, logger.level
    yield
    logger.handlers[:], logger.propagate = handlers, propagate
    logger.setLevel(level)


@pytest.fixture
def command_line() -> Iterator[None]:
    """Messages name flags, as while a command runs, and not the parameters of Python."""
    with on_command_line():
        yield
