"""From result rows to tables, figures and the leaderboard. It reads rows and side files and never runs anything.

A results folder becomes *boards* (`board`), each board a *ranking* (`ranking`), and these become text
(`tables` and `provenance`, which the templates in `templates/` put in place) and pictures (`figures`). `build`
makes everything in memory and then writes it, or says what is stale.
"""
