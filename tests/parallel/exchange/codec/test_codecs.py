"""Codecs: what travels, worked by hand; and that nothing is lost for good, with any transport."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from bpt.config.plan.run_plan import CompressionSpec
from bpt.config.proto import bpt_pb2 as pb
from bpt.parallel.exchange.codec import CODECS, Codec
from bpt.parallel.exchange.codec.half_codec import Half
from bpt.parallel.exchange.codec.top_k import Largest
from bpt.parallel.exchange.transport.transport import LIBRARY, RING, TREE, Transport
from bpt.system.comm.base import Communicator
from tests.support.doubles.seen import Seen
from tests.support.doubles.thread_ranks import run_ranks

TRANSPORTS = {"library": LIBRARY, "ring": RING, "tree": TREE}


def codec_of(name: str, **settings: float) -> Codec:
    return CODECS[name](CompressionSpec(**settings))  # type: ignore[arg-type]


def test_bf16_rounds_to_eight_digits_ties_to_even() -> None:
    """1 + 2**-7 is the next number after 1; halfway between two numbers the even one is taken."""
    values = torch.tensor([1.0, 1 + 2**-7, 1 + 2**-8, 1 + 3 * 2**-8, -3e38, 1e-40])
    code = Half(torch.bfloat16)
    assert code.size(values) == len(code.encode(values)) == 12
    decoded = code.decode(code.encode(values), values)
    assert decoded[:4].tolist() == [1.0, 1 + 2**-7, 1.0, 1 + 2**-6]
    assert decoded[4].item() == pytest.approx(-3e38, rel=2**-8)
    assert decoded.dtype == torch.float32


def test_fp16_sends_its_largest_number_for_larger_ones_and_what_is_not_finite_as_it_is() -> None:
    values = torch.tensor([1 + 2**-10, 1 + 2**-11, 1e6, -7e4, torch.inf, torch.nan], dtype=torch.float64)
    code = Half(torch.float16)
    decoded = code.decode(code.encode(values), values).tolist()
    assert decoded[:5] == [1 + 2**-10, 1.0, 65504.0, -65504.0, float("inf")]
    assert np.isnan(decoded[5])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_top_k_sends_the_largest_and_their_places(dtype: torch.dtype) -> None:
    values = torch.tensor([0.5, -4.0, 0.0, 3.0, -1.0, 2.0, 0.25], dtype=dtype)
    code = Largest(0.4)  # 2.8 of 7
    made = code.encode(values)
    assert code.size(values) == len(made) == 3 * (dtype.itemsize + 4)
    assert made[: 3 * dtype.itemsize].view(dtype).tolist() == [-4.0, 3.0, 2.0]
    assert made[3 * dtype.itemsize :].clone().view(torch.int32).tolist() == [1, 3, 5]
    assert code.decode(made, values).tolist() == [0, -4, 0, 3, 0, 2, 0]


@pytest.mark.parametrize(("elements", "count"), [(0, 0), (1, 1), (100, 1), (101, 2), (5000, 50)])
def test_top_k_counts_by_the_ratio_as_it_is_written(elements: int, count: int) -> None:
    """0.01 is a little less in float32, as texts have it."""
    assert Largest(CompressionSpec().ratio).size(torch.zeros(elements)) == 8 * count


def gradients_of(rank: int, iteration: int) -> dict[str, Tensor]:
    """Three parameters, drawn alike for a rank and an iteration."""
    generator = torch.Generator().manual_seed(100 * iteration + rank)
    shapes = {"a/0": (6, 5), "a/1": (6,), "b/0": (7, 2, 2)}
    return {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in shapes.items()}


def residual_of(codec: Codec, name: str, like: Tensor) -> Tensor:
    return codec.state().get(name, torch.zeros_like(like))


@pytest.mark.parametrize("transport", TRANSPORTS.values(), ids=TRANSPORTS)
@pytest.mark.parametrize(
    ("name", "settings"),
    [("BF16", {}), ("FP16", {}), ("TOPK", {"ratio": 0.2}), ("POWERSGD", {"rank": 1, "warm_up": 2})],
)
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_what_came_out_and_what_is_left_are_what_went_in(
    name: str, settings: dict[str, float], ranks: int, transport: Transport
) -> None:
    """Over 5 iterations; and all ranks that have the sums have the same bits."""

    def run(comm: Communicator) -> tuple[list[dict[str, Tensor]], dict[str, Tensor]]:
        codec, sums = codec_of(name, **settings), []
        for iteration in range(5):
            gradients = gradients_of(comm.rank, iteration)
            codec.sum(gradients, comm, transport)
            sums.append(gradients)
        return sums, {key: residual_of(codec, key, like) for key, like in sums[0].items()}

    found = run_ranks(ranks, run)
    differs = False
    for key, like in gradients_of(0, 0).items():
        went_in = sum((gradients_of(rank, i)[key] for rank in range(ranks) for i in range(5)), torch.zeros_like(like))
        left = sum((residuals[key] for _, residuals in found), torch.zeros_like(like))
        came_out = sum((each[key] for each in found[0][0]), torch.zeros_like(like))
        torch.testing.assert_close(came_out + left, went_in, rtol=1e-12, atol=1e-12)
        differs |= not torch.allclose(came_out, went_in, rtol=1e-9)
        if transport is not TREE:
            for sums, _ in found[1:]:
                assert all(torch.equal(ours[key], theirs[key]) for ours, theirs in zip(found[0][0], sums, strict=True))
    assert differs


def sent(name: str, transport: Transport, ranks: int, elements: int, **settings: float) -> list[int]:
    """Bytes that each rank sends of so many float32 numbers."""

    def run(comm: Communicator) -> int:
        seen = Seen(comm)
        codec_of(name, **settings).sum({"w": torch.ones(elements)}, comm, transport)
        return sum(traffic.sent for traffic in seen.take().values())

    return run_ranks(ranks, run)


@pytest.mark.parametrize(("name", "size"), [("BF16", 2), ("FP16", 2), ("TOPK", 0.25 * 8)])
def test_bytes_are_those_of_the_sum_with_those_of_the_code_in_the_place_of_numbers(name: str, size: float) -> None:
    """Of 480 elements on 4 ranks 2 · 3/4 of the codes, by a ring or by the library; once up a tree."""
    settings = {"ratio": 0.25} if name == "TOPK" else {}
    assert sent(name, LIBRARY, 4, 480, **settings) == [round(2 * 3 / 4 * 480 * size)] * 4
    assert sent(name, RING, 4, 480, **settings) == [round(2 * 3 / 4 * 480 * size)] * 4
    assert sent(name, TREE, 4, 480, **settings) == [0, *[round(480 * size)] * 3]


@pytest.mark.parametrize(
    ("name", "settings"), [("BF16", {}), ("TOPK", {"ratio": 0.25}), ("POWERSGD", {"rank": 2, "warm_up": 0})]
)
def test_forecasts_count_what_is_sent(name: str, settings: dict[str, float]) -> None:
    """By a ring of two ranks each sends the bytes of the code: of a matrix of 40 x 20, and of 40 numbers."""
    shapes = {"w": (40, 20), "b": (40,)}
    param = CompressionSpec(codec=pb.CompressionParameter.Codec.Value(name), **settings)  # type: ignore[arg-type]

    def run(comm: Communicator) -> int:
        seen = Seen(comm)
        CODECS[name](param).sum({key: torch.ones(shape) for key, shape in shapes.items()}, comm, LIBRARY)
        return sum(traffic.sent for traffic in seen.take().values())

    expected = sum(CODECS[name](param).coded_bytes(shape, 4) for shape in shapes.values())
    assert run_ranks(2, run) == [expected] * 2


def test_power_sgd_is_exact_for_sums_of_its_rank_and_sends_two_thin_matrices() -> None:
    """u vᵀ on one rank and 3 u wᵀ on the other: the sum is u (v + 3 w)ᵀ, of rank 1."""
    u, v, w = (torch.arange(1.0, n + 1) ** power for n, power in ((8, 1), (6, 1), (6, 2)))

    def run(comm: Communicator) -> tuple[Tensor, Tensor, int]:
        codec, bias = codec_of("POWERSGD", rank=1, warm_up=0), torch.full((8,), 1.0 + comm.rank)
        gradient = torch.outer(u, 3 * w if comm.rank else v)
        seen = Seen(comm)
        codec.sum({"w/0": gradient, "w/1": bias}, comm, LIBRARY)
        return gradient, bias, sum(traffic.sent for traffic in seen.take().values())

    for gradient, bias, traffic in run_ranks(2, run):
        torch.testing.assert_close(gradient, torch.outer(u, v + 3 * w), rtol=1e-5, atol=1e-4)
        assert bias.tolist() == [3.0] * 8
        assert traffic == 4 * (8 + 6 + 8)  # P one way, since there are 2 ranks; and a ring of Q and the bias


def test_power_sgd_converges_to_the_best_matrix_of_its_rank() -> None:
    """Of a gradient that stays, without what was left out: a power iteration, whose limit the SVD tells."""
    matrix = torch.tensor([[3.0, 1.0, 0.0, 0.5], [1.0, 2.0, 0.5, 0.0], [0.0, 0.5, 1.0, 0.2], [0.1, 0.0, 0.3, 0.5]])
    u, s, v = torch.linalg.svd(matrix)

    def run(comm: Communicator) -> Tensor:
        codec = codec_of("POWERSGD", rank=1, warm_up=0)
        for _ in range(40):
            gradient = matrix / 2
            codec.sum({"w": gradient}, comm, LIBRARY)
            codec.load({name: value for name, value in codec.state().items() if name != "w"})
        return gradient

    for found in run_ranks(2, run):
        torch.testing.assert_close(found, s[0] * torch.outer(u[:, 0], v[0]), rtol=1e-4, atol=1e-5)


def test_power_sgd_sends_all_in_its_first_iterations() -> None:
    def run(comm: Communicator) -> list[bool]:
        codec, exact = codec_of("POWERSGD", rank=1, warm_up=2), []
        for iteration in range(4):
            gradients = gradients_of(comm.rank, iteration)
            whole = gradients_of(0, iteration)["a/0"] + gradients_of(1, iteration)["a/0"]
            codec.sum(gradients, comm, LIBRARY)
            exact.append(torch.equal(gradients["a/0"], whole))
        return exact

    assert run_ranks(2, run) == [[True, True, False, False]] * 2


@pytest.mark.parametrize("name", list(CODECS))
def test_it_goes_on_from_its_state(name: str) -> None:
    """Bit for bit, and with parameters in other messages."""

    def run(comm: Communicator) -> Sequence[dict[str, Tensor]]:
        straight, first, second = (codec_of(name, ratio=0.2, rank=1, warm_up=1) for _ in range(3))
        for iteration in range(4):
            ours, theirs = gradients_of(comm.rank, iteration), gradients_of(comm.rank, iteration)
            straight.sum(ours, comm, RING)
            codec = first if iteration < 2 else second
            codec.sum(theirs, comm, RING)
            if iteration == 1:
                second.load({key: value.clone() for key, value in first.state().items()})
        return ours, theirs

    for ours, theirs in run_ranks(2, run):
        assert all(torch.equal(ours[key], theirs[key]) for key in ours)
