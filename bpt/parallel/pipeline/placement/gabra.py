"""GABRA: partitions are placed on devices by a genetic algorithm (Hybrid paper, section 3.1.2, Alg. 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bpt.parallel.pipeline.placement.block import fastest_cut, genes_of, least_excess
from bpt.parallel.pipeline.placement.improve import fill, improved, is_small, limits, relieve
from bpt.parallel.pipeline.placement.loads import ROUNDING, Loads
from bpt.parallel.pipeline.placement.objective import UNFIT, Objective, StepTime, score
from bpt.parallel.pipeline.placement.partition_crossings import Floats, Ints

if TYPE_CHECKING:
    from bpt.config.plan.run_plan import GabraSpec


def good_placement(loads: Loads) -> Ints:
    """Return (n,), the fastest cut; if none fits, the best result of a local search, which may not fit."""
    cut = fastest_cut(loads)
    if cut is not None:
        return np.array(genes_of(cut, loads.n), dtype=np.int64)
    objective = StepTime(loads)
    rng = np.random.default_rng(0)
    begin = np.concatenate([[genes_of(least_excess(loads), loads.n)], random_placements(objective, 31, rng)])
    genes, scores = improved(objective, begin, rng, rounds=200)
    best: Ints = genes[int(scores.argmin())]
    return best


def random_placements(objective: Objective, count: int, rng: np.random.Generator) -> Ints:
    """Return (count, n) random chromosomes with at least one partition on each device (Algorithm 2).

    Partitions are taken in a random order that favours heavy ones. Each goes to a random one of the devices that have
    room for it, within Eq. 6 under PROFIT and within their memory. If none has room, it goes to any device, so some
    chromosomes may exceed a limit.
    """
    loads = objective.loads
    n, m = loads.n, loads.m
    takes, room = limits(objective)
    rows = np.arange(count)
    weight = loads.work / (loads.work.max() or 1.0)
    order = np.argsort(-(weight + rng.random((count, n))), axis=1)
    genes = np.zeros((count, n), dtype=np.int64)
    left = np.repeat(room[None], count, 0)
    empty = np.ones((count, m), dtype=np.bool_)
    for place in range(n):
        mine = order[:, place]
        fits: NDArray[np.bool_] = np.all(takes[mine][:, None, :] <= left * (1 + ROUNDING), axis=2)
        fits[~fits.any(1)] = True
        must = empty.sum(1) >= n - place  # as many devices without a partition as there are partitions left
        fits[must] = empty[must]
        chosen = (rng.random((count, m)) + fits).argmax(1)
        genes[rows, mine] = chosen
        left[rows, chosen] -= takes[mine]
        empty[rows, chosen] = False
    return genes


def first_population(objective: Objective, size: int, seeds: Ints, rng: np.random.Generator) -> Ints:
    """Return (K, n), 1 ≤ K ≤ size: different chromosomes within the limits, ``seeds`` (S, n) first.

    Random ones that exceed a limit are repaired by local search, and left out where that fails; if none is left, the
    one that comes nearest is returned alone.
    """
    found = np.concatenate([seeds, random_placements(objective, max(size - len(seeds), 0), rng)])
    scores = score(objective, found)
    relieve(objective, found, np.flatnonzero(scores >= UNFIT), rng)
    scores = score(objective, found)
    unfit = np.flatnonzero(scores >= UNFIT)
    if len(unfit):
        found[unfit], scores[unfit] = improved(objective, found[unfit], rng, rounds=20)
    fit = found[scores < UNFIT]
    if not len(fit):
        return found[[int(scores.argmin())]]
    _, first = np.unique(fit, axis=0, return_index=True)
    return fit[np.sort(first)][:size]


BATCH = 16  # children that are born of one population before they take their places in it
WORK = 3_000_000  # elements that local search may look at in one round


@dataclass(frozen=True)
class Evolution:
    """The result of ``evolve``.

    Attributes:
        finalists: (K, n) the last population, without any that is like another, the best first.
        convergence: the best fitness at the start and after each generation.
    """

    finalists: Ints
    convergence: tuple[float, ...]

    @property
    def genes(self) -> Ints:
        """The best chromosome, (n,)."""
        best: Ints = self.finalists[0]
        return best


def evolve(objective: Objective, start: Ints, param: GabraSpec) -> Evolution:
    """Run Algorithm 1.

    A chromosome names the device of each partition. The first population is random, within the limits (Alg. 2:
    ``random_placements``). In each generation two parents are chosen by roulette, by their fitness: the profit (Eq.
    9) or 1 / time under STEP_TIME. With the probability ``crossover`` the child takes the first half of parent 1
    and the second half of parent 2 (Alg. 3). The paper's second offspring swaps the parents; both are drawn in the
    same way, so one child is enough. Otherwise the child is a copy of parent 1. Then a random run of its genes is
    inverted. A child that already exists is skipped. Any other child replaces the worst chromosome, or is added if
    the first population is small.

    The paper leaves open, or we do otherwise:

    - A child that leaves a device without a partition gets one there, from a device that has several. If it exceeds a
      limit, partitions move at random from devices that have too much to those that have room (``relieve``); if it
      still does, it is skipped. A generation ends even if its child is skipped: line 10 tries again until a child is
      new, which never ends once the population holds every placement.
    - Sixteen generations choose their parents from the same population, for the sake of numpy.
    - It ends early where a placement is as fast as any can be (the paper: "or the optimal total profit is obtained").
    - STEP_TIME is refined, since crossover and inversion know nothing of what makes a step slow: the fastest cut
      of the same partitions (``start``) is in the first population, and local search (``improved``) works on the best
      chromosomes of the first population, on a few of each sixteen children, and on the best of the last population.
      PROFIT is as printed; ``start`` is in its first population, too, so that this is never without a placement
      within the limits.

    Args:
        start: (n,) a placement, within the limits if there is one.
        param: sizes and seed. The same seed gives the same placement.
    """
    rng = np.random.default_rng(param.seed)
    genes = first_population(objective, param.population, start[None], rng)
    refine = isinstance(objective, StepTime)
    population = _Population(objective, genes, param.population)
    if refine:
        population.refine(rng, most=8, rounds=20)
    few, rounds = (4, 12) if is_small(objective.loads) else (1, 3)
    convergence = [population.best_fitness]
    while len(convergence) <= param.generations and not population.perfect:
        count = min(BATCH, param.generations + 1 - len(convergence))
        children = _children(population, count, param.crossover, rng)
        scores = score(objective, children)
        unfit = np.flatnonzero(scores >= UNFIT)
        if len(unfit):
            relieve(objective, children, unfit, rng)
            scores[unfit] = score(objective, children[unfit])
        if refine:
            children[:few], scores[:few] = improved(objective, children[:few], rng, rounds)
        for child, value in zip(children, scores.tolist(), strict=True):
            population.take(child, value)
            convergence.append(population.best_fitness)
    if refine and not population.perfect:
        population.refine(rng, most=4, rounds=200, idle_rounds=12)
        convergence[-1] = population.best_fitness
    return Evolution(population.genes[np.argsort(population.scores, kind="stable")], tuple(convergence))


class _Population:
    """A population with its scores and fitness; ``best`` is the row of the best chromosome.

    A child is added while the population is below ``size``, because few chromosomes within the limits were found at the
    start. Later it replaces the worst chromosome.
    """

    def __init__(self, objective: Objective, genes: Ints, size: int = 0) -> None:
        self.objective = objective
        self.size = size
        self.genes = genes
        self.scores = score(objective, genes)
        self.fitness = objective.fitness_of(self.scores)
        self.known = {row.tobytes() for row in genes}
        self.bound = objective.bound() if isinstance(objective, StepTime) else -np.inf

    @property
    def best(self) -> int:
        return int(self.scores.argmin())

    @property
    def best_fitness(self) -> float:
        return float(self.fitness[self.best])

    @property
    def perfect(self) -> bool:
        """Whether the best score reaches the lower bound."""
        return float(self.scores.min()) <= self.bound * (1 + ROUNDING)

    def take(self, child: Ints, value: float) -> None:
        """Replace the worst chromosome by a child, unless it is known or exceeds a limit."""
        if child.tobytes() in self.known or value >= UNFIT:
            return
        if len(self.genes) < self.size:
            self._append(child, value)
        else:
            self._replace(int(self.scores.argmax()), child, value)

    def _append(self, genes: Ints, value: float) -> None:
        self.known.add(genes.tobytes())
        self.genes = np.concatenate([self.genes, genes[None]])
        self.scores = np.append(self.scores, value)
        self.fitness = self.objective.fitness_of(self.scores)

    def _replace(self, row: int, genes: Ints, value: float) -> None:
        self.known.discard(self.genes[row].tobytes())
        self.known.add(genes.tobytes())
        self.genes[row] = genes
        self.scores[row] = value
        self.fitness[row] = self.objective.fitness_of(np.array([value]))[0]

    def refine(self, rng: np.random.Generator, most: int, rounds: int, idle_rounds: int = 3) -> None:
        """Improve the best ones by local search; each takes its own place, unless it became like another."""
        loads = self.objective.loads
        each = (len(loads.crossings.readers) + loads.n) * loads.m
        rows = np.argsort(self.scores, kind="stable")[: max(1, min(most, WORK // (32 * each)))]
        found, scores = improved(self.objective, self.genes[rows], rng, rounds, idle_rounds)
        for row, genes, value in zip(rows.tolist(), found, scores.tolist(), strict=True):
            if genes.tobytes() not in self.known:
                self._replace(row, genes, value)


def _children(population: _Population, count: int, crossover: float, rng: np.random.Generator) -> Ints:
    """Return (count, n) children by roulette, crossover and mutation; no device is left without a partition."""
    n = population.genes.shape[1]
    first, second = _roulette(population.fitness, count, rng), _roulette(population.fitness, count, rng)
    children = population.genes[first]
    crossed = rng.random(count) < crossover
    middle = n // 2
    children[crossed, middle:] = population.genes[second[crossed], middle:]
    _invert(children, rng)
    fill(children, population.objective.loads.m, rng)
    return children


def _roulette(fitness: Floats, count: int, rng: np.random.Generator) -> Ints:
    """Return rows, each with a probability proportional to its fitness; uniform where all fitness is 0."""
    most = fitness.max()
    wheel = (fitness / most if most else np.ones_like(fitness)).cumsum()
    found: Ints = np.searchsorted(wheel, rng.random(count) * wheel[-1], side="right")
    return np.minimum(found, len(fitness) - 1)


def _invert(children: Ints, rng: np.random.Generator) -> None:
    """Apply inversion mutation: reverse a random run of genes in each child."""
    n = children.shape[1]
    ends = np.sort(rng.integers(0, n + 1, (2, len(children))), 0)
    for child, start, stop in zip(children, *ends.tolist(), strict=True):
        child[start:stop] = child[start:stop][::-1].copy()
