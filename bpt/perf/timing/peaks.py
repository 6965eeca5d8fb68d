"""Measures the roofs of a roofline: how fast this process multiplies matrices, and how fast it moves uncached data."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from bpt.nn.kernels.linear import linear
from bpt.perf.timing.layer_times import RepetitionTimes, Stopwatch
from bpt.system.device.memory_use import available_memory

SIZES = {"cpu": (512, 1024, 2048), "cuda": (2048, 4096, 8192)}  # rows of the square matrices
LONGEST = 0.1  # seconds of a product from which no larger size is tried
REPETITIONS = 10  # repetitions of a measurement; a roof is their median
TIMES_CACHE = 4  # the size of an array relative to all caches together (McCalpin's rule for STREAM)
LEAST, MOST = 2**26, 2**30  # smallest and largest size of an array in bytes
QUIET = 0.1  # largest spread of a roof, or change from the first measurement to the last, without a warning

Multiply = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # product of square matrices, maybe transposed

_CACHES = Path("/sys/devices/system/cpu")


@dataclass(frozen=True)
class Peak:
    """A roof that was measured several times.

    Attributes:
        what: the measured work, in words.
        rounds: the rates of all repetitions of each measurement: floating-point operations, or bytes, a second.
    """

    what: str
    rounds: tuple[tuple[float, ...], ...]

    @property
    def rate(self) -> float:
        """The median of the fastest measurement, because other programs can only lower a roof."""
        return statistics.median(self._fastest)

    @property
    def spread(self) -> float:
        """Half the distance of the quartiles of the fastest measurement."""
        return RepetitionTimes(self._fastest).spread

    @property
    def moved(self) -> float:
        """The relative change from the first measurement to the last."""
        return statistics.median(self.rounds[-1]) / statistics.median(self.rounds[0]) - 1

    @property
    def _fastest(self) -> tuple[float, ...]:
        return max(self.rounds, key=statistics.median)


@dataclass(frozen=True)
class Peaks:
    """Both roofs of a device as this process uses it: ``flops`` in 1/s, ``bandwidth`` in bytes/s."""

    compute: Peak
    memory: Peak

    @property
    def flops(self) -> float:
        return self.compute.rate

    @property
    def bandwidth(self) -> float:
        return self.memory.rate

    @property
    def ridge(self) -> float:
        """The arithmetic intensity in FLOP/byte above which the compute roof bounds a layer."""
        return self.flops / self.bandwidth


class PeakMeter:
    """Measures both roofs, before and after the layers.

    It uses the current threads of the process and, on a GPU, events.

    Args:
        device: the measured device.
        dtype: the type of the matrices. Arrays that move are float32, since memory is the same for all types.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self._device = device
        self._dtype = dtype
        self._size = 0
        self._multiply: Multiply | None = None
        self._rounds: list[tuple[tuple[float, ...], tuple[float, ...]]] = []
        self._elements = _array_bytes(device) // torch.float32.itemsize
        self._stream = ""

    def measure(self) -> None:
        """Take ``REPETITIONS`` samples of each roof. The first call also chooses the fastest method."""
        with torch.no_grad(), _as_convolutions_multiply(self._device):
            products = self._products()
        with torch.no_grad():
            self._rounds.append((products, self._streams()))

    def peaks(self) -> Peaks:
        """Return the roofs from all measurements so far."""
        assert self._rounds, "call measure() first"
        products, streams = zip(*self._rounds, strict=True)
        tf32 = " in TF32" if _tf32(self._device) and self._dtype == torch.float32 else ""
        product = f"product of {self._size} × {self._size} matrices{tf32}"
        stream = f"{self._stream} of arrays of {self._elements * torch.float32.itemsize / 2**20:.0f} MiB"
        return Peaks(Peak(product, products), Peak(stream, streams))

    def _products(self) -> tuple[float, ...]:
        if self._multiply is None:
            self._choose_product()
        multiply, size = self._multiply, self._size
        assert multiply is not None
        a, b = self._matrices(size)
        return tuple(2 * size**3 / seconds for seconds in self._time(partial(multiply, a, b), REPETITIONS))

    def _choose_product(self) -> None:
        """Choose the fastest of several sizes, with torch's library and with the other one that layers may use."""
        best = 0.0
        for size in SIZES[self._device.type]:
            a, b = self._matrices(size)
            slowest = 0.0
            for multiply in (torch.mm, _as_layers_multiply):
                seconds = min(self._time(partial(multiply, a, b), 2))
                slowest = max(slowest, seconds)
                if size**3 / seconds > best:
                    best, self._size, self._multiply = size**3 / seconds, size, multiply
            if slowest > LONGEST:
                break

    def _matrices(self, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        draw = torch.Generator().manual_seed(1)
        a, b = (torch.rand(size, size, generator=draw).to(self._device, self._dtype) for _ in range(2))
        return a, b

    def _streams(self) -> tuple[float, ...]:
        """Return the bytes that the faster of STREAM's triad and copy reads and writes in a second."""
        a, b, c = (torch.full((self._elements,), float(i), device=self._device) for i in range(3))
        kinds = {"triad": (3, lambda: torch.add(b, c, alpha=3, out=a)), "copy": (2, lambda: a.copy_(b))}
        rates = {}
        for name, (arrays, step) in kinds.items():
            if self._stream in ("", name):
                moved = arrays * self._elements * torch.float32.itemsize
                rates[name] = tuple(moved / seconds for seconds in self._time(step, REPETITIONS))
        self._stream = max(rates, key=lambda name: statistics.median(rates[name]))
        return rates[self._stream]

    def _time(self, step: Callable[[], object], repetitions: int) -> list[float]:
        """Return the seconds of each repetition, after one that does not count."""
        stopwatch = Stopwatch(self._device)
        step()
        stopwatch.mark()
        for _ in range(repetitions):
            step()
            stopwatch.mark()
        return stopwatch.laps()


def _as_layers_multiply(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return linear(a, b, None)


def _array_bytes(device: torch.device) -> int:
    """Return the bytes of an array that is much larger than the caches, if there is enough memory for it."""
    if device.type == "cuda":
        caches = torch.cuda.get_device_properties(device).L2_cache_size
        free, _ = torch.cuda.mem_get_info(device)
    else:
        caches, free = _last_caches(), available_memory()
    return max(2**20, min(max(LEAST, TIMES_CACHE * caches), MOST, free // 16)) // 2**20 * 2**20


def _last_caches() -> int:
    """Return the bytes of the last-level caches of all cores that this process may use; 0 if they are unknown."""
    found: dict[str, int] = {}
    try:
        for core in os.sched_getaffinity(0):
            last = max((_CACHES / f"cpu{core}" / "cache").glob("index[0-9]"), default=None)
            if last is not None:
                size = (last / "size").read_text().strip().removesuffix("K")
                found[(last / "shared_cpu_list").read_text()] = int(size) * 1024
    except (OSError, ValueError, AttributeError):
        pass
    return sum(found.values())


def _tf32(device: torch.device) -> bool:
    return device.type == "cuda" and bool(torch.backends.cudnn.allow_tf32)


@contextmanager
def _as_convolutions_multiply(device: torch.device) -> Iterator[None]:
    """Let matrix products round to TF32 if the GPU's convolutions do, because the roof is that of the faster ones."""
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_tf32
    matmul.allow_tf32 = before or _tf32(device)
    try:
        yield
    finally:
        matmul.allow_tf32 = before
