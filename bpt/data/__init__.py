"""Data sets: sources (one file a format), the order of samples, what is done to them, reading ahead."""
