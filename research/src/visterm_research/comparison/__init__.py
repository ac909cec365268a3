"""What the papers' comparisons share: data, methods fitted and judged once, results kept on disk, the report."""
