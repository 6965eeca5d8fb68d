"""Divide pictures into those to train with and those to test with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bpt.apps.new.labelled_folder import LabelledPicture

_PART = 5  # one of this many pictures is for tests
_LARGEST, _SMALLEST = 50, 16  # samples of a test batch


def split_pictures(
    pictures: Sequence[LabelledPicture], seed: int
) -> tuple[list[LabelledPicture], list[LabelledPicture]]:
    """Return the pictures to train with and those to test with.

    If the folders do not say it, a fifth of each class is for tests. A class with one picture is only trained. The same
    ``seed`` gives the same division.
    """
    train = [each for each in pictures if each.is_test is False]
    test = [each for each in pictures if each.is_test]
    rest = [each for each in pictures if each.is_test is None]
    generator = np.random.default_rng(seed)
    for label in sorted({each.label for each in rest}):
        own = [each for each in rest if each.label == label]
        order = generator.permutation(len(own))
        count = max(1, round(len(own) / _PART)) if len(own) > 1 else 0
        chosen = set(order[:count].tolist())
        test += [each for index, each in enumerate(own) if index in chosen]
        train += [each for index, each in enumerate(own) if index not in chosen]
    return train, test


def test_batches(count: int) -> tuple[int, int]:
    """Return a batch size and a number of batches whose product is ``count`` or, if no size fits, a little less."""
    if count <= _LARGEST:
        return count, 1
    size = min(range(_SMALLEST, _LARGEST + 1), key=lambda size: (count % size, -size))
    return size, count // size
