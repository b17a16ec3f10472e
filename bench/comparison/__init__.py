"""The modules of bench/compare.

families    what is measured: the measurements, their cases and metrics
peers       what is compared: unimem, other transports, the limits
peer        what all peers have in common; fabric, mpi: how they are run
running     one run of one peer; if it fails, the other runs go on
summary     statistics: medians, spread, ratios
tables      Markdown
plots       pictures
command     options, the order of the runs, the files that are written

The programs that measure are in bench/drivers. All results are in runs.json, in the form that `summary` reads: tables
and pictures are made from that file alone.
"""
