"""Searches of a catalogue in five steps: parse, candidates, judgements, rank, merge."""
