"""Detects tests that use more samples than the data set has, so that some count more often than others."""

from __future__ import annotations

import os

from bpt.nn.layers.prefetching import PrefetchingDataLayer
from bpt.nn.net import Net


def wraparound_of_test_set(net: Net, name: str, batches: int, setting: str = "test_iter") -> tuple[str, str]:
    """Return a warning and a remedy for a test that uses samples more than once; else two empty texts.

    There is no warning for data without an end, or with random samples.

    Args:
        net: the test net, of which only the data layers are checked.
        name: its name in messages.
        batches: number of batches of a test.
        setting: the user's name of the setting with this number.
    """
    for layer in net.data_layers().values():
        if not isinstance(layer, PrefetchingDataLayer) or not layer.counts_samples:
            continue
        batch, there = layer.share.total, layer.epoch
        taken = batches * batch
        if taken > there:
            source = os.path.basename(layer.path.rstrip("/"))
            times = -(-taken // there)
            often = f"some count up to {times} times" if taken % there else f"each counts {times} times"
            return (
                f"{name} takes {batches} × {batch} = {taken} samples, {source} has {there}: {often}",
                f"set {setting} and batch_size so that their product is {there}",
            )
    return "", ""
