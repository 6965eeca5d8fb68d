"""Events of instructions and of messages, and the sinks that sum them."""
