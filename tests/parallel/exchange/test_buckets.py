"""Buckets: what goes between ranks, as flat messages in one order on all ranks, and what comes of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bpt.parallel.exchange import Bucket, buckets
from bpt.system.comm.serial import SerialCommunicator


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """From 12 elements on, a parameter is a message of its own."""
    monkeypatch.setattr(buckets, "LARGE", 12)


def numbered(*shape: int, first: int = 0) -> Tensor:
    """first, first + 1, … in row-major order."""
    elements = int(np.prod(shape))
    return torch.arange(first, first + elements, dtype=torch.float32).view(shape)


def parameter(values: Tensor, gradient: Tensor | None = None) -> nn.Parameter:
    made = nn.Parameter(values)
    made.grad = gradient
    return made


def bucket_of(*parameters: nn.Parameter) -> Bucket:
    return Bucket([(f"p{number}", each) for number, each in enumerate(parameters)], SerialCommunicator())


def test_small_parameters_share_a_message_and_large_ones_have_their_own() -> None:
    bucket = bucket_of(
        parameter(numbered(2, 3)), parameter(numbered(3, 4, first=10)), parameter(numbered(2, first=30)),
        parameter(numbered(13, first=40)),
    )  # fmt: skip
    assert bucket.names == ["p0 … p2", "p1", "p3"]
    messages = bucket.pack_weights()
    assert [message.tolist() for message in messages] == [
        [0, 1, 2, 3, 4, 5, 30, 31],
        numbered(3, 4, first=10).tolist(),
        numbered(13, first=40).tolist(),
    ]
    assert all(message.flags.c_contiguous for message in messages)


def test_names_of_messages() -> None:
    small, large = parameter(torch.zeros(2)), parameter(torch.zeros(12))
    assert bucket_of().names == []
    assert bucket_of(small).names == ["p0"]
    assert bucket_of(large).names == ["p0"]
    assert bucket_of(large, small, large).names == ["p1", "p0", "p2"]


def test_nothing_to_send() -> None:
    bucket = bucket_of()
    assert bucket.pack_gradients() == bucket.pack_weights() == []
    bucket.unpack_gradients()
    bucket.unpack_weights()


def test_gradients_become_what_was_made_of_the_messages() -> None:
    small, other = parameter(torch.zeros(2, 2), numbered(2, 2)), parameter(torch.zeros(3), numbered(3, first=4))
    large = parameter(torch.zeros(4, 3), numbered(4, 3))
    bucket = bucket_of(small, other, large)
    for message in bucket.pack_gradients():
        message *= 2
    bucket.unpack_gradients()
    for each, expected in ((small, numbered(2, 2)), (other, numbered(3, first=4)), (large, numbered(4, 3))):
        assert each.grad is not None
        torch.testing.assert_close(each.grad, 2 * expected, rtol=0, atol=0)
        assert torch.equal(each.detach(), torch.zeros_like(each))


def test_what_has_no_gradient_sends_zeros() -> None:
    """Also in the place where the last iteration's stood."""
    small, other, large = (parameter(torch.ones(size), torch.ones(size)) for size in (2, 3, 12))
    bucket = bucket_of(small, other, large)
    bucket.pack_gradients()
    small.grad = large.grad = None
    first, second = bucket.pack_gradients()
    assert first.tolist() == [0, 0, 1, 1, 1]
    assert second.tolist() == [0] * 12
    second += 5
    bucket.unpack_gradients()
    assert small.grad is not None
    assert large.grad is not None
    assert (small.grad.tolist(), large.grad.tolist()) == ([0, 0], [5] * 12)


