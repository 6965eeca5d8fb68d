"""Seeds and generators: equal everywhere, different for different things, and never global."""

from __future__ import annotations

import itertools

import pytest
import torch

from bpt.context import RunContext, derive_seed


@pytest.mark.parametrize(
    ("key", "digest"),
    [
        # From coreutils: printf '7\0data\0digits' | b2sum -l 64
        ((7, "data", "digits"), "eb8ff955cf76771e"),
        ((0, "filler", "conv1", 0), "4f304d147538d41b"),
        ((0,), "842b7d9d43cddf75"),
    ],
)
def test_seeds_are_equal_on_every_machine(key: tuple[int | str, ...], digest: str) -> None:
    seed, *rest = key
    assert isinstance(seed, int)
    # The digest as a little-endian number, without its last bit: 63 bits fit every generator.
    assert derive_seed(seed, *rest) == int.from_bytes(bytes.fromhex(digest), "little") // 2


def test_other_things_have_other_seeds() -> None:
    keys: list[tuple[str | int, ...]] = [(), ("a",), ("a", "b"), ("ab",), ("a", 1), ("a", 11), ("a", 1, 1), ("b", "a")]
    seeds = [derive_seed(seed, *key) for seed in (0, 1) for key in keys]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)


def draw(generator: torch.Generator) -> list[int]:
    return torch.randint(2**31, (4,), generator=generator).tolist()


def test_a_generator_begins_anew_whenever_it_is_asked_for() -> None:
    context = RunContext(seed=3)
    first = draw(context.generator("conv1"))
    context.iteration = 5
    assert draw(context.generator("conv1")) == first
    assert draw(context.generator("conv2")) != first
    assert draw(RunContext(seed=4).generator("conv1")) != first


def test_every_pass_draws_anew_and_a_resumed_run_the_same() -> None:
    def drawn(iteration: int, micro: int) -> tuple[int, ...]:
        return tuple(draw(RunContext(3, iteration, micro).pass_generator("drop")))

    passes = list(itertools.product(range(3), range(2)))
    assert len({drawn(*place) for place in passes}) == len(passes)
    assert drawn(2, 1) == drawn(2, 1)


def test_torchs_own_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    draw(RunContext().pass_generator("drop"))
    assert torch.equal(torch.get_rng_state(), before)
