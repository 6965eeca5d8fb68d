"""A small profile for the tests."""

from __future__ import annotations

import math

from bpt.parallel.balance.profile import Profile, RankFacts, RankSpeed, SpeedFacts
from bpt.parallel.balance.speed import Estimate

FACTS = SpeedFacts(
    network="0123abcd",
    solver={"engine": "AUTO", "type": "SGD", "iter_size": 1},
    ranks=(RankFacts("a", "cpu (Fast)", 4), RankFacts("b", "cpu (Slow)", 2)),
)
PROFILE = Profile(
    FACTS,
    (
        RankSpeed({1: Estimate(0.1, 0.001, 5), 8: Estimate(0.8, math.inf, 1)}, cap=100),
        RankSpeed({1: Estimate(0.3, 0.0, 7)}, cap=6),
    ),
    batch=8,
    name="small",
    bpt="0.1.0",
)
