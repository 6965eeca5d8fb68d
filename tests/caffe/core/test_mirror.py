"""Mirror: the array shows the tensor, the tensor gets what is written, and dropped arrays cost nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from bpt.caffe.core.mirror import Mirror


class Source:
    """A tensor that may be replaced, and how often it was asked for."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.asked = 0

    def fetch(self) -> Tensor:
        self.asked += 1
        return self.tensor


def test_the_array_lies_over_the_tensors_memory_where_it_can() -> None:
    tensor = torch.zeros(2, 3, requires_grad=True)
    array = Mirror(lambda: tensor).array()
    array[1, 2] = 5
    assert tensor[1, 2].item() == 5
    with torch.no_grad():
        tensor[0, 0] = 7
    assert array[0, 0] == 7


@pytest.mark.parametrize(
    ("tensor", "apart"),
    [(torch.zeros(1, 2, 2, 2).to(memory_format=torch.channels_last), False), (torch.zeros(1, 2, 2, 2), True)],
)
def test_else_what_is_written_goes_to_the_tensor_before_it_is_used(tensor: Tensor, apart: bool) -> None:
    mirror = Mirror(lambda: tensor, apart)
    array = mirror.array()
    assert array.flags.c_contiguous
    array[0, 1] = [[1, 2], [3, 4]]
    assert not tensor.any()
    mirror.write_back()
    assert tensor[0, 1].tolist() == [[1, 2], [3, 4]]
    tensor.mul_(2)
    mirror.show()
    assert array[0, 1].tolist() == [[2, 4], [6, 8]]


@pytest.mark.parametrize("apart", [False, True])
def test_an_array_that_is_kept_follows_tensors_that_take_each_others_place(apart: bool) -> None:
    source = Source(torch.tensor([1.0, 2]))
    mirror = Mirror(source.fetch, apart)
    array = mirror.array()
    for values in ([3.0, 4], [5.0, 6]):
        mirror.write_back()
        source.tensor = torch.tensor(values)
        mirror.show()
        assert array.tolist() == values
        assert mirror.array() is array
    array[0] = 9
    mirror.write_back()
    assert source.tensor.tolist() == [9, 6]


@pytest.mark.parametrize("apart", [False, True])
def test_a_view_of_the_array_keeps_it(apart: bool) -> None:
    source = Source(torch.tensor([1.0, 2]))
    mirror = Mirror(source.fetch, apart)
    last = mirror.array()[1:]
    mirror.write_back()
    source.tensor = torch.tensor([3.0, 4])
    mirror.show()
    assert last.tolist() == [4]


@pytest.mark.parametrize("apart", [False, True])
def test_what_was_written_counts_although_the_array_was_dropped(apart: bool) -> None:
    tensor = torch.zeros(2)
    mirror = Mirror(lambda: tensor, apart)
    mirror.array()[0] = 1
    mirror.array()[1] = 2
    mirror.write_back()
    mirror.show()
    assert tensor.tolist() == [1, 2]
    array = mirror.array()
    mirror.write_back()
    mirror.show()
    array[0] = 3
    del array
    mirror.write_back()
    assert tensor.tolist() == [3, 2]


@pytest.mark.parametrize("apart", [False, True])
def test_nothing_is_done_for_arrays_that_nobody_has(apart: bool) -> None:
    source = Source(torch.zeros(2))
    mirror = Mirror(source.fetch, apart)
    mirror.array()
    mirror.write_back()
    asked = source.asked
    mirror.show()
    mirror.write_back()
    assert source.asked == asked


def test_what_was_only_looked_at_is_not_written_back() -> None:
    memory = torch.zeros(2)
    first, second = (Mirror(lambda: memory, copies=True) for _ in range(2))
    a, b = first.array(), second.array()
    a[0] = 1
    first.write_back()
    second.write_back()  # does not put its zeros back
    second.show()
    assert memory.tolist() == [1, 0]
    assert b.tolist() == [1, 0]


@pytest.mark.parametrize("apart", [False, True])
def test_another_shape_gives_another_array(apart: bool) -> None:
    source = Source(torch.zeros(2))
    mirror = Mirror(source.fetch, apart)
    old = mirror.array()
    mirror.write_back()
    source.tensor = torch.ones(3)
    mirror.show()
    assert mirror.array().tolist() == [1, 1, 1]
    assert old.tolist() == [0, 0]


def test_single_numbers_and_no_numbers() -> None:
    for shape in ((), (0, 3)):
        tensor = torch.zeros(shape)
        mirror = Mirror(lambda tensor=tensor: tensor)  # type: ignore[misc]
        array = mirror.array()
        array[...] = 4
        mirror.write_back()
        mirror.show()
        assert array.shape == shape
        np.testing.assert_array_equal(tensor.numpy(), np.full(shape, 4, np.float32))


def test_writing_between_forward_and_backward_is_caffes_memory_and_not_an_error() -> None:
    x = torch.tensor([1.0, 2], requires_grad=True)
    kept = (x * 1).detach()
    leaf = kept.detach().requires_grad_()
    y = leaf.square()
    mirror = Mirror(lambda: kept, copies=True)
    mirror.array()[...] = [10, 20]
    mirror.write_back()
    y.sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [20, 40]
