"""The engine: it runs an iteration on one rank, for any mechanism of parallel training.

``scheduler`` says when: it yields ``instructions``. ``operator`` says where and how: it executes those of segments.
``executor`` is where the two meet. ``optim`` has the update rules. Mechanisms plug in through the protocols
``gradient_exchange``, ``split_pass`` and ``pipeline_stage``; the engine imports none of them.
"""
