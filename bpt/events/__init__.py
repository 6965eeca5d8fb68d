"""What happened when: clocks and counters of instructions."""
