"""A net as an immutable graph: filter, splits, shapes, sharing, segments, stages. No torch, no MPI."""
