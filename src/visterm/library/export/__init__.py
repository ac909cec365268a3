"""Tags written back: into XMP files, into images, into texts beside them, and into tables."""
