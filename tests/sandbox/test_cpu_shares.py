"""Which owners of sandboxes use more than their share of the CPUs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from apps.deployments.sandbox import usage
from apps.deployments.sandbox.cpu_shares import CpuShares, find_greedy


@pytest.mark.parametrize(
    ("used", "greedy"),
    [
        ({}, set()),
        ({"a": 1.9}, set()),  # of 4 CPU seconds, half belong to the platform
        ({"a": 2.1}, {"a"}),
        ({"a": 1.4, "b": 0.2}, {"a"}),  # a third each
        ({"a": 1.4, "b": 0.01}, set()),  # the other one is not busy
        ({"a": 1.3, "b": 1.3}, set()),
        ({"a": 2.0, "b": 2.0}, {"a", "b"}),
        ({"a": 0.9, "b": 0.9, "c": 1.1}, {"c"}),
    ],
)
def test_a_share_is_what_the_busy_owners_and_the_platform_divide(used, greedy):
    assert find_greedy(used, seconds=2.0, cpus=2) == greedy


def test_trees_of_an_owner_count_together():
    shares = CpuShares(0.0, cpus=2)
    for tree in ("first", "second"):
        shares.record("a", tree, 5.0, 0.1)  # what they used before does not count
    shares.record("a", "first", 6.1, 1.0)
    shares.record("a", "second", 6.1, 1.9)
    assert not shares.is_greedy("a")

    shares.record("b", "third", 0.0, 2.0)

    assert shares.is_greedy("a")
    assert not shares.is_greedy("b")


def test_an_owner_is_greedy_until_three_calm_windows():
    shares = CpuShares(0.0, cpus=1)
    shares.record("a", "tree", 0.0, 0.0)
    shares.record("a", "tree", 2.0, 1.0)
    greedy = []
    for seconds in (2.0, 4.0, 6.0, 8.0):
        shares.record("a", "tree", 2.0, seconds)
        greedy.append(shares.is_greedy("a"))

    assert greedy == [True, True, True, False]


def test_a_tree_that_lost_time_and_an_ended_one_count_nothing():
    shares = CpuShares(0.0, cpus=1)
    shares.record("a", "tree", 9.0, 0.0)
    shares.record("a", "tree", 3.0, 1.0)
    shares.forget("tree")
    shares.record("a", "tree", 8.0, 1.5)
    shares.record("a", "tree", 8.0, 2.0)

    assert not shares.is_greedy("a")


def test_cpu_time_of_a_process_includes_children_that_it_waited_for():

    before = usage.cpu_seconds([os.getpid()])
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-I", "-S", "-c", burn], check=True)

    assert usage.cpu_seconds([os.getpid()]) - before >= 0.28
    assert usage.cpu_seconds([2**22 + 1]) == 0.0
