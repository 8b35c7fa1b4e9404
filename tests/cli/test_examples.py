"""The examples run as their texts say."""

import pytest

from tests.documents import ROOT

PIPELINE, HALO = str(ROOT / "examples" / "pipeline.py"), str(ROOT / "examples" / "halo.py")


@pytest.mark.parametrize("send", ["buffered", "rendezvous"])
def test_pipeline(python, send):
    done = python("-W", "error", "-m", "peerax", "run", PIPELINE, "--devices", "4", "--send", send)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:2] == [
        "stage 0  [0] [1] [2] [3] [4] [5]  .   .   . ",
        "stage 1   .  [0] [1] [2] [3] [4] [5]  .   . ",
    ]
    assert done.stdout.endswith("largest difference from the network on one device: 0.0\n")
    assert done.stderr.startswith("peerax: 4 ranks, 18 messages, 144.0 KiB, ")


def test_pipeline_says_how_many_devices_it_needs(peerax):
    done = peerax("run", "--quiet", PIPELINE, "--devices", "2")
    assert done.returncode == 1
    assert done.stderr.startswith("this needs 4 devices: peerax run ")


@pytest.mark.parametrize("devices", [1, 4, 7])
def test_halo(peerax, devices):
    done = peerax("run", "--quiet", HALO, f"--devices={devices}")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("largest difference from one device: 0.0\n")
