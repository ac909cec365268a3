"""Measuring runs: tables, curves, reports and which run is better."""
