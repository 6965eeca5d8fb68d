"""The memory layout of blobs, and how the choice between layouts is made: with times given by hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.measured_choice import WARM_UP
from bpt.engine.memory_format import laid_out
from bpt.engine.memory_format_choice import MARGIN, MemoryFormatChoice
from bpt.nn.kernels.channels_last import FORMATS

AUTO, NCHW, NHWC = (
    pb.SolverParameter.AUTO,
    pb.SolverParameter.CONTIGUOUS,
    pb.SolverParameter.CHANNELS_LAST,
)  # fmt: skip


def blob(*shape: int) -> torch.Tensor:
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float32).view(shape)


IMAGES: list[tuple[int, ...]] = [(2, 3, 4, 5), (2, 1, 4, 5), (2, 3, 1, 1), (0, 3, 4, 5)]
VOLUMES: list[tuple[int, ...]] = [(2, 3, 4, 5, 7), (2, 1, 4, 5, 7), (2, 3, 1, 1, 1), (2, 3, 1, 5, 1), (0, 3, 4, 5, 7)]
OTHERS: list[tuple[int, ...]] = [(2, 3), (2, 3, 4), (), (2, 3, 4, 5, 1, 2)]


@pytest.mark.parametrize("shape", IMAGES + VOLUMES + OTHERS)
@pytest.mark.parametrize("engine", [NCHW, NHWC])
def test_values_stay_and_the_layout_is_the_wanted(shape: tuple[int, ...], engine: int) -> None:
    tensor = blob(*shape)
    for given in (tensor, laid_out(tensor, NHWC), laid_out(tensor, NCHW)):
        ours = laid_out(given, engine)
        assert torch.equal(ours, tensor)
        last = engine == NHWC and len(shape) in FORMATS
        assert ours.is_contiguous(memory_format=FORMATS[len(shape)] if last else torch.contiguous_format)


def test_strides_of_channels_last() -> None:
    # (N, C, H, W) = (2, 3, 4, 5): next row after W·C, next image after H·W·C, channels side by side.
    assert laid_out(blob(2, 3, 4, 5), NHWC).stride() == (60, 1, 15, 3)
    assert laid_out(blob(2, 1, 4, 5), NHWC).stride() == (20, 1, 5, 1)
    # Volumes, (N, C, D, H, W) = (2, 3, 4, 5, 7): next slice after H·W·C.
    assert laid_out(blob(2, 3, 4, 5, 7), NHWC).stride() == (420, 1, 105, 21, 3)
    assert laid_out(blob(2, 1, 4, 5, 7), NHWC).stride() == (140, 1, 35, 7, 1)


def test_what_lies_right_is_not_copied() -> None:
    for engine in (NCHW, NHWC):
        for shape in ((2, 3, 4, 5), (2, 1, 4, 5), (2, 3), (2, 3, 4, 5, 7), (2, 1, 4, 5, 7)):
            once = laid_out(blob(*shape), engine)
            assert laid_out(once, engine).data_ptr() == once.data_ptr()


def run(seconds: dict[int, float]) -> tuple[MemoryFormatChoice, list[int]]:
    """A choice told that each iteration took the ``seconds`` of its layout; the layouts in the order tried."""
    choice, tried = MemoryFormatChoice(AUTO), []
    while not choice.settled:
        tried.append(choice.engine)
        assert choice.record(seconds[choice.engine]) is choice.settled
    return choice, tried


def test_layouts_take_turns_so_that_a_drift_hits_both() -> None:
    _, tried = run({NCHW: 1.0, NHWC: 1.0})
    assert tried[: 2 * WARM_UP] == [NCHW] * WARM_UP + [NHWC] * WARM_UP
    assert tried[2 * WARM_UP :] == [NCHW, NHWC, NHWC, NCHW, NCHW, NHWC]
    assert len(tried) == 2 * (WARM_UP + MemoryFormatChoice.trials)


@pytest.mark.parametrize(
    ("contiguous", "channels_last", "chosen"),
    [(1.0, 2.0, NCHW), (2.0, 1.0, NHWC), (1.0, 1.0, NHWC), (0.99 * MARGIN, 1.0, NCHW), (1.01 * MARGIN, 1.0, NHWC)],
)
def test_the_faster_is_chosen(contiguous: float, channels_last: float, chosen: int) -> None:
    choice, _ = run({NCHW: contiguous, NHWC: channels_last})
    assert choice.engine == chosen


def test_the_warm_up_does_not_count() -> None:
    choice = MemoryFormatChoice(AUTO)
    for _ in range(2 * WARM_UP):
        choice.record(100.0 if choice.engine == NCHW else 0.001)
    while not choice.settled:
        choice.record(1.0 if choice.engine == NCHW else 2.0)
    assert choice.engine == NCHW


def test_the_fastest_trial_counts() -> None:
    choice = MemoryFormatChoice(AUTO)
    turns: dict[int, Iterator[int]] = {NCHW: iter([9, 9, 1, 9, 9]), NHWC: iter([9, 9, 2, 2, 2])}
    while not choice.settled:
        choice.record(next(turns[choice.engine]))
    assert choice.engine == NCHW


@pytest.mark.parametrize("engine", [NCHW, NHWC])
def test_what_the_solver_sets_is_not_tried(engine: int) -> None:
    choice = MemoryFormatChoice(engine)
    assert choice.settled
    assert not choice.record(1.0)
    choice.settle(NCHW if engine == NHWC else NHWC)
    assert choice.engine == engine
    assert str(choice) == pb.SolverParameter.Engine.Name(engine)


def test_settling_early_takes_what_is_known_by_then() -> None:
    choice = MemoryFormatChoice(AUTO)
    choice.settle()
    assert choice.engine == NHWC  # nothing is known
    choice = MemoryFormatChoice(AUTO)
    for _ in range(2 * WARM_UP + 1):
        choice.record(1.0)
    choice.settle()
    assert choice.engine == NCHW  # the only one with a trial that counts
    choice = MemoryFormatChoice(AUTO)
    choice.settle(NCHW)  # what the resumed run had
    assert (choice.engine, choice.settled) == (NCHW, True)


def test_it_tells_what_it_measured() -> None:
    choice, _ = run({NCHW: 0.0123456, NHWC: 0.01})
    assert str(choice) == "CHANNELS_LAST (CONTIGUOUS 12.3 ms, CHANNELS_LAST 10 ms an iteration)"