@pytest.mark.parametrize("shape", [(1, 2, 2, 2), (2, 3, 2, 2)], ids=["small", "large"])
def test_messages_are_in_logical_order_whatever_the_layout(shape: tuple[int, ...]) -> None:
    """A rank may have a gradient in another layout than the next one."""
    gradient, weights = numbered(*shape), numbered(*shape, first=100)
    last = torch.channels_last
    laid_out = parameter(weights.contiguous(memory_format=last), gradient.contiguous(memory_format=last))
    bucket = bucket_of(laid_out)
    (message,) = bucket.pack_gradients()
    assert message.ravel().tolist() == gradient.flatten().tolist()
    message += 1
    bucket.unpack_gradients()
    assert laid_out.grad is not None
    assert torch.equal(laid_out.grad, gradient + 1)
    (message,) = bucket.pack_weights()
    assert message.ravel().tolist() == weights.flatten().tolist()
    message += 1
    bucket.unpack_weights()
    assert torch.equal(laid_out.detach(), weights + 1)
    assert laid_out.is_contiguous(memory_format=last)  # the weights stay where they are


def test_a_large_gradient_is_sent_from_where_it_is() -> None:
    large = parameter(torch.zeros(12), numbered(12))
    bucket = bucket_of(large)
    assert large.grad is not None
    (message,) = bucket.pack_gradients()
    assert message.__array_interface__["data"][0] == large.grad.data_ptr()
    (message,) = bucket.pack_weights()
    assert message.__array_interface__["data"][0] == large.data_ptr()


def test_weights_keep_their_memory() -> None:
    """Test nets and the update rule hold the same parameters."""
    small, large = parameter(numbered(2)), parameter(numbered(12))
    places = [each.data_ptr() for each in (small, large)]
    bucket = bucket_of(small, large)
    for message in bucket.pack_weights():
        message[...] = 7
    bucket.unpack_weights()
    assert small.tolist() == [7, 7]
    assert large.tolist() == [7] * 12
    assert [each.data_ptr() for each in (small, large)] == places


def test_weights_do_not_take_the_place_of_gradients() -> None:
    """Of which an update rule may have made what was subtracted last, to be kept in a snapshot."""
    small, large = parameter(torch.full((2,), 5.0), torch.ones(2)), parameter(torch.full((12,), 5.0), torch.ones(12))
    bucket = bucket_of(small, large)
    bucket.pack_gradients()
    bucket.unpack_gradients()
    bucket.pack_weights()
    bucket.unpack_weights()
    assert small.grad is not None
    assert large.grad is not None
    assert (small.grad.tolist(), large.grad.tolist()) == ([1, 1], [1] * 12)


def test_gradients_that_are_not_needed_are_dropped() -> None:
    small, large = parameter(torch.zeros(2), torch.ones(2)), parameter(torch.zeros(12), torch.ones(12))
    bucket = bucket_of(small, large)
    bucket.pack_gradients()
    bucket.drop_gradients()
    assert small.grad is None
    assert large.grad is None


def test_double_precision() -> None:
    """As ``bpt check`` computes."""
    small, large = (nn.Parameter(torch.full((size,), 1 / 3, dtype=torch.float64)) for size in (2, 12))
    bucket = bucket_of(small, large)
    small.grad = torch.full((2,), 1 / 7, dtype=torch.float64)
    gradients = [message.copy() for message in bucket.pack_gradients()]
    weights = bucket.pack_weights()
    assert [each.dtype for each in (*gradients, *weights)] == [np.float64] * 4
    assert [each.tolist() for each in gradients] == [[1 / 7] * 2, [0.0] * 12]
    assert [each.tolist() for each in weights] == [[1 / 3] * 2, [1 / 3] * 12]


def test_messages_are_in_the_numbers_of_the_wire_and_parameters_stay_in_theirs() -> None:
    small, large = parameter(numbered(3), numbered(3) / 3), parameter(numbered(12), numbered(12) / 3)
    bucket = Bucket([("small", small), ("large", large)], SerialCommunicator(), torch.float64)
    for messages in (bucket.pack_gradients(), bucket.pack_weights()):
        assert [message.dtype for message in messages] == [np.float64] * 2
    bucket.unpack_weights()
    bucket.pack_gradients()[0][:] = [0.25, 0.5, 1]
    bucket.unpack_gradients()
    assert small.dtype == large.dtype == torch.float32
    assert small.grad is not None and small.grad.dtype == torch.float32 and small.grad.tolist() == [0.25, 0.5, 1]
    assert large.grad is not None and torch.equal(large.grad, numbered(12) / 3)
