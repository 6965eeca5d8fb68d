"""Where gradients stand in an area, and that nobody reads them too early."""

from __future__ import annotations

import threading
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from bpt.parallel.cgdp.chunk_areas import ElementRange, GuardedArea, Layout
from bpt.system.device import CPU, new_stream


def parameters(*sizes: int) -> list[nn.Parameter]:
    return [nn.Parameter(torch.zeros(size)) for size in sizes]


def test_each_parameter_begins_a_cache_line() -> None:
    """64 bytes are 16 floats: 3 elements take one line, 17 take two."""
    first, second, third = given = parameters(3, 17, 16)
    layout = Layout(given)
    assert (layout.elements, layout.nbytes) == (64, 256)
    area = torch.arange(64.0)
    assert layout.view(area, first).tolist() == [0, 1, 2]
    assert layout.view(area, second).tolist() == list(range(16, 33))
    assert layout.view(area, third).tolist() == list(range(48, 64))


def test_neighbours_are_one_run() -> None:
    first, second, third, fourth = given = parameters(3, 17, 16, 1)
    layout = Layout(given)
    assert layout.runs([second, first]) == (ElementRange(0, 48),)
    assert layout.runs([first, third, fourth]) == (ElementRange(0, 16), ElementRange(48, 80))
    assert layout.runs([]) == ()


def test_double_precision_has_eight_elements_a_line() -> None:
    layout = Layout([nn.Parameter(torch.zeros(9, dtype=torch.float64)) for _ in range(2)])
    assert (layout.elements, layout.nbytes) == (32, 256)


def test_shapes_and_strides_are_the_parameters_own() -> None:
    parameter = nn.Parameter(torch.zeros(2, 3, 2, 2))
    parameter.grad = torch.arange(24.0).view(2, 3, 2, 2).contiguous(memory_format=torch.channels_last)
    layout = Layout([parameter])
    area = GuardedArea(torch.full((layout.elements,), -1.0), layout)
    stream = new_stream(CPU, "D2H")
    copies = area.write(stream, [parameter], nullcontext)
    assert copies.elements(ElementRange(0, 24)).tolist() == list(range(24))


def test_reading_waits_for_the_copy() -> None:
    """A read that comes before the copy is done gets what the copy wrote, not what was there."""
    first, second = given = parameters(16, 16)
    first.grad, second.grad = torch.full((16,), 1.0), torch.full((16,), 2.0)
    layout = Layout(given)
    area = GuardedArea(torch.full((32,), float("nan")), layout)
    stream = new_stream(CPU, "D2H")
    held, reading = threading.Event(), threading.Event()
    stream.run(lambda: _ignore(held.wait()))  # the copies stand behind this one
    copies = area.write(stream, [second], nullcontext)
    found: list[list[float]] = []

    def read() -> None:
        reading.set()
        found.append(copies.elements(ElementRange(20, 24)).tolist())

    reader = threading.Thread(target=read)
    reader.start()
    reading.wait()
    assert found == []
    held.set()
    reader.join()
    assert found == [[2.0] * 4]


def test_a_gradient_that_is_replaced_meanwhile_is_sent_as_it_was() -> None:
    (parameter,) = given = parameters(16)
    parameter.grad = torch.full((16,), 3.0)
    layout = Layout(given)
    area = GuardedArea(torch.zeros(16), layout)
    stream = new_stream(CPU, "D2H")
    held = threading.Event()
    stream.run(lambda: _ignore(held.wait()))
    copies = area.write(stream, given, nullcontext)
    parameter.grad = torch.full((16,), 4.0)
    held.set()
    assert copies.elements(ElementRange(0, 16)).tolist() == [3.0] * 16


def test_no_gradient_counts_as_zeros() -> None:
    given = parameters(16)
    area = GuardedArea(torch.full((16,), 7.0), Layout(given))
    stream = new_stream(CPU, "D2H")
    copies = area.write(stream, given, nullcontext)
    assert copies.elements(ElementRange(0, 16)).tolist() == [0.0] * 16


def test_a_copy_that_fails_is_not_read() -> None:
    parameter = nn.Parameter(torch.zeros(16))
    layout = Layout([parameter])
    area = GuardedArea(torch.zeros(16), layout)
    stream = new_stream(CPU, "D2H")
    stream.run(_fail)
    copies = area.write(stream, [parameter], nullcontext)
    with pytest.raises(OSError, match="the copy failed"):
        copies.elements(ElementRange(0, 16))


def test_what_was_not_written_cannot_be_read() -> None:
    given = parameters(16, 16)
    area = GuardedArea(torch.zeros(32), Layout(given))
    stream = new_stream(CPU, "D2H")
    copies = area.write(stream, given[:1], nullcontext)
    with pytest.raises(AssertionError):
        copies.elements(ElementRange(0, 32))


def _ignore(value: object) -> None:
    """A stream's work returns nothing."""


def _fail() -> None:
    raise OSError("the copy failed")
