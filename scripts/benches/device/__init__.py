"""What ``scripts/check_gpu`` does: parts that run on a GPU, or tiny on the CPU, each in a process of its own."""
