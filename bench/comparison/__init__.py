"""What bench/compare is made of.

families    what is measured: the measurements, their cases and metrics
peers       on what: unimem, other transports, the limits
peer        what they have in common; fabric, mpi: how each one is run
running     one run of one peer; a peer that fails ends nothing
summary     statistics: medians, spread, ratios
tables      Markdown
plots       pictures
command     options, the order of the runs, the files that come of it

The programs that measure are in bench/drivers. All that a run gave is in runs.json, in the form that `summary` reads: tables
and pictures are made of that file alone.
"""
