"""What all districts may use: errors with place and remedy, registries, logs, progress, files, signals, threads."""
