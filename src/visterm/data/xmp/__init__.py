"""XMP, the metadata of photos: keywords read from any program's fields, and written without touching anything else."""
