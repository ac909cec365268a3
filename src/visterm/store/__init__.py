"""Storage of catalogues on disk, and search of image rows."""
