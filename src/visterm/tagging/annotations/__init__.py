"""Tags of many images, as a job in parts: into a folder, where a killed job can be resumed, or one by one."""
