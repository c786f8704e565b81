"""Measurements of speed: rounds of methods, alternatives and other benchmarks."""
