"""The ways to train that ``scripts/bench staleness`` compares."""

from __future__ import annotations

from dataclasses import dataclass

from bpt.perf.simulate.simulation import Strategy

IDPA, ALONE = "IDPA", "one process"


@dataclass(frozen=True)
class Way:
    """A way to train.

    Attributes:
        name: in tables.
        strategy: the exchange and the division of samples; ``None``: one process.
        fields: more of ``parallel_param``.
    """

    name: str
    strategy: Strategy | None
    fields: str = ""

    @property
    def parallel(self) -> str:
        """The text of ``parallel_param``."""
        assert self.strategy is not None
        return f"exchange: {self.strategy.exchange} balance: {self.strategy.balance} {self.fields}"


def _outer(type_: str, lr: float, momentum: float) -> str:
    return f"outer_param {{ type: {type_} lr: {lr:g} momentum: {momentum:g} }}"


_RULES = {
    "": "",
    "INVERSE": "agwu_param { staleness: INVERSE }",
    "COMPENSATE": "agwu_param { staleness: COMPENSATE }",
    "DISCARD": "agwu_param { staleness: DISCARD }",
    "TABLE": "agwu_param { staleness: TABLE }",
}
_STEPS = {
    "NESTEROV": _outer("NESTEROV", 0.7, 0.3),
    "DELAYED_NESTEROV": _outer("DELAYED_NESTEROV", 0.7, 0.2),
}
_OF_MEANS = {"": "", "NESTEROV": _outer("NESTEROV", 1, 0.3)}  # of SGWU, whose changes are not multiplied by Eq. 9


def _ways() -> dict[str, Way]:
    ways = [Way(ALONE, None)]
    for exchange, balance, more in (
        ("SGWU", IDPA, _OF_MEANS),
        ("AGWU", IDPA, _RULES | _STEPS),
        ("AGWU", "UNIFORM", {"": "", "BY_SPEED": "agwu_param { local_updates: BY_SPEED }"}),
        ("ASGD", "UNIFORM", _RULES),
        ("ASGD", IDPA, _RULES),
    ):
        strategy = Strategy(exchange, balance)
        ways += [Way(f"{strategy} {name}".strip(), strategy, fields) for name, fields in more.items()]
    return {way.name: way for way in ways}


WAYS = _ways()
