"""What all benchmarks share: options and JSON, a rival in a process of its own, training against a clock."""
