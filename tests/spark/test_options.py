from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from weir.errors import OptionError, UriError
from weir.spark.options import TableLocation, as_switch, as_whole_number, split_options


def test_path_storage_options_and_others_are_told_apart_whatever_their_case() -> None:
    options = {
        "path": "s3://bucket/flights",
        "STORAGE.Timeout": "5s",
        "aws_region": "eu-west-1",
        "checkpointlocation": "/checkpoint",
        "maxrows": "7",
    }
    location, rest = split_options(options, ["maxRows", "filter"])
    assert location == TableLocation("s3://bucket/flights", {"timeout": "5s", "aws_region": "eu-west-1"})
    assert rest == {"maxRows": "7"}


def test_a_relative_path_means_the_same_in_every_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    location, _ = split_options({"path": "flights"}, [])
    monkeypatch.chdir("/")
    assert pickle.loads(pickle.dumps(location)).uri == str(tmp_path / "flights")


def test_what_is_unknown_or_missing_is_refused_by_name() -> None:
    with pytest.raises(OptionError, match=r"no option 'fiter'.*Did you mean 'filter'"):
        split_options({"path": "/a", "fiter": "x"}, ["filter"])
    with pytest.raises(OptionError, match=r"no option 'mode'.*columns, path, and storage options"):
        split_options({"path": "/a", "mode": "x"}, ["columns"])
    with pytest.raises(OptionError, match="the table is not named"):
        split_options({"columns": "id"}, ["columns"])
    with pytest.raises(UriError, match="ftp"):
        split_options({"path": "ftp://host/flights"}, [])


def test_what_spark_adds_for_its_catalog_is_told_of_as_such() -> None:
    added = {"path": "/data/flights", "location": "/data/flights", "owner": "me", "provider": "weir"}
    with pytest.raises(OptionError, match="Make a view: CREATE TEMPORARY VIEW"):
        split_options(added, ["columns"])


def test_credentials_are_not_shown() -> None:
    location, _ = split_options({"path": "s3://b/t", "aws_secret_access_key": "hush"}, [])
    assert "hush" not in repr(location)


def test_switches_and_whole_numbers() -> None:
    assert as_switch("takeover", "TRUE")
    assert not as_switch("takeover", "false")
    with pytest.raises(OptionError, match="'takeover' must be true or false, got 'yes'"):
        as_switch("takeover", "yes")
    assert as_whole_number("sequence", "7") == 7
    for wrong in ("-1", "7.5", "", "x"):
        with pytest.raises(OptionError, match="'sequence' must be a whole number"):
            as_whole_number("sequence", wrong)
    with pytest.raises(OptionError, match="at least 1"):
        as_whole_number("maxRows", "0", least=1)
    assert as_whole_number("sequence", str(2**63 - 1)) == 2**63 - 1
    for wrong in (str(2**63), "9" * 5_000):
        with pytest.raises(OptionError, match=r"at most 9,223,372,036,854,775,807, got \d{19,30} "):
            as_whole_number("sequence", wrong)
