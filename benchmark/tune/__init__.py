"""Choosing settings on validation: every method with the same number of trials and of training rounds."""
