"""Fusion: several layers that run as one operation, where nobody reads the blobs between them.

``plan_steps`` finds them in a graph; ``operations`` has their replacements. Each gives the result of its single layers,
up to rounding. Where it cannot run, the single layers do. ``fixed_steps`` turns the steps of a pass that is repeated
into one ``pass_program``.
"""
