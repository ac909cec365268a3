"""What several experiments share: a rival in a process of its own, races against a clock, a simulation."""
