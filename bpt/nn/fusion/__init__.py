"""Fusion: several layers run as one operation, where nobody looks at the blobs between them.

``plan_steps`` finds them in a graph; ``operations`` has what they are rewritten to. Each gives what its layers give one
by one, up to rounding, and leaves it to them where it cannot.
"""
