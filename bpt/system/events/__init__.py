"""What happened when: events of instructions and of messages, and what makes sums of them."""
