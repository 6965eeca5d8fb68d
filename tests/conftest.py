"""Skips the tests marked ``gpu`` on machines without a CUDA device; no test leaves its log to the next one."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator

import pytest
import torch


def pytest_configure() -> None:
    """Ctrl-C interrupts: a job that a shell has put in the background ignores it, and so would all that it starts."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(autouse=True)
def logger_as_it_was() -> Iterator[None]:
    """What a command that ran in this process did to the logger is undone."""
    logger = logging.getLogger("bpt")
    handlers, propagate, level = list(logger.handlers), logger.propagate, logger.level
    yield
    logger.handlers[:], logger.propagate = handlers, propagate
    logger.setLevel(level)
