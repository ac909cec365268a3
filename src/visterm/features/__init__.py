"""Features of a folder of images on disk: the job that encodes them, and reading their rows instead of the images."""
