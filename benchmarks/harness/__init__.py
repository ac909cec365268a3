"""What benchmarks share: options and JSON, data sets, sides that take turns; and the counts of house.py."""
