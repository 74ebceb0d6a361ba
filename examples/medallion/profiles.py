"""The source of ``vectors.toml``: the changes of Gold, and the function that makes vectors of them."""

from __future__ import annotations

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import pandas_udf


def changed_customers(session: SparkSession) -> DataFrame:
    """Return the rows of customers whose totals change, and make ``profile`` known to SQL."""

    # Inside the function, so that it travels to the executors by value: they need not have this module.
    def profile(books: pd.Series, games: pd.Series, garden: pd.Series) -> pd.Series:
        spent = np.stack([books, games, garden], axis=1).astype(np.float32)
        length = np.linalg.norm(spent, axis=1, keepdims=True)
        return pd.Series(list(spent / np.where(length == 0, 1, length)))

    session.udf.register("profile", pandas_udf(profile, "array<float>"))  # type: ignore[call-overload]
    return (
        session.readStream.format("weir")
        .option("readChangeFeed", "true")
        .option("consumer", "vectors")
        .load("tables/customers")
    )
