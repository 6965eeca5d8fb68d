"""Caffe's update rules once more, in float64 NumPy: its formulas line by line, and nothing clever."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bpt.config.optim_spec import OptimSpec

Array = np.ndarray


@dataclass
class Reference:
    """``first`` and ``second`` are the two halves of Caffe's history; the second is empty for most rules."""

    spec: OptimSpec
    weights: list[Array]
    lr_mults: list[float]
    decay_mults: list[float]
    first: list[Array] = field(default_factory=list)
    second: list[Array] = field(default_factory=list)
    updates: list[Array] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.weights = [np.asarray(w, np.float64) for w in self.weights]
        self.first = [np.zeros_like(w) for w in self.weights]
        self.second = [np.zeros_like(w) for w in self.weights] if self.spec.type in ("AdaDelta", "Adam") else []

    def update(self, gradients: list[Array], rate: float, iteration: int) -> None:
        p = self.spec
        diffs = [np.asarray(g, np.float64) for g in gradients]
        norm = np.sqrt(sum((d**2).sum() for d in diffs))
        if p.clip_gradients >= 0 and norm > p.clip_gradients:
            diffs = [d * p.clip_gradients / norm for d in diffs]
        diffs = [d / p.iter_size for d in diffs]
        self.updates = []
        for i, (diff, weight) in enumerate(zip(diffs, self.weights, strict=True)):
            decay = p.weight_decay * self.decay_mults[i]
            diff = diff + decay * (weight if p.regularization_type == "L2" else np.sign(weight))
            self.updates.append(getattr(self, p.type.lower())(i, diff, rate * self.lr_mults[i], iteration))
        self.weights = [w - u for w, u in zip(self.weights, self.updates, strict=True)]

    def sgd(self, i: int, g: Array, rate: float, iteration: int) -> Array:
        self.first[i] = self.spec.momentum * self.first[i] + rate * g
        return self.first[i]

    def nesterov(self, i: int, g: Array, rate: float, iteration: int) -> Array:
        m, old = self.spec.momentum, self.first[i]
        self.first[i] = m * old + rate * g
        return (1 + m) * self.first[i] - m * old

    def adagrad(self, i: int, g: Array, rate: float, iteration: int) -> Array:
        self.first[i] = self.first[i] + g**2
        step: Array = rate * g / (np.sqrt(self.first[i]) + self.spec.delta)
        return step

    def rmsprop(self, i: int, g: Array, rate: float, iteration: int) -> Array:
        decay = self.spec.rms_decay
        self.first[i] = decay * self.first[i] + (1 - decay) * g**2
        step: Array = rate * g / (np.sqrt(self.first[i]) + self.spec.delta)
        return step

    def adadelta(self, i: int, g: Array, rate: float, iteration: int) -> Array:
        m, delta = self.spec.momentum, self.spec.delta
        self.first[i] = m * self.first[i] + (1 - m) * g**2
        u = g * np.sqrt((self.second[i] + delta) / (self.first[i] + delta))
        self.second[i] = m * self.second[i] + (1 - m) * u**2
        return rate * u

    def adam(self, i: int, g: Array, rate: float, iteration: int) -> Array:
        b1, b2, t = self.spec.momentum, self.spec.momentum2, iteration + 1
        self.first[i] = b1 * self.first[i] + (1 - b1) * g
        self.second[i] = b2 * self.second[i] + (1 - b2) * g**2
        correction = np.sqrt(1 - b2**t) / (1 - b1**t)
        step: Array = rate * correction * self.first[i] / (np.sqrt(self.second[i]) + self.spec.delta)
        return step
