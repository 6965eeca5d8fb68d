"""Settings of an optimizer that have no effect, because another setting does not ask for them."""

from __future__ import annotations

from collections.abc import Iterator

from bpt.base.violation import IgnoredSetting
from bpt.config.optim_spec import OptimSpec


def ignored_settings(spec: OptimSpec) -> Iterator[IgnoredSetting]:
    """Yield settings without an effect, except for Caffe's own fields, which its texts often contain."""
    momentum, decay = spec.momentum_policy, spec.weight_decay_policy
    readers = {
        "rampup_lr": (spec.rampup_interval > 0, "rampup_interval"),
        "warmup_start_lr": (spec.warmup_iter > 0, "warmup_iter"),
        "plateau_winsize": (spec.lr_policy == "plateau", 'lr_policy: "plateau"'),
        "stagelr": (spec.lr_policy == "multifixed", 'lr_policy: "multifixed"'),
        "stageiter": (spec.lr_policy == "multifixed", 'lr_policy: "multifixed"'),
        "cosine_param": (spec.lr_policy == "cosine", 'lr_policy: "cosine"'),
        "onecycle_param": ("onecycle" in (spec.lr_policy, momentum), 'lr_policy: "onecycle"'),
        "max_momentum": (momentum != "fixed", "momentum_policy"),
        "momentum_power": (momentum == "poly", 'momentum_policy: "poly"'),
        "weight_decay_power": (decay == "poly", 'weight_decay_policy: "poly"'),
        "max_weight_decay": (decay == "poly", 'weight_decay_policy: "poly"'),
        "larc_policy": (spec.larc, "larc: true"),
        "larc_eta": (spec.larc, "larc: true"),
        "larc_turbo": (spec.larc, "larc: true"),
        "local_gw_ratio": (spec.local_lr_auto, "local_lr_auto: true"),
    }
    for field, (is_read, by) in readers.items():
        if field in spec.given and not is_read:
            yield IgnoredSetting((field,), f"without {by}")
