"""Submissions: a method's rows with their metadata, as a small results folder. What they hold is never imported or run.

read       files by kind within limits, rows line by line
rows       a row by itself
curves     a row and its side file
base       a folder and its earlier state
submit     packing, metadata, filing
validate   all checks of a folder
verify     running a sample again
"""
