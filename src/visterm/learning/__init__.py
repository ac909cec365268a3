"""From photos and tags to a run: requests, three fits, tuning, confidences, and the files of a run."""
