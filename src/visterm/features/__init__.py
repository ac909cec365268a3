"""Features of a folder of images, kept on disk: the job that makes them, and their rows in place of the images."""
