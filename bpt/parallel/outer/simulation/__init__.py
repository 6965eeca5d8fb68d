"""A virtual clock for the outer layer: the schedules that drive a run, driven by made-up nodes and links.

``simulator.simulate(schedule, cluster, job)`` gives an ``outcome.Outcome``. Arithmetic only, and the same call gives
the same outcome.
"""
