"""Runs the tasks of table services on Spark executors.

The executors need the driver's version of Weir and access to the table's storage: a task carries the storage
options and opens what it works on where it runs.
"""

from __future__ import annotations

import copy
import functools
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeVar, cast
from uuid import uuid4

import pyarrow as pa
from pyspark import cloudpickle, inheritable_thread_target
from pyspark.sql import SparkSession, is_remote

from weir.engine.logs import get_logger
from weir.errors import RunnerError, WeirError
from weir.spark.python_worker import keep_imports_of
from weir.spark.silence import SparkSilentError, SparkWatch, on_thread, silent, watch_session

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["SparkRunner"]

_log = get_logger(__name__)

_MAX_JOBS = 16
_LONGEST_REASON = 400
_OF_NO_USE = "An error occurred while calling"
_CANCEL_AGAIN_SECONDS = 0.5
_SHORT_TRACEBACKS = "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled"
_ANSWERS = "number long, answer binary"
_ANSWER_SCHEMA = pa.schema([("number", pa.int64()), ("answer", pa.binary())])

Task = TypeVar("Task")
Result = TypeVar("Result")


class SparkRunner:
    """Runs the tasks of table services on the executors of a Spark session.

    Every service takes one: ``table.maintenance.merge(runner=SparkRunner(spark))``, and likewise ``recover``,
    ``compact``, ``catch_up_indexes``, ``collect_garbage``, ``verify`` and ``maintain``. The tasks are the
    same that otherwise run on threads, and so is the result. Planning and one-time commits stay in this
    process.

    Spark runs a task again if its Python worker or its executor is lost, as often as
    ``spark.task.maxFailures`` says (4; on the master ``local[N]`` once, on ``local[N, F]`` F times). The
    tasks are made for that: the work of a lost run is found and kept. The counts in a report cover only runs
    that answered, so they exclude the work of lost ones.

    Works with classic sessions and with Spark Connect. Tasks are divided into at most ``jobs`` Spark jobs,
    which are submitted at once and reported as they end, so progress advances with each. If a task fails,
    running jobs are cancelled.

    Parameters
    ----------
    spark : SparkSession
        The session, classic or Connect.
    jobs : int
        Most Spark jobs that the tasks of a step are divided into. Default 16.

    Raises
    ------
    RunnerError
        If ``jobs`` is below 1.

    Examples
    --------
    >>> import tempfile, pyarrow as pa, weir
    >>> schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
    >>> table = weir.create(tempfile.mkdtemp() + "/people", schema, primary_key="id")
    >>> with table.writer() as writer:
    ...     _ = writer.upsert([{"id": 1, "name": "Ada"}])
    >>> report = table.maintenance.merge(runner=SparkRunner(spark))  # doctest: +SKIP
    >>> report.rows_upserted  # doctest: +SKIP
    1
    """

    is_distributed = True
    """Marks that tasks run on separate machines, so that work is divided earlier."""

    def __init__(self, spark: SparkSession, *, jobs: int = _MAX_JOBS) -> None:
        if jobs < 1:
            raise RunnerError(f"tasks cannot be divided into {jobs} jobs", where="jobs")
        self._spark = spark
        self._jobs = jobs

    def __repr__(self) -> str:
        """Show the number of jobs; the settings of a session may be secret."""
        return f"SparkRunner(jobs={self._jobs})"

    def in_one_go(self) -> Self:
        """Return a runner with one Spark job for all tasks: submitting one takes as long as a small task."""
        made = copy.copy(self)
        made._jobs = 1
        return made

    def run(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
        """Yield ``function(task)`` for every task, as their jobs end.

        Raises
        ------
        RunnerError
            If Spark could not run a task, does not answer for a minute, or a task failed with an error that
            cannot be pickled.
        Exception
            The error that a task raised; errors other than Weir's carry the executor's traceback as a note.
        """
        if not tasks:
            return
        name = getattr(function, "__name__", "tasks")
        tag = f"weir-{name}-{uuid4().hex}"
        pickled = [_pickled((function, task)) for task in tasks]
        chunks = [pickled[first :: self._jobs] for first in range(min(self._jobs, len(pickled)))]
        # The threads submit jobs as the caller would: into the same scheduler pool, with the same tags.
        submit = inheritable_thread_target(self._spark)(functools.partial(self._job, tag))
        with watch_session(self._spark) as watch:
            futures = [on_thread(functools.partial(submit, chunk)) for chunk in chunks]
            ended = False
            try:
                for future in watch.as_completed(futures):
                    for answer in future.result():
                        yield cast(Result, _value(answer))
                ended = True
            except SparkSilentError as error:
                raise silent(error) from error
            finally:
                if not ended and not watch.is_silent:
                    self._cancel(tag, futures, watch)

    def _job(self, tag: str, pickled: Sequence[bytes]) -> list[bytes]:
        """Run some tasks as one Spark job with as many partitions; return their pickled results."""
        count = len(pickled)
        try:
            if is_remote():
                self._spark.addTag(tag)
                numbers = self._spark.range(0, count, 1, count)
                rows = numbers.mapInArrow(_Work(tuple(pickled)), _ANSWERS).collect()
                return [bytes(row["answer"]) for row in rows]
            # Connect has no RDDs. A job of data frames is planned first, and its tasks start later.
            context = _context_of(self._spark)
            context.addJobTag(tag)
            # Data frames give it to their jobs: `SparkSession.interruptAll` finds them by it.
            context.addJobTag(self._spark._jsparkSession.sessionJobTag())
            return context.parallelize(pickled, count).map(_answer).collect()
        except Exception as error:
            raise _failure(error) from error

    def _cancel(self, tag: str, futures: Collection[Future[list[bytes]]], watch: SparkWatch) -> None:
        """Cancel running jobs, and wait for them to end."""
        pending = wait(futures, timeout=0).not_done
        while pending:
            try:
                watch.run(functools.partial(self._interrupt, tag))
            except Exception as error:
                # What made us cancel is what the caller is to be told; the jobs end by themselves.
                _log.warning("spark.not_cancelled", error=_reason(error))
                return
            # Again, since a job that was just being submitted was not there to be interrupted.
            pending = wait(pending, timeout=_CANCEL_AGAIN_SECONDS).not_done

    def _interrupt(self, tag: str) -> None:
        if is_remote():
            self._spark.interruptTag(tag)
        else:
            # A classic session finds by its tags only the jobs of the very thread that asks.
            self._spark.sparkContext.cancelJobsWithTag(tag)


def _context_of(spark: SparkSession) -> SparkContext:
    """Return the context of a classic session, for jobs in the Python workers that data frames have.

    Spark has a pool of workers for every environment, and sets one variable for data frames that it does not
    set for RDDs: theirs would have to import Weir first, again after every minute of rest.
    """
    context = spark.sparkContext
    own = object.__new__(type(context))
    own.__dict__.update(context.__dict__)
    if spark.conf.get(_SHORT_TRACEBACKS, "true") == "true":
        own.environment = {**context.environment, "SPARK_SIMPLIFIED_TRACEBACK": "1"}
    return own


@dataclass(frozen=True, slots=True)
class _Work:
    """The executor side of a job through Connect: runs the tasks with the given numbers."""

    pickled: tuple[bytes, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers = batch.column(0).to_pylist()
            answers = [_answer(self.pickled[number]) for number in numbers]
            yield pa.record_batch([numbers, answers], schema=_ANSWER_SCHEMA)


@dataclass(frozen=True, slots=True)
class _Failure:
    """The error of a task and its traceback. If Spark itself saw the error, it would run the task again."""

    error: BaseException
    trace: str


def _pickled(value: object) -> bytes:
    """Pickle like Spark pickles functions: those that executors cannot import travel by value."""
    return cast(bytes, cloudpickle.dumps(value))  # type: ignore[no-untyped-call]


def _answer(pickled: bytes) -> bytes:
    try:
        function, task = cloudpickle.loads(pickled)
        keep_imports_of(getattr(function, "__qualname__", ""))
        return _pickled(function(task))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        # BaseException, since a panic of the library is one.
        return _pickled_failure(error, traceback.format_exc())


def _pickled_failure(error: BaseException, trace: str) -> bytes:
    try:
        pickled = _pickled(_Failure(error, trace))
        cloudpickle.loads(pickled)
    except Exception:
        substitute = RunnerError(f"a task failed: {type(error).__name__}: {error}")
        pickled = _pickled(_Failure(substitute, trace))
    return pickled


def _value(answer: bytes) -> object:
    """Return the result of a task, or raise its error."""
    try:
        value = cloudpickle.loads(answer)
    except Exception as error:
        raise RunnerError(
            f"what an executor answered cannot be read here: {error}",
            hint="Install the same versions of Weir and its dependencies on driver and executors",
        ) from error
    if not isinstance(value, _Failure):
        return value
    if type(value.error) is RunnerError or not isinstance(value.error, WeirError):
        value.error.add_note(f"On the executor:\n{value.trace}")
    raise value.error


def _failure(error: Exception) -> RunnerError:
    """Return a readable message for a job that Spark has given up."""
    reason = _reason(error)
    if "No module named 'weir" in str(error):
        return RunnerError(
            "the executors have no Weir",
            hint="Install it where they run, or ship it with spark.archives or spark.submit.pyFiles",
        )
    if "worker exited unexpectedly" in str(error) or "ExecutorLostFailure" in str(error):
        return RunnerError(
            f"Spark lost the process that ran a task, and gave it up: {reason}",
            hint="Completed work is kept: run the service again. If memory ran out, give executors more "
            "of it (spark.executor.memoryOverhead)",
        )
    return RunnerError(f"Spark could not run a task: {reason}", hint="The log of the executor says more")


def _reason(error: Exception) -> str:
    """Return Spark's message in one line, without the stack traces it appends."""
    lines = (line.removeprefix(":").strip() for line in str(error).splitlines())
    first = next((line for line in lines if line and not line.startswith(_OF_NO_USE)), type(error).__name__)
    first = first.removeprefix("org.apache.spark.SparkException: ")
    return first if len(first) <= _LONGEST_REASON else f"{first[:_LONGEST_REASON]}..."
