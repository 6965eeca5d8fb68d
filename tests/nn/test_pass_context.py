"""Seeds and generators: equal everywhere, different for different things, and never global."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch

from bpt.base.seeds import derive_seed
from bpt.graph.share import Share
from bpt.nn.pass_context import PassContext


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
    context = PassContext(seed=3)
    first = draw(context.generator("conv1"))
    context = replace(context, iteration=5)
    assert draw(context.generator("conv1")) == first
    assert draw(context.generator("conv2")) != first
    assert draw(PassContext(seed=4).generator("conv1")) != first


def test_every_pass_draws_anew_and_a_resumed_run_the_same() -> None:
    def drawn(iteration: int, number: int) -> tuple[int, ...]:
        return tuple(draw(PassContext(3, iteration=iteration, pass_number=number).pass_generator("drop")))

    passes = list(itertools.product(range(3), range(2)))
    assert len({drawn(*place) for place in passes}) == len(passes)
    assert drawn(2, 1) == drawn(2, 1)


def test_torchs_own_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    draw(PassContext().pass_generator("drop"))
    assert torch.equal(torch.get_rng_state(), before)


# Micro-batches


def counted(context: PassContext, samples: int, parts: int) -> list[tuple[int, int]]:
    """Start and count of each micro-batch."""
    found = []
    for part in range(parts):
        share = replace(context, micro_batch=part).share(samples)
        assert share.total == samples
        found.append((share.start, share.count))
    return found


def test_a_share_is_cut_into_micro_batches() -> None:
    context = PassContext(split=lambda samples: Share(4, 5, samples), ranks=2, micro_batch_splits=(3,))
    assert context.share(9) == Share(4, 5, 9)
    assert counted(context, 9, 3) == [(4, 2), (6, 2), (8, 1)]


def test_splits_that_stand_for_ranks() -> None:
    """A process that is alone has the micro-batches of two ranks with three each, one rank after the other."""
    assert counted(PassContext(micro_batch_splits=(2, 3)), 11, 6) == [(0, 2), (2, 2), (4, 2), (6, 2), (8, 2), (10, 1)]
    ranks = [Share(0, 6, 11), Share(6, 5, 11)]
    of_ranks = [counted(PassContext(split=lambda _, own=own: own, micro_batch_splits=(3,)), 11, 3) for own in ranks]  # type: ignore[misc]
    assert of_ranks[0] + of_ranks[1] == counted(PassContext(micro_batch_splits=(2, 3)), 11, 6)


def test_three_levels_of_splits() -> None:
    """8 samples: 4 and 4; each 2 and 2; each 1 and 1. And 5: 3 and 2; 2, 1, 1, 1; the last of a single one is empty."""
    assert counted(PassContext(micro_batch_splits=(2, 2, 2)), 8, 8) == [(number, 1) for number in range(8)]
    assert [count for _, count in counted(PassContext(micro_batch_splits=(2, 2, 2)), 5, 8)] == [1, 1, 1, 0, 1, 0, 1, 0]


def test_one_micro_batch_is_the_whole() -> None:
    assert counted(PassContext(micro_batch_splits=(1,)), 7, 1) == [(0, 7)]
    assert PassContext(micro_batch_splits=(4,)).share(7) == Share(0, 7, 7)  # none is named


def test_part_of_any_share() -> None:
    context = PassContext(micro_batch_splits=(2,), micro_batch=1)
    assert context.part_of(Share(3, 5, 20)) == Share(6, 2, 20)


def test_whether_shares_are_rotated_and_batches_divided() -> None:
    assert not PassContext(micro_batch_splits=(4,)).rotates
    assert not PassContext(micro_batch_splits=(1, 4)).rotates
    assert PassContext(micro_batch_splits=(2, 4)).rotates
    assert PassContext(ranks=2).rotates
    assert not PassContext(micro_batch_splits=(4,)).is_divided
    assert PassContext(micro_batch_splits=(4,), micro_batch=0).is_divided
    assert PassContext(ranks=2).is_divided


def test_shapes_of_a_micro_batch() -> None:
    context = PassContext(micro_batch_splits=(3,), micro_batch=2)
    assert context.own_shape((7, 4, 2)) == (2, 4, 2)
    assert context.own_shape(()) == ()
    assert replace(context, micro_batch=None).own_shape((7, 4, 2)) == (7, 4, 2)
