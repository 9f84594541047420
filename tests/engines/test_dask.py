"""Builds on a Dask cluster: two worker processes here, machines elsewhere."""

from __future__ import annotations

import tempfile

import pytest
from distributed import Client, LocalCluster

from tests.support.executors import Named, export
from trt_et import PartitionError


@pytest.mark.long
def test_a_cluster_gives_the_bytes_of_a_serial_export(tmp_path, monkeypatch):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            local_directory=str(tmp_path / "dask"),
        ) as cluster,
        Client(cluster) as client,
    ):
        executor = client.get_executor()
        # test_workers.py builds real engines; importing TensorRT takes long.
        assert export(executor=executor) == export()
        with pytest.raises(PartitionError, match=r"failed on partition tensorrt_1 .*out of luck"):
            export(executor=executor, builder=Named("tensorrt_1"))
        assert list(scratch.glob("trt-et-*")) == []
