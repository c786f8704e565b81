"""Tuning on validation: every method has the same number of trials and of training rounds."""
