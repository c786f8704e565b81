"""Submissions: a method's rows with their metadata, as a small results folder. What they hold is never imported or run.

listing    files by kind within limits; findings
read       rows line by line, each checked by itself
curves     a row and its side file
base       a folder and its earlier state
submit     packing, metadata, filing
validate   all checks of a folder
summary    the same suite by suite; what was checked before is not read again
verify     running a sample again
"""
