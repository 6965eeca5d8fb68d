"""Tools for all districts: errors with place and remedy, registries, logs, progress, files, signals, threads."""
