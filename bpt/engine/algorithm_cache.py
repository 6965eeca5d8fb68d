"""AlgorithmCache: the times of kernels that earlier runs measured on this machine, in a file of the user."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch

from bpt.base.atomic import write_text
from bpt.base.errors import WriteError
from bpt.base.user_cache import cache_folder
from bpt.nn.kernels.algorithm import Algorithm, KernelRole
from bpt.system.device.processor import processor_identity

LOG = logging.getLogger("bpt")

VERSION = 1  # of the kernels that were measured; another version ignores the file

KernelTimes = Mapping[KernelRole, Mapping[Algorithm, float]]
"""The seconds of a layer's kernels, by role and algorithm."""


def machine_facts() -> dict[str, str | int]:
    """Return what the times of kernels depend on, besides the layer."""
    return {
        "version": VERSION,
        "processor": processor_identity(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "torch": str(torch.__version__),
        "environment": " ".join(f"{name}={value}" for name, value in sorted(os.environ.items()) if _matters(name)),
    }


def _matters(variable: str) -> bool:
    """Return whether an environment variable may change the code that the libraries of torch choose."""
    return variable.startswith(("ATEN_CPU_", "DNNL_", "MKL_", "ONEDNN_"))


class AlgorithmCache:
    """The known times of kernels on machines like this one, by a text that describes the layer.

    A file is never used on another machine: its name and its content come from ``machine_facts``. A file that cannot be
    read counts as empty, with one warning. What cannot be written is measured again by the next run.

    Args:
        folder: the folder of the file; ``None``: nothing is kept.

    Attributes:
        times: the known times, which may be added to.
    """

    def __init__(self, folder: Path | None) -> None:
        self._machine = machine_facts()
        digest = blake2b(json.dumps(self._machine).encode(), digest_size=8).hexdigest()
        self._path = None if folder is None else folder / f"algorithms-{digest}.json"
        self.times = self._read(LOG.warning)
        self._read_times = dict(self.times)

    @classmethod
    def of_user(cls) -> AlgorithmCache:
        """Return the cache in the user's folder of caches."""
        return cls(cache_folder())

    def write(self) -> None:
        """Write the times that were added, beside those that other processes have written meanwhile."""
        if self._path is None or self.times == self._read_times:
            return
        self.times = {**self._read(LOG.debug), **self.times}
        layers = {
            layer: {
                role.name: {algorithm.name: seconds for algorithm, seconds in by_algorithm.items()}
                for role, by_algorithm in times.items()
            }
            for layer, times in self.times.items()
        }
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_text(self._path, json.dumps({"machine": self._machine, "layers": layers}, indent=1) + "\n")
        except (OSError, WriteError) as error:
            LOG.info("Algorithms: the times cannot be kept for the next run: %s", error)
        self._read_times = dict(self.times)

    def _read(self, report: Any) -> dict[str, KernelTimes]:
        if self._path is None:
            return {}
        try:
            content = json.loads(self._path.read_text())
            if content["machine"] != self._machine:
                return {}
            return {str(layer): _times(found) for layer, found in content["layers"].items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            report("%s: is not a file of measured times (%s); it is ignored, and replaced", self._path, error)
            return {}


def _times(found: Mapping[str, Mapping[str, float]]) -> KernelTimes:
    times = {
        KernelRole[role]: {Algorithm[algorithm]: float(seconds) for algorithm, seconds in by_algorithm.items()}
        for role, by_algorithm in found.items()
    }
    if not all(seconds > 0 for by_algorithm in times.values() for seconds in by_algorithm.values()):
        raise ValueError("a time that is not above 0")
    return times
