"""Submissions: rows of a method with metadata, as a small results folder. Their content is never imported or run.

listing    files by kind, within limits; findings
read       rows, line by line, with the checks of a single row
curves     compare a row with its side file
base       compare a folder with an earlier state
submit     pack, check the metadata, file
validate   all checks of a folder
summary    all checks of a folder and the folders in it; checked suites are cached
verify     run a sample again
"""
