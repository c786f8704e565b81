"""Submissions: packing a method's rows, checking what comes from others, and running a sample of it again.

A submission is a small results folder with one more file, `submission.yaml`. Whatever is in it is data: its files are
read within limits, and nothing in it is imported, unpickled or run.

    metadata     who submits what, with which code and licence
    limits       how large anything may be
    archive      zip files
    inbox        which files a folder holds, its rows line by line, and what is wrong with it
    kin          what rows that differ in the seed alone have in common
    cells        a row by itself: what its columns ask for, and the registries: key, names, parameters
    claims       rows against their suite: protocol, seeds, duplicates
    federations  fingerprints and partition hashes
    curves       a row against its curves and its clients' figures
    copies       rows against each other: no two runs have the same curves
    arrays       embeddings, without loading them
    rendered     what the report has made
    sidefiles    every side file belongs to a row
    lookalikes   names that look like others
    owners       whose a method's rows are
    before       what was there before: nothing of it changes
    checks       all of it
    pack         making a submission, and taking one in
    rerun        running a sample again
    bars         how far a row may lie above its second run
"""
