"""RunState: the state of a run while it trains, which becomes a TrainState and is replaced by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from bpt.base.errors import UserError
from bpt.engine.late_loss import Loss
from bpt.parallel.balance.noise_scale import NoiseScale
from bpt.parallel.exchange import Exchange
from bpt.train.runtime.built_nets import RunNets
from bpt.train.runtime.checkpoint import Checkpoint
from bpt.train.runtime.parallel import Parallel
from bpt.train.runtime.starting_point import positions_of, set_positions
from bpt.train.runtime.updater import Updater
from bpt.train.state.best import Best
from bpt.train.state.exchange_memory import Extras
from bpt.train.state.train_state import TrainState, blob_of


@dataclass
class RunProgress:
    """The progress of a run.

    Attributes:
        iteration: number of completed iterations.
        last_loss: loss of the last iteration, which may not be read yet.
        best, tested: as in TrainState.
        is_settled: whether all trials were finished when the last iteration began.
    """

    iteration: int = 0
    last_loss: Loss = 0.0
    best: Best | None = None
    tested: int = -1
    is_settled: bool = False

    @property
    def loss(self) -> float:
        """The loss of the last iteration."""
        return float(self.last_loss)


class Tunable(Protocol):
    """A setting that is found by measuring."""

    @property
    def name(self) -> str:
        """The name of the setting in a TrainState."""

    def state(self) -> tuple[int, ...]:
        """Return the choice; () before it is final."""

    def load(self, state: Sequence[int]) -> None:
        """Continue with the choice of an earlier run."""


@dataclass
class RunState:
    """This rank's part of the state of a run.

    Attributes:
        seed: the seed of all random numbers.
        tuned: the settings that are found by measuring.
        checkpoint: knows the names of the run and of the exchange's memory.
        beside: what snapshots hold of others, such as a parameter server: name → name → tensor.
        resumed: the same, of the state that the run continues from.
        noise: decides the passes of an iteration; ``None``: it is always ``iter_size``.
    """

    seed: int
    progress: RunProgress
    parallel: Parallel
    nets: RunNets
    updater: Updater
    exchange: Exchange
    tuned: Sequence[Tunable]
    checkpoint: Checkpoint
    beside: Extras = field(default_factory=dict)
    resumed: Extras = field(default_factory=dict)
    noise: NoiseScale | None = None

    def current(self) -> TrainState:
        """Return this rank's part of the state; it shares memory with the nets."""
        net, history = self.nets.net, self.updater.rule.history
        graph, held = net.graph, net.local_params
        return replace(
            self.without_tensors(self.progress.iteration),
            weights={blob_of(graph, param): net.value(param).detach() for param in held},
            moments={blob_of(graph, param): tuple(history[place :: len(held)]) for place, param in enumerate(held)},
            tuned={each.name: settled for each in self.tuned if (settled := each.state())},
            extras={**self.beside, **({self.checkpoint.memory_name: own} if (own := self.exchange.state()) else {})},
        )

    def without_tensors(self, iteration: int) -> TrainState:
        """Return the state after ``iteration`` iterations, without parameters and tuned settings."""
        updater = self.updater
        return TrainState(
            iteration,
            self.seed,
            weights={},
            positions=positions_of(self.nets.by_name),
            losses=updater.losses.history,
            loss_scale=updater.scale.state(),
            plateau=updater.rates.state(),
            best=self.progress.best,
            tested=self.progress.tested,
            run=self.checkpoint.run,
            noise=self.noise.state() if self.noise else (),
        )

    def load(self, state: TrainState) -> None:
        """Continue from this rank's part of a state (see ``Runtime.load``)."""
        if state.seed != self.seed:
            raise UserError(f"the state is of random_seed {state.seed}, this run of {self.seed}: bind another to it")
        net, progress = self.nets.net, self.progress
        self.updater.load(state)
        set_positions(self.nets.by_name, state.positions)
        net.hidden_states = ((),) * len(net.graph)
        for each in self.tuned:
            if each.name in state.tuned:
                each.load(state.tuned[each.name])
        if self.noise:
            self.noise.load(state.noise)
        progress.best, progress.tested = state.best, state.tested
        self.checkpoint.go_on(state)
        progress.iteration = state.iteration
        self.resumed = {name: of for name, of in state.extras.items() if name != self.checkpoint.memory_name}
        self.exchange.load(state.extras.get(self.checkpoint.memory_name, {}))

    def share_weights(self) -> None:
        """Broadcast the first rank's weights to all, because fillers and files may differ between machines."""
        if self.exchange.replicas_diverged:
            return
        for net in self.nets.by_name.values():
            self.parallel.parameters.agree(net, everything=True)
        self.exchange.slices.read()
