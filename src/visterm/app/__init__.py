"""What the command line and the Python user both call."""
