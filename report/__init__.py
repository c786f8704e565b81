"""Make tables, figures and the leaderboard from result rows and side files. Nothing is run.

A results folder becomes *boards* (`board`), and each board a *ranking* (`ranking`). `tables` and `provenance` make
their text, which the templates in `templates/` arrange; `figures` makes the pictures. `build` makes everything in
memory and then writes it, or lists the stale files.
"""
