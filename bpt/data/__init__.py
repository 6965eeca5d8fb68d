"""Data sets: sources (one file for each format), the order of samples, transforms, and prefetching."""
