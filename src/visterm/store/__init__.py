"""Storage of catalogues on disk, and search of image rows."""

DATABASE, RUNS = "catalogue.sqlite", "runs"  # In the folder of a catalogue: its database, and a folder with its runs
