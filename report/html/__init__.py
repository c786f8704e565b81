"""The leaderboard as a small site of HTML files: an index, one page for each board, method, dataset and paper.

The pages need no server and load nothing from other hosts. `pages` makes them from templates, `tables` makes the tables
of the site only. Without the script, all tables are shown in the order of rank.
"""
