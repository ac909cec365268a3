"""Tags of many images, as a job in parts: into a folder that a killed job goes on with, or one after another."""
