"""Submissions: packing a method's rows, checking what comes from others, and running a sample of it again.

A submission is a small results folder with one more file, `submission.yaml`. Whatever is in it is data: its files are
read within limits, and nothing in it is imported, unpickled or run.

    metadata    who submits what, with which code and licence
    limits      how large anything may be
    findings    what is wrong, one line each
    archive     zip files
    folder      which files a folder holds, and which it may not
    lines       the rows of a folder, line by line
    cells       a row against the registries: key, names, parameters, ranges
    claims      rows against their suite: protocol, seeds, duplicates
    data        fingerprints and partition hashes
    sidefiles   curves and environments
    base        what was there before: nothing of it changes
    validate    all of it
    pack        making a submission, and taking one in
    verify      running a sample again
"""
