"""Other programs' photo libraries: read into a catalogue, and given the tags that it predicts."""
