"""What carries sums of gradients from rank to rank: as numbers, or as a codec's bytes."""
