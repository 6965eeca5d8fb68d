"""The processor of this machine."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

DETAILS = ("cpu family", "model", "stepping")  # they tell processors apart whose name a virtual machine shortens


def processor_name() -> str:
    """Return the name of the processor's model."""
    return _facts().get("model name") or platform.processor() or platform.machine()


def processor_identity() -> str:
    """Return the name of the processor's model, and the numbers that tell it from others of this name."""
    known = [f"{name} {_facts()[name]}" for name in DETAILS if _facts().get(name)]
    return ", ".join([processor_name(), *known])


@cache
def _facts() -> dict[str, str]:
    """Return what Linux says of the first processor; {} on other systems."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return {}
    lines = (line.partition(":") for line in text.strip().partition("\n\n")[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}
