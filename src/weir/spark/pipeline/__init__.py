"""Pipelines: a stream into a table or an event store on Spark, with its maintenance services, as one value.

>>> from datetime import timedelta
>>> pipeline = Pipeline(
...     source=FormatSource("rate", {"rowsPerSecond": "100"}),
...     transform="SELECT value AS id, timestamp AS at FROM source",
...     table=TargetTable("s3://bucket/ticks"),
...     checkpoint="s3://bucket/checkpoints/ticks",
...     services=Services(merge=timedelta(seconds=30)),
... )

``pipeline.run(spark)`` runs it until it is asked to stop; ``weir pipeline run pipeline.toml`` does the same
for a pipeline described in a file.
"""

from __future__ import annotations

from weir.spark.pipeline.metrics import MetricsSample
from weir.spark.pipeline.pipeline import Pipeline, PipelineCheck
from weir.spark.pipeline.pipeline_file import PipelineFile, SessionSettings, read_pipeline_file
from weir.spark.pipeline.prometheus import PrometheusSamples
from weir.spark.pipeline.running import PipelineSummary, RunningPipeline
from weir.spark.pipeline.schedule import ServiceState
from weir.spark.pipeline.settings import (
    AVAILABLE_NOW,
    CallableSource,
    FormatSource,
    Metrics,
    Quarantine,
    Services,
    TargetEvents,
    TargetTable,
    ValueFormat,
)
from weir.spark.pipeline.state import PipelineState, pipeline_state

__all__ = [
    "AVAILABLE_NOW",
    "CallableSource",
    "FormatSource",
    "Metrics",
    "MetricsSample",
    "Pipeline",
    "PipelineCheck",
    "PipelineFile",
    "PipelineState",
    "PipelineSummary",
    "PrometheusSamples",
    "Quarantine",
    "RunningPipeline",
    "ServiceState",
    "Services",
    "SessionSettings",
    "TargetEvents",
    "TargetTable",
    "ValueFormat",
    "pipeline_state",
    "read_pipeline_file",
]
