"""
The process that Spark forks Python workers from, on this machine: it imports once what all of them need.

Spark puts archives of its own sources first, which each process would compile again.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

if __name__ == "__main__":
    sys.path.sort(key=lambda path: path.endswith(".zip"))
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a process with threads is better not forked
    for name in (
        "pyspark.worker",
        "pandas",
        "vstream.audit.reconcile.bucket_digests",
        "vstream.audit.connector.datasource",
    ):
        import_module(name)
    import_module("pyspark.daemon").manager()
