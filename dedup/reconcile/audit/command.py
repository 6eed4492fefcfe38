"""Runs an audit from Spark's start to the written results: called by `core-bridge audit`."""

from __future__ import annotations

import json
import os
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dedup.reconcile.audit.errors import ReadFailed, said
from dedup.reconcile.audit.job import Renewed, audit
from dedup.reconcile.audit.output import FINDINGS, REPLAY_PLAN, SUMMARY, check_output
from dedup.reconcile.audit.plan import Plan
from dedup.reconcile.audit.resending import replay_plan
from dedup.reconcile.audit.summary import Summary
from dedup.reconcile.files import reason
from dedup.reconcile.session import session
from dedup.reconcile.storage import place
from dedup.replay_plan import encode

#: Set to 1, a failure shows its traceback instead of one line; the same variable as for every command.
_TRACEBACK: Final = "CORE_BRIDGE_TRACEBACK"
#: Set where spark-submit runs this: what is logged is its user's to say.
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"


def run(
    plan: Plan, renewed: Renewed, *, master: str | None, output: str, with_deleted: bool = False
) -> Summary:
    """Audit, and write `SUMMARY` below `output` last: where it exists, the audit was finished.

    The audit of a bridge writes `REPLAY_PLAN`, too.

    Args:
        plan: what to read.
        renewed: see `job.audit`.
        master: Spark's; None: what spark-submit says, else all cores of this machine.
        output: a directory, on any file system that Hadoop knows: new, empty, or an earlier audit.
        with_deleted: see `resending.replay_plan`.

    Raises:
        BadInput: `output` holds something else. Nothing was read.
        ReadFailed: in one line, why there is no verdict.
        NoSpark: no Java, or one that is too old.
    """
    began = SparkSession.getActiveSession() is None
    spark = session(master, "core-bridge audit")
    traceback = os.environ.get(_TRACEBACK) == "1"
    if began and not traceback and _SUBMITTED not in os.environ:
        # Spark logs the traceback of a task that fails, and then raises it: below, that becomes one line.
        spark.sparkContext.setLogLevel("FATAL")
    try:
        storage, directory = place(output, spark)
        check_output(storage, directory)
        path, planned = (f"{directory.rstrip('/')}/{name}" for name in (SUMMARY, REPLAY_PLAN))
        storage.delete(path)
        storage.delete(planned)
        summary = audit(spark, plan, renewed, output.rstrip("/"))
        if plan.store:
            findings = spark.read.parquet(f"{output.rstrip('/')}/{FINDINGS}")
            made = replay_plan(plan, findings, with_deleted=with_deleted)
            storage.write(planned, encode(made).encode())
        storage.write(path, json.dumps(summary.as_json(), indent=1).encode())
    except (PySparkException, Py4JError) as error:
        if traceback:
            raise
        raise ReadFailed(said(str(error)) or reason(error)) from None
    finally:
        if began:
            spark.stop()
    return summary
