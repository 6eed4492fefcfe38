"""Starts Spark quietly, or takes the session that spark-submit has started."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dedup.reconcile import interrupt
from dedup.reconcile.errors import NoSpark

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

#: The oldest Java that Spark 4 runs on.
OLDEST_JAVA: Final = 17
#: Longest that `java -version` may take.
JAVA_ANSWER_S: Final = 30.0
#: Heap of a session that is started here. A local one does all its work in it.
DRIVER_MEMORY: Final = "2g"
#: Shuffle partitions a core of a local master: adaptive execution puts small ones together.
PARTITIONS_PER_CORE: Final = 4
#: Logs of fewer bytes make a short run: most of its code runs a few times, and what Java's second compiler
#: takes for it never comes back. 100 million messages are 70 MiB without producers' IDs.
SHORT_BYTES: Final = 128 * 2**20
#: Of a local session's Java: throughput before pauses, and no collection whenever classes need more room than
#: it begins with.
_JAVA: Final = "-XX:+UseParallelGC -XX:MetaspaceSize=256m"
#: The first compiler alone. 100 million messages take 30 s of processor time with it, 37 s with `_JAVA_LONG`.
_JAVA_SHORT: Final = "-XX:TieredStopAtLevel=1"
#: The second compiler waits a hundred times as long as it would for what is really hot. A billion messages
#: take 93 s of processor time with it, 147 s with `_JAVA_SHORT`; 100 million 58 s with a tenth of these
#: numbers, and with larger ones more again.
_JAVA_LONG: Final = (
    "-XX:Tier4InvocationThreshold=500000 -XX:Tier4MinInvocationThreshold=60000 "
    "-XX:Tier4CompileThreshold=1500000 -XX:Tier4BackEdgeThreshold=4000000"
)
_INSTALL: Final = (
    f"install a complete Java {OLDEST_JAVA} runtime or newer (Debian and Ubuntu: "
    "apt install default-jre-headless), or set JAVA_HOME"
)

#: Errors only, on stderr. PythonGatewayServer is named because Spark would else print that it sets its level.
_LOG4J: Final = """\
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = spark: %p %c{1}: %m%n%ex{3}
"""


def java_missing() -> str | None:
    """The advice on what to install where Spark would not start; None where Java is there and new enough.

    Starts ``java -version``, which takes some 0.1 s. Needs no PySpark.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if java is None:
        where = f"in JAVA_HOME={home}" if home else "on PATH"
        return f"no Java found {where}: {_INSTALL}"
    try:
        answer = subprocess.run(  # noqa: S603 - the java that Spark would start
            [java, "-version"], capture_output=True, text=True, timeout=JAVA_ANSWER_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{java} -version gives no answer ({error}): {_INSTALL}"
    version = _java_version(answer.stderr + answer.stdout)
    if version is None or version < OLDEST_JAVA:
        found = "an unknown version" if version is None else f"Java {version}"
        return f"{java} is {found}: {_INSTALL}"
    return None


def session(master: str | None, name: str, *, log_bytes: int | None = None) -> SparkSession:
    """The session that is active, the one spark-submit describes, or a new quiet one. Ctrl-C is quiet, too.

    Args:
        master: such as ``local[2]`` or ``spark://host:7077``; None: what spark-submit says, else all cores
            of this machine.
        name: of the application.
        log_bytes: how much is to be read, which says how a Java that is started compiles; None: not known.

    Raises:
        NoSpark: Java is missing or too old; the text says what to install.
    """
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    settings = SparkConf().setAppName(name)
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        # spark-submit runs this: all settings are its user's.
        return _started(settings)
    missing = java_missing()
    if missing is not None:
        raise NoSpark(missing)
    short = log_bytes is not None and log_bytes < SHORT_BYTES
    return _start(settings, master or "local[*]", short=short)


def _started(settings: SparkConf) -> SparkSession:
    """The context before the session: it has PySpark's handler of Ctrl-C, which is replaced at once."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    interrupt.raise_quietly()
    SparkContext.getOrCreate(settings)
    interrupt.raise_quietly()
    return SparkSession.builder.getOrCreate()


def _start(settings: SparkConf, master: str, *, short: bool) -> SparkSession:
    # The workers take the same interpreter: `python3` from PATH need not have pyarrow.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings.setMaster(master)
    settings.set("spark.ui.enabled", "false")
    settings.set("spark.ui.showConsoleProgress", "false")
    settings.set("spark.sql.session.timeZone", "UTC")
    settings.set("spark.sql.adaptive.enabled", "true")
    # Where in our code each column was made: half of the time that Python takes, and no user can use it.
    settings.set("spark.python.sql.dataFrameDebugging.enabled", "false")
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings.set("spark.driver.memory", DRIVER_MEMORY)
        settings.set("spark.sql.shuffle.partitions", str(PARTITIONS_PER_CORE * _cores(master)))
        # Where more than 32 files are read, else a task for each of them asks for its size.
        settings.set(
            "spark.sql.sources.parallelPartitionDiscovery.parallelism",
            str(PARTITIONS_PER_CORE * _cores(master)),
        )
    with tempfile.NamedTemporaryFile("w", prefix="core-bridge-log4j2-", suffix=".properties") as log4j:
        log4j.write(_LOG4J)
        log4j.flush()
        # Read once, when the Java process starts.
        java = f"-Dlog4j2.configurationFile=file:{log4j.name}"
        if master.startswith("local"):
            java = f"{_JAVA} {_JAVA_SHORT if short else _JAVA_LONG} {java}"
        settings.set("spark.driver.extraJavaOptions", java)
        return _started(settings)


def _cores(master: str) -> int:
    """The number of cores of a local master: ``local``, ``local[4]``, ``local[4,2]``, ``local[*]``."""
    if master == "local":
        return 1
    match = re.match(r"local\[(\d+)", master)
    return max(1, int(match[1])) if match else os.cpu_count() or 1


def _java_version(answer: str) -> int | None:
    """17 from ``openjdk version "17.0.9"``, 8 from ``"1.8.0_392"``; None where there is none."""
    match = re.search(r'version "(?:1\.)?(\d+)', answer)
    return int(match[1]) if match else None
