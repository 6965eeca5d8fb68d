"""The transports of sums of gradients from rank to rank: as numbers, or as a codec's bytes."""
