"""How large anything from outside may be. Every limit is several times what the benchmark's own results need."""

from __future__ import annotations

MIB = 2**20

FILES = 50_000  # of one folder or archive
ARCHIVE_BYTES = 64 * MIB  # packed
TOTAL_BYTES = 256 * MIB  # of a submission, unpacked
ROWS_BYTES = 16 * MIB  # one CSV file
ROWS = 20_000  # in one CSV file
CURVES_BYTES = 2 * MIB  # one side file, packed; `store.attachments.HISTORY_BYTES` limits it unpacked
COLUMNS_BYTES = 64 * MIB  # those of many rows; `store.columnfile.COLUMN_BYTES` limits them unpacked as well
EMBEDDINGS_BYTES = 32 * MIB
ENVIRONMENT_BYTES = 64 * 2**10
METADATA_BYTES = 16 * 2**10
LARGE = 1e15  # no figure of a run comes near it, and what draws figures can work with less
LOG_BYTES = MIB  # the traceback behind a failed row
PAGE_BYTES = 64 * MIB  # a page, table or figure of the report
